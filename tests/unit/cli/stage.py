"""An app on a stage: the same answers to the same questions, for pictures of what the command shows."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

AT, LATER = "2027-01-15T08:00:00.000Z", "2027-01-15T08:15:00.000Z"
EVENT_ID = "810a5c67-9997-5cac-a82c-ef5111ba3afa"
FLEET = {
    "name": "web",
    "partitions": 12,
    "profile": "fast",
    "servers": {"minimum": 2, "spare": 1},
    "generation": 3,
    "created": AT,
    "resizing": {"from": 6, "closed": 6, "opened": 9},
}
LOCKS: list[dict[str, Any]] = [
    {"name": "migrations", "state": "free", "token": 1800000000000, "waiters": []},
    {
        "name": "nightly",
        "state": "held",
        "token": 1800000060000,
        "holder": "web-1/4711",
        "granted": AT,
        "renewed": AT,
        "free_at": LATER,
        "waiters": [{"holder": "web-2/93", "since": AT}, {"holder": "web-3/[b]\x1b[31m", "since": AT}],
    },
    {
        "name": "report",
        "state": "revoked",
        "token": 1800000000007,
        "holder": "web-2/93",
        "granted": AT,
        "renewed": AT,
        "free_at": LATER,
        "waiters": [],
        "note": "it hangs",
        "author": "tsn_3ijpvmo2",
    },
]
DRAIN = {"verb": "drain", "target": "s4", "note": "a new [red]disk\x1b[31m", "author": "tsn_3ijpvmo2", "created": AT, "expires": LATER}
OFFLINE = {"verb": "offline", "target": 1, "note": "corrupt", "author": "tsn_3ijpvmo2", "created": AT, "expires": None}
PROHIBIT = {"verb": "prohibit", "target": 7, "server": "s2", "note": "slow", "author": "tsn_3ijpvmo2", "created": AT, "expires": None}
FREEZE = {
    "event_id": EVENT_ID,
    "type": "Freeze",
    "status": "scheduled",
    "scope": "set",
    "source": "Platform",
    "not_before": LATER,
    "duration_s": -1,
    "resources": ["vm_1", "vm_2"],
    "first_seen": AT,
    "rehearsal": False,
    "nodes": {
        "s1": {"phase": "PREPARED", "reported": AT},
        "s2": {"phase": "PREPARE_FAILED", "reported": AT, "reason": "the hook ended with 3"},
    },
    "approval": None,
    "alarms": ["not-prepared"],
    "impact": {"notice_ms": 900000, "advertised_ms": None, "observed_ms": {}, "lasted_ms": None},
}
REBOOT = {
    **FREEZE,
    "event_id": "reboot-1",
    "type": "Reboot",
    "status": "completed",
    "duration_s": 9,
    "alarms": [],
    "resources": ["vm_1"],
    "nodes": {"s1": {"phase": "DONE", "reported": LATER}},
    "started": AT,
    "ended": LATER,
    "approval": {"id": "reboot-1.1", "state": "granted", "by": "fleet", "reason": "the guard agrees", "at": AT, "expires": LATER},
    "impact": {"notice_ms": 900000, "advertised_ms": 9000, "observed_ms": {"s1": 7400}, "lasted_ms": 61000},
    "catch_up_ms": {"s1": 42_000},
    "probe": {
        "verdict": "passed",
        "passed": ["while one node catches up: p99 is 344 ms, and the bound 250 ms"],
        "bound": {"p99_ms": 250, "failures": 0.01},
        "phases": {
            "before": {"probes": 600, "failures": 0, "p50_ms": 3.2, "p99_ms": 21.53},
            "out": {"probes": 120, "failures": 1, "p50_ms": 12.8, "p99_ms": 102.4},
            "one_node": {"probes": 84, "failures": 0, "p50_ms": 51.2, "p99_ms": 344.44},
            "domain": {"probes": 2, "failures": 2, "p50_ms": None, "p99_ms": None},
        },
        "nodes": ["s2", "s3"],
    },
}
DEAD = {
    "id": "order-17",
    "tenant": "demo",
    "state": "dead",
    "due": AT,
    "created": AT,
    "channel": "shop",
    "payload": {"order": 17, "n": 1.10},
    "labels": {"team": "[bold]blue"},
    "late_ms": 12,
    "error": "said 500",
    "attempts": [
        {"at": AT, "outcome": "retry", "status": 500, "took_ms": 35, "error": "said 500"},
        {"at": LATER, "outcome": "final", "took_ms": 15000},
    ],
}
TURN = {"epoch": 8, "holder": "s2", "state": "granted", "granted": AT, "timeout_ms": 60000, "sequence": None}
SHOP = {
    "name": "shop",
    "created": AT,
    "paused": False,
    "type": "http",
    "url": "https://shop.example/hook",
    "flow": {"breaker": "open", "error": "https://shop.example/hook: could not connect"},
}
READY = {
    "status": "ready",
    "storage": {"reachable": True},
    "version": "0.2.0.dev12+g1a2b3c4d",
    "clock_skew_ms": 71,
    "timers": {
        "lease_scan": {"age_s": 7.5, "late": False},
        "stale_scan": {"age_s": 190.0, "late": True},
        "retention_scan": {"age_s": None, "late": False},
    },
}
LATE = {"p50": 5, "p99": 45279, "max": 63000}
STATS = {
    "mirror_lag_ms": None,
    "open": 12801,
    "overdue": 3,
    "stuck": 0,
    "delivered": 2034,
    "dead": 1,
    "lapsed": 0,
    "cancelled": 2,
    "retrying": 18,
    "working": 0,
    "held": 37,
    "held_partial": False,
    "late_ms": LATE,
    "channels": {
        "shop": {"state": "breaker-open", "held": 37, "delivered": 93, "dead": 7, "late_ms": LATE},
        "default": {"state": "ok", "held": 0, "delivered": 1941, "dead": 0, "late_ms": LATE},
    },
}
STALE = {
    "items": [
        {"partition": 3, "reason": "owner silent", "owner": "s3", "age_ms": 65000},
        {"partition": 7, "reason": "unowned", "owner": None, "age_ms": 3725000},
    ],
    "servers": {"live": 1, "needed": 3, "used": True, "silent": ["s3"], "late": []},
    "forgotten": [OFFLINE],
    "next": None,
    "alarms": [{"alarm": "servers", "since": AT, "count": 2, "subjects": ["s2", "s3"]}],
}
BEAT = {"seq": 7, "state": "live", "age_ms": 1500, "incarnation": EVENT_ID, "fault_domain": "0", "capacity": 1, "load": 0.5, "scans": False}
REPLICA = {
    "role": "primary",
    "term": 1,
    "applied": 41,
    "lag": 0,
    "load": 0.5,
    "failures": 0,
    "ready": True,
    "report_age_ms": 4200,
    "down": None,
    "skipped": "primary",
    "taking": None,
    "holds": None,
    "last_checkpoint": 41,
}
CARE = {
    "vm": "vm_1",
    "scope": "set",
    "location": "westeurope",
    "fault_domain": "0",
    "reported": AT,
    "disabled": False,
    "leaving": False,
    "monitor": "primary",
    "events": {EVENT_ID: {"phase": "PREPARED", "reported": AT}},
}
NODE: dict[str, Any] = {"partitions": {}, "assign": [], "release": [], "intents": [], "turn": None, "maintenance": None}
NODES = [
    {**NODE, "node": "s1", "beat": BEAT, "partitions": {str(each): 1 for each in range(11)}, "turn": REPLICA, "maintenance": CARE},
    {
        **NODE,
        "node": "s4",
        "beat": {**BEAT, "state": "draining", "age_ms": 900, "fault_domain": ""},
        "intents": [DRAIN],
        "turn": {**REPLICA, "role": "secondary", "skipped": None, "taking": 8, "down": "clock"},
    },
    {**NODE, "node": "s9", "beat": None},
]
LEASES = [
    {"partition": 0, "state": "owned", "owner": "s1", "epoch": 4, "since": AT, "beat_age_ms": 1500, "load": 12.5, "intents": []},
    {"partition": 1, "state": "offline", "owner": None, "epoch": 2, "since": AT, "beat_age_ms": None, "load": None, "intents": [OFFLINE]},
]
SERVERS = [{"server": "s1", "state": "live", "beat_age_ms": 1500, "load": 12500.0, "partitions": [0, 2, 4, 5, 6, 8, 9, 10, 11]}]
PLAN = {
    "applied": False,
    "moves": [
        {"partition": 3, "from": "s3", "to": "s1", "reason": "owner gone"},
        {"partition": 5, "from": None, "to": "s1", "reason": "unowned"},
    ],
    "unplaced": [{"partition": each, "reason": "prohibited"} for each in (7, 8, 9)],
}
RECURS = {"tenant": "demo", "catch_up": {"policy": "last"}, "channel": "default", "payload": {}, "created": AT, "revision": 1, "last": None}
PLANNED = {"id": "n2", "tenant": "demo", "state": "scheduled", "due": LATER, "created": AT, "channel": "default", "payload": None}
LISTS = {
    "events": [DEAD, PLANNED],
    "schedules": [
        {**RECURS, "id": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "paused": False, "next": LATER},
        {**RECURS, "id": "beat", "every": "PT10S", "paused": True, "next": None},
    ],
    "schedules/nightly/preview": [
        {"at": AT, "local": "2027-01-15T09:00:00.000+01:00"},
        {"at": LATER, "local": "2027-01-15T09:15:00.000+01:00", "reason": "gap"},
    ],
    "fleets": [FLEET],
    "fleets/web/leases": LEASES,
    "fleets/web/leases?by=server": SERVERS,
    "fleets/web/leases/intents": [DRAIN, OFFLINE, PROHIBIT],
    "fleets/web/nodes": NODES,
    "fleets/web/turns": [TURN, {**TURN, "epoch": 7, "holder": "s3", "state": "revoked", "sequence": 41, "note": "its disk is full"}],
    "locks": LOCKS,
    "fleets/web/maintenance/events": [FREEZE, REBOOT],
    "tenants": [
        {
            "name": "shop",
            "uid": "0123456789abcdef",
            "durability": None,
            "limits": {"events_per_second": 100.0, "open_events": None},
            "created": AT,
        }
    ],
    "tenants/shop/keys": [
        {"prefix": "tsn_3ijpvmo2", "scopes": ["agent", "events"], "fleet": "web", "node": "s1", "note": "for [s1]", "created": AT}
    ],
    "tenants/shop/channels": [SHOP],
    "load": [{"minute": AT, "scheduled": 7}, {"minute": LATER, "scheduled": 1234}],
}
WHOLE = ("schedules/nightly/preview", "load")
"""Lists without pages."""
OVERVIEW = {
    "items": [
        {
            "fleet": "web",
            "urgency": "urgent",
            "needs": [
                {
                    "source": "leases",
                    "what": "unserved",
                    "count": 4,
                    "text": "4 partitions without an owner",
                    "subjects": ["1", "5", "6", "7"],
                    "since": AT,
                },
                {"source": "agents", "what": "silent", "count": 1, "text": "1 silent agent", "subjects": ["s3"], "since": None},
            ],
            "agents": 150,
            "open_events": 51,
        },
        {
            "fleet": "db",
            "urgency": "soon",
            "needs": [{"source": "approvals", "what": "waiting", "count": 2, "text": "2 approvals waiting", "subjects": [], "since": None}],
            "agents": 3,
            "open_events": 2,
        },
    ],
    "next": None,
    "fleets": 300,
    "quiet": 298,
    "in_maintenance": 2,
}
ONES = {
    "key": {"prefix": "tsn_abcd", "tenant": "demo", "scopes": ["events", "fleets"]},
    "fleet-overview": OVERVIEW,
    "events/order-17": DEAD,
    "stats": STATS,
    "fleets/web": FLEET,
    "fleets/web/leases/stale": STALE,
    "fleets/web/leases/plan": PLAN,
    "fleets/web/leases/1": LEASES[1],
    "locks/nightly": LOCKS[1],
    f"fleets/web/maintenance/events/{EVENT_ID}": FREEZE,
    "fleets/web/maintenance/events/reboot-1": REBOOT,
    "fleets/web/checkpoints/latest": {"epoch": 7, "node": "s3", "sequence": 41, "location": "/backup/41", "bytes": 616877809, "at": AT},
}


def answer(request: httpx.Request) -> httpx.Response:
    """The app."""
    url = urlsplit(str(request.url))
    path = url.path.removeprefix("/api/").removeprefix("v1/")
    if path == "readyz":
        return httpx.Response(200, json=READY)
    if "by" in parse_qs(url.query):
        path += "?by=server"
    found: Any = {"items": LISTS[path], **({} if path in WHOLE else {"next": None})} if path in LISTS else ONES[path]
    return httpx.Response(200, json=found)
