"""One value or more of every kind that is stored, with the functions that encode it as a row's properties and parse them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import orjson

from shared.checkpoints.rows import Group, LatestCheckpoint, ReplicaRow, TurnRow, parse_group, parse_latest, parse_replica, parse_turn
from shared.checkpoints.selection import Share
from shared.core.errors import Problem
from shared.delivery.channels.model import HttpChannel, QueueChannel
from shared.delivery.flow import circuit_breaker, shared_limits
from shared.delivery.flow.circuit_breaker import Breaker
from shared.delivery.flow.rules import SlotShare
from shared.fleets.index import EndedFleet, entry_props, parse_ended, parse_entry
from shared.fleets.watch.alarms import Alarm
from shared.fleets.watch.orders import WatchedOrder
from shared.fleets.watch.rules import WatchState
from shared.fleets.watch.state import parse_watch_state, watch_state_props
from shared.leases.profiles import PROFILES, Profile
from shared.leases.protocol.takeover import order_props
from shared.leases.rows import (
    Fleet,
    HttpServerState,
    Intent,
    MoveLimits,
    Partition,
    Server,
    parse_fleet,
    parse_intent,
    parse_partition,
    parse_server,
)
from shared.leases.service.sweep_memory import LastPlan, last_plan_props, parse_last_plan
from shared.maintenance.rows import (
    AlarmsRow,
    ApprovalRow,
    EventHold,
    EventRow,
    GuardRow,
    MonitorsRow,
    NodeEntry,
    NodeRow,
    encode_row,
    parse_alarms,
    parse_event,
    parse_guard,
    parse_monitors,
    parse_node,
)
from shared.scheduler.ingest import rejects
from shared.scheduler.model import EventIn
from shared.scheduler.protocol.gate import Counts, Gate, parse_gate
from shared.scheduler.protocol.mirroring import Fence, parse_fence
from shared.scheduler.queries import ledger, totals
from shared.scheduler.recurring.definition import Definition, RevisionUndo, definition_of
from shared.scheduler.recurring.model import CatchUp, Recurrence
from shared.scheduler.rows import new_event, withdrawn
from shared.scheduler.rules import claim_props
from shared.storage.ports import Props, Row
from shared.tenants import channel_store
from shared.tenants import rows as tenant_rows
from shared.tenants.channel_store import StoredChannel
from shared.tenants.model import Tenant
from shared.tenants.rows import Home, KeyRow
from shared.tenants.rules import Generations

NOW = 1_795_256_515_250
"""Milliseconds."""


class Case(NamedTuple):
    """A value and its stored form. `parse` is None for properties that no function reads back as a value."""

    name: str
    value: Any
    encode: Callable[[Any], Props]
    parse: Callable[[Props], Any] | None = None


def cases() -> list[Case]:
    """Return all cases; their names are unique."""
    return [*_leases(), *_checkpoints(), *_maintenance(), *_scheduler(), *_tenants(), *_sweeps(), *_delivery()]


def _props(value: Any) -> Props:
    found: Props = value.props()
    return found


def _as_is(props: Props) -> Props:
    return props


def _row(rk: str, props: Props) -> Row:
    return Row("acme:f", rk, props, "", 0, 0)


def _last_plan(props: Props) -> LastPlan:
    return parse_last_plan(_row("", props)).value


def _index_entry(props: Props) -> tuple[int, bool]:
    entry = parse_entry(_row("acme:f", props))
    return entry.created, entry.ending


def _watch_state(props: Props) -> WatchState:
    return parse_watch_state(_row("", props)).value


def _leases() -> list[Case]:
    fleets = {
        "fleet": Fleet(16),
        "fleet with everything set": Fleet(
            24,
            Profile(2, 6, 7.2),
            MoveLimits(5, 3, 7, 2.5),
            3,
            4,
            5,
            2,
            '{"created":7,"checkpoints":{"every":"PT1H"}}',
            16,
            True,
        ),
        "fleet of whole seconds": Fleet(1, PROFILES["economy"], MoveLimits(drain=7)),
    }
    servers = {
        "server": Server("s1", "live", "i1", 1),
        "server with everything set": Server(
            "s-2.a",
            "draining",
            "i2",
            77,
            "fd1",
            12,
            0.75,
            (3, 1, 9999),
            (4,),
            False,
            "exit",
            (8, 7),
            3,
            (("s7", (5, 9)), ("s8", (12,))),
            "260",
            True,
            HttpServerState(((5, 9), (6, 10)), "5:15", "2:8", NOW, True),
        ),
        "server with a whole load": Server("s3", "dead", "", 0, load=3),
    }
    partitions = {
        "partition": Partition(0),
        "partition with everything set": Partition(42, "s1", "i1", 7, NOW, 3, True),
    }
    intents = {
        "intent": Intent("drain", server="s1"),
        "intent with a destination": Intent("drain", server="s1", note="a restart", author="key:ab12", created=NOW, to="s2"),
        "intent with everything set": Intent("pin", 5, "s1", 'a "note"', "key:ab12", NOW + 1, 9, True, NOW),
    }
    return [
        *(Case(name, value, _props, parse_fleet) for name, value in fleets.items()),
        *(Case(name, value, _props, lambda props, rk=f"s:{value.name}": parse_server(_row(rk, props))) for name, value in servers.items()),
        *(
            Case(name, value, _props, lambda props, rk=f"p:{value.number:05d}": parse_partition(_row(rk, props)))
            for name, value in partitions.items()
        ),
        *(Case(name, value, _props, parse_intent) for name, value in intents.items()),
        *(
            Case(name, (NOW, ending), lambda value: entry_props(value[0], ending=value[1]), _index_entry)
            for name, ending in (("index entry of a fleet", False), ("index entry of a fleet that ends", True))
        ),
        Case("ended fleet", EndedFleet(70, NOW), _props, parse_ended),
        Case("orders to a server", order_props((1, 2), (3,), 4), _as_is),
        Case("more orders than one row takes", order_props(range(1500), range(1200), 1), _as_is),
    ]


def _checkpoints() -> list[Case]:
    turn = TurnRow(
        epoch=9,
        holder="n1",
        state="timed-out",
        reason="limit",
        granted=NOW,
        timeout=1000,
        attempt=2,
        handed=NOW + 1,
        handed_seq=3,
        handed_life=4,
        handed_mono=5,
        handed_last=6,
        limit=7,
        sequence=8,
        ended=NOW + 9,
        note="too slow",
        author="key:ab12",
        late=True,
    )
    replicas = {
        "replica": ReplicaRow("n1", 1, 2, "secondary", 0, NOW, 5, 5),
        "replica with everything set": ReplicaRow(
            node="n1",
            life=3,
            seq=4,
            role="primary",
            term=5,
            at=NOW,
            mono=6,
            born=7,
            incarnation="i1",
            applied=8,
            lag=9,
            load=2,
            failures=10,
            last_checkpoint=11,
            taking=12,
            ready=False,
            first=(13, 14),
            second=(15, 16),
            fault="slow",
        ),
    }
    group = Group(turn, "n1", 2, 3, 4, (5, 6), (Share("n1", 0.1234567891, 2), Share("n2")), 7, NOW)
    return [
        Case("turn", TurnRow(), _props, parse_turn),
        Case("turn with everything set", turn, _props, parse_turn),
        Case("group", Group(), _props, parse_group),
        Case("group with everything set", group, _props, parse_group),
        *(Case(name, value, _props, lambda props: parse_replica(_row("replica:n1", props))) for name, value in replicas.items()),
        Case("latest checkpoint", LatestCheckpoint(9, "n1", 12, "https://a/b", 1 << 40, NOW), _props, parse_latest),
    ]


def _maintenance() -> list[Case]:
    entries = (
        NodeEntry("E1", "Reboot", "Scheduled", "WAITING"),
        NodeEntry("E2", "Freeze", "Started", "DONE", NOW, "User", 5, ("vm-1", "vm-2"), "a reason", 120, "ok"),
    )
    nodes = {
        "maintenance node": NodeRow("n1", "vm-1", "scope", 1, NOW),
        "maintenance node with everything set": NodeRow(
            "n1", "vm-1", "scope", 2, NOW, "westeurope", "fd1", "boot", 3, True, "/subscriptions/x", entries, NOW - 1, False, True
        ),
    }
    events = {
        "maintenance event": EventRow("E1", "scope", "Reboot", "scheduled", NOW),
        "maintenance event with everything set": EventRow(
            event_id="E1",
            scope="scope",
            type="Redeploy",
            status="completed",
            seen=NOW,
            not_before=NOW + 1,
            source="User",
            duration=9,
            resources=("vm-1", "vm-2"),
            started=NOW + 2,
            ended=NOW + 3,
            rehearsal=True,
            nodes=("n1",),
            phases={"n1": ("DONE", NOW)},
            observed={"n1": 250},
            listed=True,
            azure="completed",
            cleared=NOW + 4,
            returns=1,
            differs=NOW + 5,
            grant=ApprovalRow("g1", "fleet", "early", NOW, NOW + 6, "posted", "n1", NOW + 7, 2, 3, 429),
            hold=EventHold("h1", "key:ab12", "wait", NOW),
            alarms=("late n1",),
            told=("late n1", "gone"),
        ),
        "maintenance event of wide characters in several pieces": EventRow(
            "E2", "scope", "Freeze", "started", NOW, resources=("\N{ANCHOR}\U0001f4a5" * 9000,)
        ),
        "maintenance event in several pieces": EventRow("E3", "scope", "Freeze", "started", NOW, resources=("x" * 70_000,)),
    }
    return [
        *(Case(name, value, encode_row, lambda props: parse_node(_row("node:n1", props))) for name, value in nodes.items()),
        *(Case(name, value, encode_row, lambda props: parse_event(_row("event:e1", props))) for name, value in events.items()),
        Case("monitors", MonitorsRow(), encode_row, lambda props: parse_monitors(_row("monitors", props))),
        Case(
            "monitors with everything set",
            MonitorsRow("n1", "n2", 3, NOW, 4),
            encode_row,
            lambda props: parse_monitors(_row("monitors", props)),
        ),
        Case("reservations", GuardRow({"e1": NOW}), encode_row, lambda props: parse_guard(_row("guard", props))),
        Case("alarms of maintenance", AlarmsRow(("a", "b"), ("c",)), encode_row, lambda props: parse_alarms(_row("alarms", props))),
    ]


def _scheduler() -> list[Case]:
    body = b'{"a":"\xc3\xa9","n":1.50}'
    full = EventIn(
        id="mine",
        delay="PT5S",
        payload=None,
        channel="c",
        expires="PT1H",
        flex="PT1M",
        retry={"attempts": 3, "first": "PT2S"},
        labels={"team": "a"},
    )
    definition = Definition("acme", "nightly", "u1", Recurrence(cron="30 2 * * *"), body, NOW, "nonce", NOW - 250)
    everything = Definition(
        tenant="acme",
        id="nightly",
        uid="u1",
        spec=Recurrence(every="PT1H", jitter="PT5M", start="2026-11-21T10:00:00Z", catch_up=CatchUp(policy="all"), channel="c"),
        body=b'"' + b"x" * 20_000 + b'"',
        created=NOW,
        by="nonce",
        done=NOW - 250,
        revision=3,
        paused=True,
        deleted=True,
        burnt=NOW - 1250,
        ahead=(1_795_256_516_000, 1_795_256_517_000),
        taken=(1_795_256_514_000,),
        last=1_795_256_513_000,
        undo=RevisionUndo(2, NOW - 250, (1_795_256_516_000,), True),
        pointer="n:202611211022:acme:nightly",
        api="bigben",
    )

    paused = replace(everything, deleted=False, paused_at=NOW - 5000, gaps=((NOW - 9000, NOW - 100), (NOW - 50, NOW + 1)))

    def parse(props: Props) -> Definition:
        return definition_of(Row("00", "d:acme:nightly", props, "", 0, 0))

    return [
        Case("event", new_event(EventIn(due="2026-11-21T10:21:55.255Z", payload=None), body, NOW).props, _as_is),
        Case("event with everything set", new_event(full, body, NOW, "mirrored", NOW - 100, 30).props, _as_is),
        Case("event of two chunks", new_event(full, b'"' + b"y" * 16_500 + b'"', NOW).props, _as_is),
        Case("cancelled event that was not stored yet", withdrawn("mine", NOW - 5, NOW + 5, NOW, "nonce").props, _as_is),
        Case("claim of an event", claim_props({"state": "scheduled", "due": NOW}, 7), _as_is),
        Case("claim of an event that was tried", claim_props({"state": "retrying", "due": NOW, "tries": 2, "next": NOW}, 7), _as_is),
        Case("gate", Gate("open", "w1"), _props, parse_gate),
        Case(
            "gate with everything set",
            Gate("owned", "o1", 7, 1234, "i:1", "202611211022", Counts(9, 1, 2, 3, 1, 1, 1)),
            _props,
            parse_gate,
        ),
        Case("gate of an owner with a process", Gate("owned", "o1", 7, process="o1 0123456789abcdef 4711 1989831"), _props, parse_gate),
        Case("fence of the mirror", Fence(), _props, lambda props: parse_fence(_row("mirror", props))),
        Case("fence of the mirror with everything set", Fence("second", 7, True), _props, lambda props: parse_fence(_row("mirror", props))),
        Case("schedule", definition, _props, parse),
        Case("schedule with everything set", everything, _props, parse),
        Case("paused schedule with gaps", paused, _props, parse),
        Case(
            "totals of a tenant",
            totals._TotalRow(Counts(9, 4, 1, 2, 1, 1, 0), {"a": ledger.DeliveryFigures({3: 4}, 9, 20, 2)}, ["n:1", "n:2"]),
            totals._TOTAL.encode,
            totals._TOTAL.decode,
        ),
        Case("chain of a new schedule", definition.chain_props(), _as_is),
        Case("chain of a schedule", everything.chain_props(), _as_is),
        Case(
            "ledger entry",
            ledger.entry_for(
                [
                    _row("e1", {"state": "delivered", "channel": "a", "late": 7}),
                    _row("e2", {"state": "delivered", "channel": "a"}),
                    _row("e3", {"state": "dead", "channel": "b"}),
                    _row("e4", {"state": "cancelled", "channel": "b"}),
                ],
                NOW,
            ),
            _as_is,
        ),
        Case(
            "rejected message",
            rejects._props("queue", rejects.RefusedMessage(Problem(422, "invalid", "no"), "te\0xt" * 9000, "s" * 300, NOW), NOW + 1),
            _as_is,
        ),
    ]


def _tenants() -> list[Case]:
    http = HttpChannel(type="http", url="https://a.example/b", headers={"x": "y"}).model_copy(update={"timeout": 5000})
    channel = StoredChannel("c", "u1", http, NOW, Generations(NOW), False, "")
    broken = Breaker("half-open", NOW, NOW + 1, 2, 3, "i1", "status 500")
    everything = StoredChannel("c", "u1", http, NOW, Generations(NOW, NOW + 1, NOW - 1, NOW + 2), True, "why", NOW + 3, broken)
    tenant = {"durability": "fast", "limits": {"open_events": 9}, "retry": {"schedule": ["PT1S", "PT1M"], "within": "PT1H"}}
    lookup = KeyRow("acme", "u1", "tsn_ab12", ("events", "fleets"), NOW)
    keys = {"key": lookup, "key of a node in the list": lookup._replace(scopes=("agent",), fleet="f", node="n", digest="00ff", note="why")}
    queue = StoredChannel("c", "u1", QueueChannel(type="queue", queue="mine"), NOW, Generations(), False, "")

    def parse(props: Props) -> StoredChannel:
        return channel_store._stored(_row("channel:c", props))

    return [
        *(
            Case(name, value, _props, lambda props: tenant_rows.home_of(_row("acme", props)))
            for name, value in {
                "tenant": Home("acme", "u1", Tenant(), NOW, ""),
                "tenant that has gone": Home("acme", "u1", Tenant.model_validate(tenant), NOW, "", True, True),
            }.items()
        ),
        *(Case(name, value, _props, lambda props: tenant_rows.key_of(_row("k", props))) for name, value in keys.items()),
        Case("channel", channel, _props, parse),
        Case("channel with everything set", everything, _props, parse),
        Case("queue channel", queue, _props, parse),
    ]


def _sweeps() -> list[Case]:
    watched = WatchState(
        "seen",
        NOW,
        {"silent": NOW - 1},
        {"silent": Alarm("silent", NOW, ("s1", "s2"), 2, 0, NOW + 1)},
        3,
        4,
    )
    return [
        Case("what a plan remembers", LastPlan(), last_plan_props, _last_plan),
        Case("what a plan remembers with everything set", LastPlan("s", True, NOW), last_plan_props, _last_plan),
        Case("what a plan remembers of an idle fleet", LastPlan("s", True, NOW, NOW + 1, 3), last_plan_props, _last_plan),
        Case("what the watch remembers", WatchState(), watch_state_props, _watch_state),
        Case(
            "what the watch remembers of orders",
            replace(watched, orders={"s1": WatchedOrder("take 2", NOW)}),
            watch_state_props,
            _watch_state,
        ),
        Case("what the watch remembers with everything set", watched, watch_state_props, _watch_state),
    ]


def _delivery() -> list[Case]:
    parts = {"i1": SlotShare(1, 2, NOW), "i2": SlotShare(0, 0, NOW + 1)}
    opened = Breaker("open", NOW, NOW + 1, 2, 3, "", "status 500")
    return [
        Case(
            "parts of a shared limit", parts, lambda v: {"parts": shared_limits._text(v)}, lambda p: shared_limits._parse(str(p["parts"]))
        ),
        Case(
            "no parts of a shared limit", {}, lambda v: {"parts": shared_limits._text(v)}, lambda p: shared_limits._parse(str(p["parts"]))
        ),
        Case("circuit breaker", opened, lambda v: {"breaker": v.text()}, lambda p: circuit_breaker.parse(str(p["breaker"]))),
        Case("closed circuit breaker", Breaker(), lambda v: {"breaker": v.text()}, lambda p: circuit_breaker.parse(str(p["breaker"]))),
        Case("figures of channels", ledger.pack({"a": ledger.DeliveryFigures({3: 4, 1: 2}, 9, 20, 1)}), lambda text: {"late": text}, None),
        Case("counts of alarms", orjson.dumps(Counter(late=2), option=orjson.OPT_SORT_KEYS).decode(), lambda text: {"alarms": text}, None),
    ]
