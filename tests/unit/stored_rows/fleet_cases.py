"""Cases of the rows of fleets: leases, the watch, checkpoints and maintenance."""

from __future__ import annotations

from dataclasses import replace

from shared.checkpoints.rows import Group, LatestCheckpoint, ReplicaRow, TurnRow, parse_group, parse_latest, parse_replica, parse_turn
from shared.checkpoints.selection import Share
from shared.fleets.index import EndedFleet, entry_props, parse_ended, parse_entry
from shared.fleets.watch.alarms import Alarm
from shared.fleets.watch.orders import WatchedOrder
from shared.fleets.watch.rules import WatchState
from shared.fleets.watch.state import parse_watch_state, watch_state_props
from shared.leases.loads import join_loads
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
from shared.locks.rows import EndedAttempt, LockRow, Waiter, mark_of, parse_lock
from shared.maintenance.latency import Latencies, LatencyBound
from shared.maintenance.rows import (
    AlarmsRow,
    ApprovalRow,
    EventHold,
    EventRow,
    GuardRow,
    MonitorsRow,
    NodeEntry,
    NodeRow,
    ProbeRun,
    encode_row,
    parse_alarms,
    parse_event,
    parse_guard,
    parse_monitors,
    parse_node,
)
from shared.maintenance.story import StoryRow, StoryStep, encode_story, parse_story
from shared.storage.ports import Props, Row

from .case import NOW, Case, as_is, props_of, row_of


def fleet_cases() -> list[Case]:
    """Return the cases of fleets, leases, checkpoints and maintenance."""
    return [*_leases(), *_locks(), *_checkpoints(), *_maintenance(), *_sweeps()]


def _last_plan(props: Props) -> LastPlan:
    return parse_last_plan(row_of("", props)).value


def _index_entry(props: Props) -> tuple[int, bool]:
    entry = parse_entry(row_of("acme:f", props))
    return entry.created, entry.ending


def _watch_state(props: Props) -> WatchState:
    return parse_watch_state(row_of("", props)).value


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
        "server without loads of partitions": Server("s4", "live", "i1", 1, loads=""),
        "server with loads of partitions": Server("s5", "live", "i1", 1, loads=join_loads(2, {0: 0.0, 5: 12.5, 9999: 1e6})),
    }
    servers["server that speaks HTTP and has released a partition"] = Server(
        "s6", "live", "i1", 3, scans=False, http=HttpServerState(((5, 9),), "5:15", "1:8", released=NOW)
    )
    servers["server with an endpoint"] = Server("s7", "live", "i1", 1, endpoint="https://10.2.0.7:8443")
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
        *(Case(name, value, props_of, parse_fleet) for name, value in fleets.items()),
        *(
            Case(name, value, props_of, lambda props, rk=f"s:{value.name}": parse_server(row_of(rk, props)))
            for name, value in servers.items()
        ),
        *(
            Case(name, value, props_of, lambda props, rk=f"p:{value.number:05d}": parse_partition(row_of(rk, props)))
            for name, value in partitions.items()
        ),
        *(Case(name, value, props_of, parse_intent) for name, value in intents.items()),
        *(
            Case(name, (NOW, ending), lambda value: entry_props(value[0], ending=value[1]), _index_entry)
            for name, ending in (("index entry of a fleet", False), ("index entry of a fleet that ends", True))
        ),
        Case("ended fleet", EndedFleet(70, NOW), props_of, parse_ended),
        Case("orders to a server", order_props((1, 2), (3,), 4), as_is),
        Case("more orders than one row takes", order_props(range(1500), range(1200), 1), as_is),
    ]


def _locks() -> list[Case]:
    waiters = (Waiter("web-2", "n2", 10_000, NOW, NOW - 5), Waiter('ä "b"', "", 2000, NOW + 1, NOW))
    locks = {
        "lock": LockRow(NOW, "held", "web-1", "n1", 30_000, NOW),
        "lock with everything set": LockRow(NOW + 7, "revoked", "web-1", "n1", 30_000, NOW, NOW + 1, waiters, "it hangs", "tk_ab12"),
        "lock that remembers ended attempts": LockRow(
            NOW, "free", "", "", 0, NOW, NOW + 1, ended=(EndedAttempt(mark_of("web-1", "n1"), NOW), EndedAttempt(mark_of("ä", ""), NOW + 9))
        ),
        "lock that is free": LockRow(NOW, "free", "web-1", "", 2000, NOW, NOW + 1),
    }
    return [Case(name, value, props_of, lambda props: _lock(row_of("nightly", props))) for name, value in locks.items()]


def _lock(row: Row) -> LockRow:
    """Return the lock as it is stored: `parse_lock` puts the row's own time in the place of 0."""
    found = parse_lock(row)
    return found if row.props["renewed"] else replace(found, renewed=0)


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
        Case("turn", TurnRow(), props_of, parse_turn),
        Case("turn with everything set", turn, props_of, parse_turn),
        Case("group", Group(), props_of, parse_group),
        Case("group with everything set", group, props_of, parse_group),
        *(Case(name, value, props_of, lambda props: parse_replica(row_of("replica:n1", props))) for name, value in replicas.items()),
        Case("latest checkpoint", LatestCheckpoint(9, "n1", 12, "https://a/b", 1 << 40, NOW), props_of, parse_latest),
    ]


def _maintenance() -> list[Case]:
    entries = (
        NodeEntry("E1", "Reboot", "Scheduled", "WAITING"),
        NodeEntry("E2", "Freeze", "Started", "DONE", NOW, "User", 5, ("vm-1", "vm-2"), "a reason", 120, "ok"),
    )
    nodes = {
        "maintenance node": NodeRow("n1", "vm-1", "scope", 1, NOW),
        "maintenance node with everything set": NodeRow(
            "n1", "vm-1", "scope", 2, NOW, "westeurope", "fd1", "boot", 3, True, "/subscriptions/x", entries, NOW - 1, False, True, "ready"
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
            probes={"n2": ProbeRun("run.1", {"before": Latencies({"13": 60}), "one_node": Latencies({"13": 9, "40": 1}, 2, 1)})},
            bound=LatencyBound(250, 0.01),
            caught_up={"n1": 12_000},
        ),
        "maintenance event of wide characters in several pieces": EventRow(
            "E2", "scope", "Freeze", "started", NOW, resources=("\N{ANCHOR}\U0001f4a5" * 9000,)
        ),
        "maintenance event in several pieces": EventRow("E3", "scope", "Freeze", "started", NOW, resources=("x" * 70_000,)),
    }
    steps = (StoryStep(NOW, 7, "agent_prepared", "the node is prepared", "agent", True, -9), StoryStep(NOW, 8, "a", "t", "app"))
    return [
        *(Case(name, value, encode_row, lambda props: parse_node(row_of("node:n1", props))) for name, value in nodes.items()),
        *(Case(name, value, encode_row, lambda props: parse_event(row_of("event:e1", props))) for name, value in events.items()),
        Case("monitors", MonitorsRow(), encode_row, lambda props: parse_monitors(row_of("monitors", props))),
        Case(
            "monitors with everything set",
            MonitorsRow("n1", "n2", 3, NOW, 4),
            encode_row,
            lambda props: parse_monitors(row_of("monitors", props)),
        ),
        Case("reservations", GuardRow({"e1": NOW}), encode_row, lambda props: parse_guard(row_of("guard", props))),
        *(
            Case(name, value, encode_story, parse_story)
            for name, value in {
                "story of an event": StoryRow("e1"),
                "story of a node with everything set": StoryRow("e1", "n1", steps, 3),
            }.items()
        ),
        Case("alarms of maintenance", AlarmsRow(("a", "b"), ("c",)), encode_row, lambda props: parse_alarms(row_of("alarms", props))),
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
