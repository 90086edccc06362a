"""Reports of a fleet that wait are served together, and end as if they had come one after the other."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pytest

from shared.core.clock import SettableClock, to_text
from shared.core.errors import Problem
from shared.engine.json_codec import TooLarge
from shared.maintenance import rules
from shared.maintenance.model import AgentReportIn
from shared.maintenance.rows import FleetEvents
from shared.maintenance.rule_settings import MaintenanceSettings
from shared.maintenance.service.reports import OtherFleets, ReceivedReport, ReportRounds, _node, _pause
from shared.maintenance.service.store import MaintenanceStore
from shared.maintenance.timings import FREE_ROWS, LONGEST_PAUSE
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, MAINTENANCE
from shared.storage.ports import MAX_EGT_ROWS, RowQuery

KEY = "t:db"
DOMAINS = 3
SETTINGS = MaintenanceSettings(lead=60_000, catch_up=60_000, guard="prepare")
PHASES = ("WAITING", "WAITING", "PREPARING", "PREPARED", "APPROVED", "STARTED", "RESTORING", "DONE")


class DefinedFleet(MaintenanceStore):
    """A store with a fleet at every key."""

    async def definition(self, key: str) -> Any:
        return key


class HeldPartitions:
    """Nodes with partitions, and the drains that were asked for."""

    def __init__(self, held: Mapping[str, int]) -> None:
        self._held, self.drains, self.looks = held, dict[str, bool](), 0

    async def held(self, key: str, nodes: Iterable[str]) -> Mapping[str, int]:
        self.looks += 1
        return {name: self._held[name] for name in nodes if name in self._held}

    async def leave(self, key: str, nodes: Mapping[str, bool], events: Mapping[str, Sequence[str]] | None = None) -> None:
        self.drains |= nodes

    def drained(self) -> set[str]:
        """Return the nodes that are drained now."""
        return {name for name, gone in self.drains.items() if gone}


class Side:
    """An app with its own storage."""

    def __init__(self, held: Mapping[str, int]) -> None:
        self.clock = SettableClock()
        self.tables = MemoryTables(self.clock)
        self.store, self.leases = DefinedFleet(self.tables, self.clock.now), HeldPartitions(held)
        self.rounds = ReportRounds(self.store, lambda fleet: SETTINGS, self.leases, OtherFleets(self.store, self.clock), clock=self.clock)

    async def serve(self, bodies: Sequence[AgentReportIn]) -> list[Any]:
        """Serve reports in as few rounds as it takes; return answers, and errors by their codes."""
        left, answers = [ReceivedReport("t", body, _node(body), None) for body in bodies], list[Any]()
        while left:
            found = (await self.rounds._serve(KEY, left)).answers
            answers += [each.code if isinstance(each, Problem) else each for each in found]
            left = left[len(found) :]
        return answers

    async def view(self) -> FleetEvents:
        return (await self.store.read(KEY, whole=True, old=True)).view


async def sides(held: Mapping[str, int], count: int = 2) -> list[Side]:
    made = [Side(held) for _ in range(count)]
    for side in made:
        await side.tables.ensure(ALL_TABLES)
    return made


def body(number: int, seq: int, phases: Mapping[str, str], on: Mapping[str, tuple[int, ...]], now: int, **more: Any) -> AgentReportIn:
    events = [
        {
            "event_id": event_id,
            "type": "Freeze",
            "status": "Started" if phase == "STARTED" else "Scheduled",
            "not_before": None if phase == "STARTED" else to_text(now + 100_000),
            "duration_s": 9,
            "resources": [f"vm_{each}" for each in on[event_id]],
            "phase": phase,
        }
        for event_id, phase in phases.items()
    ]
    fields = {"node": f"n{number}", "seq": seq, "vm": f"vm_{number}", "scope": "set", "fault_domain": str(number % DOMAINS)}
    return AgentReportIn.model_validate({**fields, "disabled": False, "events": events, **more})


def without_reasons(found: Any) -> Any:
    """Return answers without their texts: which of several nodes a reason names depends on the order in which they were read."""
    if isinstance(found, dict):
        return {name: without_reasons(value) for name, value in found.items() if name != "reason"}
    return [without_reasons(each) for each in found] if isinstance(found, list) else found


@pytest.mark.parametrize("seed", range(25))
async def test_a_round_ends_as_if_its_reports_came_one_after_the_other(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # A report that comes alone may leave to others what is due in the fleet.
    monkeypatch.setattr(rules, "needs_all_nodes", lambda *_: True)
    chance = random.Random(seed)
    nodes = chance.randint(2, 9)
    one, many = await sides({f"n{each}": 2 for each in range(nodes) if chance.random() < 0.3})
    on = {f"e{each}": tuple(sorted(chance.sample(range(nodes), chance.randint(1, 2)))) for each in range(4)}
    for seq in range(1, 6):
        bodies = []
        for number in chance.choices(range(nodes), k=chance.randint(1, 2 * nodes)):
            seen = {each: chance.choice(PHASES) if number in on[each] else "FOREIGN" for each in on if chance.random() < 0.8}
            caught_up = {"caught_up": True} if chance.random() < 0.3 else {}
            old = chance.choice((seq, seq, seq - 1)) or 1
            bodies.append(body(number, old, seen, on, one.clock.now(), disabled=chance.random() < 0.2, **caught_up))
        answers = [answer for each in bodies for answer in await one.serve([each])]
        assert without_reasons(answers) == without_reasons(await many.serve(bodies))
        assert await one.view() == await many.view()
        later = chance.choice((5, 40))
        await one.clock.advance(later)
        await many.clock.advance(later)
    for side in (one, many):
        assert {name for name, node in (await side.view()).nodes.items() if node.leaving} <= side.leases.drained()


async def test_many_reports_cost_few_reads_and_no_transaction_is_too_large() -> None:
    (side,) = await sides({}, 1)
    on = {f"e{each}": (each,) for each in range(20)}
    plain, sizes = side.tables.write, list[int]()

    async def write(table: str, pk: str, ops: Any) -> Any:
        sizes.append(len(ops))
        return await plain(table, pk, ops)

    side.tables.write = write  # type: ignore[method-assign]
    now = side.clock.now()
    # Every second event is on the node itself, so its phase is a step of a story.
    reports = [body(each, 1, {event: "WAITING" if each in on[event] else "FOREIGN" for event in on}, on, now) for each in range(60)]
    answers = await side.serve(reports)
    assert {type(answer) for answer in answers} == {dict}
    assert len((await side.view()).nodes) == 60 and max(sizes) <= MAX_EGT_ROWS
    assert sum(size > 1 for size in sizes) <= 8


async def test_nodes_of_a_wave_are_drained_together_and_the_others_are_not() -> None:
    (side,) = await sides({}, 1)
    on = {f"e{each}": (each,) for each in range(3)}
    now = side.clock.now()
    far = [body(each, 1, {f"e{each}": "WAITING"} if each < 3 else {}, on, now + 900_000) for each in range(4)]
    await side.serve(far)
    assert side.leases.drained() == set()
    await side.clock.advance(950)
    # The first agent reports. The partitions of the others must leave at the same time.
    await side.serve([body(0, 2, {"e0": "WAITING"}, on, now + 900_000)])
    assert side.leases.drained() == {"n0", "n1", "n2"}
    assert [node.leaving for _, node in sorted((await side.view()).nodes.items())] == [True, False, False, False]


async def test_a_new_node_that_has_prepared_is_held_while_it_has_partitions_whatever_was_read_before_for_others() -> None:
    (side,) = await sides({"n1": 1}, 1)
    on = {"e0": (0,), "e1": (1,)}
    now = side.clock.now()
    first, second = await side.serve([body(number, 1, {f"e{number}": "PREPARED"}, on, now) for number in (0, 1)])
    assert side.leases.looks == 1
    assert first["hold"] == []
    assert [each["event_id"] for each in second["hold"]] == ["e1"]
    alone, again = await side.serve([body(1, 2, {"e1": "PREPARED"}, on, now), body(1, 3, {"e1": "PREPARED"}, on, now)])
    assert alone["hold"] == again["hold"] != []


@pytest.mark.parametrize("error", [TooLarge("the row"), LookupError("a mistake")])
async def test_a_report_that_cannot_be_stored_or_served_is_refused_alone(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    (side,) = await sides({}, 1)
    plain_write, plain_receive = side.store.write, rules.receive

    async def write(key: str, read: Any, kept: Mapping[str, Any], reported: Any = None) -> bool:
        if "node:n1" in kept and isinstance(error, TooLarge):
            raise error
        return await plain_write(key, read, kept, reported)

    def receive(view: Any, report: Any, *others: Any) -> Any:
        if report.node == "n1" and not isinstance(error, TooLarge):
            raise error
        return plain_receive(view, report, *others)

    monkeypatch.setattr(side.store, "write", write)
    monkeypatch.setattr(rules, "receive", receive)
    now = side.clock.now()
    found = await asyncio.gather(
        *(side.rounds.report("t", "db", body(number, 1, {}, {}, now)) for number in range(3)), return_exceptions=True
    )
    assert [isinstance(each, Exception) for each in found] == [False, True, False]
    assert isinstance(found[1], Problem if isinstance(error, TooLarge) else LookupError)
    assert (await side.view()).nodes.keys() == {"n0", "n2"}


async def test_a_write_that_loses_is_decided_again_for_all_reports_of_the_round() -> None:
    (side,) = await sides({}, 1)
    other = ReportRounds(side.store, lambda fleet: SETTINGS, side.leases, OtherFleets(side.store, side.clock), clock=side.clock)
    on = {"e0": (0,), "e1": (1,)}
    now = side.clock.now()
    await asyncio.gather(*(side.rounds.report("t", "db", body(each, 1, {}, on, now)) for each in range(3)))
    waiting = [body(each, 2, {f"e{each}": "WAITING"}, on, now) for each in (0, 1)]
    answers = await asyncio.gather(side.rounds.report("t", "db", waiting[0]), other.report("t", "db", waiting[1]))
    # They are in two fault domains, of which one may be down.
    assert sorted(each["state"] for answer in answers for each in answer["permissions"]) == ["granted", "refused"]
    assert len((await side.view()).guard.reserved) == 1


def test_ten_instances_read_a_large_fleet_within_the_limit_of_its_partition_and_small_ones_never_wait() -> None:
    rows = 150 + 51 + 4
    assert 10 * rows / _pause(rows) < 2_000
    # A quarter for writes and single reads. A third of the nodes have an event each.
    for instances, nodes in ((10, 300), (3, 1_000)):
        rows = nodes + nodes // 3
        assert 1.25 * instances * rows / _pause(rows) <= 2_000
    assert _pause(FREE_ROWS) == 0
    assert _pause(10_000) == LONGEST_PAUSE < 5


@pytest.mark.parametrize(("nodes", "waits"), [(30, False), (90, True)])
async def test_only_a_large_fleet_has_a_pause_after_a_round_that_looked_at_its_leases(nodes: int, waits: bool) -> None:
    (side,) = await sides({"n1": 1}, 1)
    now = side.clock.now()
    await side.serve([body(each, 1, {}, {}, now) for each in range(nodes)])
    asking = body(1, 2, {"e1": "PREPARED"}, {"e1": (1,)}, now)
    served = await side.rounds._serve(KEY, [ReceivedReport("t", asking, _node(asking), None)])
    assert side.leases.looks == 1 and (served.pause > 0) is waits


async def test_a_missing_fleet_is_everybodys_404(monkeypatch: pytest.MonkeyPatch) -> None:
    (side,) = await sides({}, 1)

    async def nothing(key: str) -> None:
        return None

    monkeypatch.setattr(side.store, "definition", nothing)
    assert await side.serve([body(each, 1, {}, {}, side.clock.now()) for each in range(2)]) == ["not-found", "not-found"]
    assert not (await side.tables.query(RowQuery(MAINTENANCE, KEY))).rows
