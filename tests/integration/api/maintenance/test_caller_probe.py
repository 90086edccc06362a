"""The caller probe over HTTP: who probes, in which phase probes count, and what an event's history says about callers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.texts import assert_text
from tests.unit.scheduler.harness import World

from .agents import DB, EVENT, MAKE, OTHER, Agent, all_report, event, tick

URL = "https://db.example/ping"
PROBE = {"url": URL, "bound": {"p99_ms": 250, "failures": 0.01}}
QUICK, SLOW = 20, 48
"""Buckets that end at 3.2 ms and 410 ms."""


@pytest.fixture
async def db(world: World) -> World:
    assert (await world.demo.put(DB, MAKE | {"maintenance": {"catch_up": "PT5M", "guard": "approve", "probe": PROBE}})).status == 201
    return world


class Prober(Agent):
    """An agent that can run the fleet's caller probe. `answers`: what it has counted so far."""

    def __init__(self, world: World, node: str, domain: str) -> None:
        super().__init__(world.demo, node, domain)
        self.answers: dict[str, dict[str, Any]] = {}
        self.run = "run-1"

    def body(self, **fields: Any) -> dict[str, Any]:
        return super().body(probe={"state": "ready", "run": self.run, "events": self.answers}, **fields)

    async def asked(self) -> dict[str, str]:
        """Send a report. Return the events to probe for, with their phases."""
        found: dict[str, str] = (await self.reports()).get("probe", {}).get("events", {})
        return found

    def count(self, event_id: str, phase: str, bucket: int, number: int = 1, failures: int = 0) -> None:
        found = self.answers.setdefault(event_id, {}).setdefault(phase, {"buckets": {}, "failures": 0, "slow": 0})
        found["buckets"][str(bucket)] = found["buckets"].get(str(bucket), 0) + number
        found["failures"] += failures
        found["slow"] += number * (bucket == SLOW)


def probers(world: World, **domains: str) -> list[Prober]:
    return [Prober(world, name, domain) for name, domain in domains.items()]


async def rehearse(world: World, *nodes: str) -> str:
    made = await world.demo.post(f"{DB}/maintenance/rehearse", {"nodes": list(nodes), "type": "Freeze", "notice": "PT1M"})
    assert made.status == 202, made
    event_id: str = made.json()["event_id"]
    return event_id


async def test_a_rehearsal_measures_each_phase_and_fails_if_a_bound_is_passed(db: World) -> None:
    a, b, c, d = nodes = probers(db, a="0", b="0", c="1", d="2")
    await all_report(*nodes)
    told = (await a.reports())["settings"]["probe"]
    assert told == {"url": URL, "every_ms": 1000, "timeout_ms": 5000, "slow_ms": 250}
    made = await rehearse(db, "a", "b")
    # Nodes wait until there is something to compare with.
    assert (await a.reports())["rehearsals"] == [] and await a.asked() == {}
    assert [await each.asked() for each in (c, d)] == [{made: "before"}, {made: "before"}]
    c.count(made, "before", QUICK, 60)
    assert await c.asked() == {made: "before"}
    assert [each["event_id"] for each in (await a.reports())["rehearsals"]] == [made]

    for node in (a, b):
        node.disabled = True
        node.sees("PREPARED", made)
    await all_report(a, b)
    assert await c.asked() == {made: "out"}
    c.count(made, "out", QUICK, 30)
    a.disabled = False
    await a.sees_no_more(made).reports()
    assert await c.asked() == {made: "out"}, "the other one is still out"
    b.disabled = False
    await b.sees_no_more(made).reports()
    # It is over for the agents, and goes on for callers.
    assert (await event(db.demo, made))["status"] == "completed"
    assert await c.asked() == {made: "domain"}
    c.count(made, "domain", QUICK, 95)
    c.count(made, "domain", SLOW, 5)
    await db.clock.advance(12)
    await a.reports(caught_up=True)
    assert await c.asked() == {made: "one_node"}
    c.count(made, "one_node", QUICK, 40)
    assert (await event(db.demo, made))["probe"]["verdict"] == "pending"
    await db.clock.advance(8)
    await b.reports(caught_up=True)
    assert await c.asked() == {}

    found = await event(db.demo, made)
    assert found["catch_up_ms"] == {"a": 12_000, "b": 20_000}
    assert_text("latency.passed-p99", found["probe"].pop("passed"), p99=410, most=250)
    assert found["probe"] == {
        "verdict": "passed",
        "bound": {"p99_ms": 250, "failures": 0.01},
        "phases": {
            "before": {"probes": 60, "failures": 0, "p50_ms": 3.2, "p99_ms": 3.2},
            "out": {"probes": 30, "failures": 0, "p50_ms": 3.2, "p99_ms": 3.2},
            "one_node": {"probes": 40, "failures": 0, "p50_ms": 3.2, "p99_ms": 3.2},
            "domain": {"probes": 100, "failures": 0, "p50_ms": 3.2, "p99_ms": 409.6},
        },
        "nodes": ["c"],
    }
    assert found["alarms"] == ["callers-affected"]
    await db.clock.advance(3_700)
    await tick(db, "stale_scan")
    assert (await event(db.demo, made))["alarms"] == []


async def test_an_event_of_azure_counts_calm_times_only_as_before_and_shares_no_phase_with_another(db: World) -> None:
    a, b, c, d = nodes = probers(db, a="0", b="1", c="2", d="3")
    await all_report(*nodes)
    for each in nodes:
        each.sees("WAITING" if each is a else "FOREIGN", on=("a",), notice=300_000)
        each.sees("WAITING" if each is b else "FOREIGN", OTHER, on=("b",), notice=300_000)
    await all_report(*nodes)
    assert [await each.asked() for each in (c, d)] == [{EVENT: "before", OTHER: "before"}] * 2
    a.disabled = True
    a.sees("STARTED", status="Started")
    await a.reports()
    # Callers notice that a is away: this is no calm time for the event of b.
    assert await c.asked() == {EVENT: "out"}
    c.count(EVENT, "out", QUICK, 9, failures=1)
    await c.reports()
    # A process that starts again counts from 0.
    c.run, c.answers = "run-2", {}
    c.count(EVENT, "out", QUICK, 5)
    # Repeated and late reports change nothing.
    await c.reports()
    await c.reports()
    found = (await event(db.demo))["probe"]
    assert (found["verdict"], found["phases"]) == ("pending", {"out": {"probes": 15, "failures": 1, "p50_ms": 3.2, "p99_ms": 3.2}})
    assert_text("latency.passed-failures", found["passed"], failed=1, probes=15, share="6.7%", bound="1.0%")


async def test_what_callers_notice_of_a_later_event_on_a_node_is_not_counted_for_the_one_before(world: World) -> None:
    """No hook says when a node has caught up, so that only time ends it."""
    probe = {"partitions": 1, "maintenance": {"catch_up": "PT30S", "guard": "approve", "probe": PROBE}}
    assert (await world.demo.put(DB, probe)).status == 201
    a, b, c = nodes = probers(world, a="0", b="1", c="2")
    await all_report(*nodes)

    async def goes_through(event_id: str, bucket: int) -> None:
        for each in nodes:
            each.sees("WAITING" if each is a else "FOREIGN", event_id, on=("a",), notice=60_000)
        await all_report(*nodes)
        a.disabled = True
        for each in nodes:
            each.sees("STARTED" if each is a else "FOREIGN", event_id, on=("a",), status="Started")
        await all_report(*nodes)
        asked = await c.asked()
        assert asked[event_id] == "out"
        for each in asked:
            c.count(each, asked[each], bucket, 200)
        await c.reports()
        for each in (b, c):
            del each.entries[event_id]
            await each.reports()
        await a.sees("RESTORING", event_id, on=("a",)).reports()
        a.disabled = False
        await a.sees_no_more(event_id).reports()
        asked = await c.asked()
        assert asked[event_id] == "one_node"
        for each in asked:
            c.count(each, asked[each], bucket, 50)
        await c.reports()

    await goes_through(EVENT, QUICK)
    await world.clock.advance(45)
    before = await event(world.demo)
    assert (before["status"], before["probe"]["verdict"], before["alarms"]) == ("completed", "within", [])
    await goes_through(OTHER, SLOW)
    assert (await event(world.demo))["probe"] == before["probe"]
    assert (await event(world.demo))["alarms"] == []
    assert (await event(world.demo, OTHER))["alarms"] == ["callers-affected"]


async def test_an_event_far_ahead_is_not_probed_yet(db: World) -> None:
    (a, b) = nodes = probers(db, a="0", b="1")
    a.sees("WAITING", notice=3_600_000)
    b.sees("FOREIGN", on=("a",), notice=3_600_000)
    await all_report(*nodes)
    assert await b.asked() == {} and "probe" not in await event(db.demo)


async def test_agents_that_cannot_probe_are_passed_over_and_a_rehearsal_does_not_wait_for_ever(db: World) -> None:
    former, refusing = Agent(db.demo, "a", "0"), Agent(db.demo, "b", "1")
    reason = "probe.hosts of the node's file does not list db.example"
    refusing.fields = {"probe": {"state": reason}}
    await all_report(former, refusing)
    seen = [(await db.demo.get(f"{DB}/nodes/{agent.node}")).json()["maintenance"].get("probe") for agent in (former, refusing)]
    assert seen == [None, reason]
    made = await rehearse(db, "a")
    for agent in (former, refusing):
        answer = await agent.reports()
        assert "probe" not in answer and answer["rehearsals"] == []
    await db.clock.advance(361)
    assert [each["event_id"] for each in (await former.reports())["rehearsals"]] == [made]
    former.sees("WAITING", made)
    await former.reports()
    await former.sees_no_more(made).reports()
    found = await event(db.demo, made)
    assert (found["status"], found["probe"]["verdict"], found["probe"]["phases"]) == ("completed", "not-measured", {})


async def test_a_fleet_without_a_probe_is_as_before(world: World) -> None:
    assert (await world.demo.put(DB, MAKE)).status == 201
    (a,) = probers(world, a="0")
    answer = await a.reports()
    assert "probe" not in answer and "probe" not in answer["settings"]
    made = await rehearse(world, "a")
    assert [each["event_id"] for each in (await a.reports())["rehearsals"]] == [made]


@pytest.mark.parametrize(
    ("probe", "pointer", "text"),
    [
        ({}, "/maintenance/probe", "set either url or command"),
        ({"url": URL, "command": "reads"}, "/maintenance/probe", "set either url or command"),
        ({"url": "ftp://db.example"}, "/maintenance/probe/url", "expected an http or https address"),
        ({"url": "https://user:secret@db.example/"}, "/maintenance/probe/url", "expected an http or https address"),
        ({"command": "rm -rf /"}, "/maintenance/probe/command", "a name: 1 to 64 of letters"),
        ({"command": "reads", "every": "PT0.1S"}, "/maintenance/probe/every", ""),
        ({"command": "reads", "every": "PT0.5S", "timeout": "PT5S"}, "/maintenance/probe", "timeout is more than 8 times every"),
        ({"command": "reads", "bound": {"failures": 1.5}}, "/maintenance/probe/bound/failures", ""),
    ],
)
async def test_a_wrong_probe_is_refused_with_its_place(world: World, probe: dict[str, Any], pointer: str, text: str) -> None:
    answer = await world.demo.put(DB, MAKE | {"maintenance": {"probe": probe}})
    assert answer.status == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer and text in error["detail"]
    assert "secret" not in str(answer.json())


@pytest.mark.parametrize(
    "probe",
    [
        {"state": ""},
        {"state": "ready", "events": {f"e{number}": {} for number in range(9)}},
        {"state": "ready", "events": {EVENT: {"later": {}}}},
        {"state": "ready", "events": {EVENT: {"out": {"buckets": {"78": 1}}}}},
        {"state": "ready", "events": {EVENT: {"out": {"buckets": {"1": -1}}}}},
        {"state": "ready", "events": {EVENT: {"out": {"failures": 2**31}}}},
    ],
)
async def test_results_beyond_their_limits_are_refused(db: World, probe: dict[str, Any]) -> None:
    answer = await Agent(db.demo, "a", "0").report(probe=probe)
    assert answer.status == 422 and answer.json()["errors"][0]["pointer"].startswith("/probe")
