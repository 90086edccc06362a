"""The circuit breaker as its users see it: through HTTP and over instances."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown
from shared.delivery import circuit_breaker
from shared.delivery.channels.ports import Verdict
from shared.delivery.flow import rules

from ..harness import World
from .flowing import AGAIN, DEFAULT, DELIVERED, HTTP, Instances, batch, channel, flow, states


async def test_dead_receiver_opens_the_breaker_and_its_events_wait_untouched(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.receiver.otherwise, world.receiver.takes = Verdict("retry", None, "no connection"), 0.001
    await batch(world, 200)
    await world.run(9)
    shown = await flow(world)
    assert (shown["breaker"], shown["error"]) == ("open", "no connection")
    assert shown["since"].startswith("2027-01-15T08:00:05") and shown["failures"] >= 5
    assert len(world.receiver.received) <= 2 * rules.FIRST_WINDOW
    untouched = [row for row in world.events() if row.props["state"] == "scheduled"]
    assert len(untouched) >= 190 and {row.props.get("tries", 0) for row in untouched} == {0}
    [warning] = [record for record in caplog.records if getattr(record, "action", "") == "breaker_opened"]
    assert "demo/default" in warning.message
    await world.run(600, step=1)
    assert len(world.receiver.received) <= 2 * rules.FIRST_WINDOW + 10, "one probe at a time, ever more seldom"
    assert (await flow(world))["breaker"] in ("open", "half-open")
    world.receiver.otherwise = DELIVERED
    await world.run(300, step=1)
    assert states(world) == {"delivered": 200}
    assert await flow(world) == {"breaker": "closed"}
    counters = world.app.scheduler.counters
    assert counters["breaker_opened"] == counters["breaker_closed"] == 1 and counters["breaker_reopened"] >= 4


async def test_while_it_is_open_attempts_are_not_used_up(world: World) -> None:
    world.receiver.otherwise = AGAIN
    await batch(world, 30, retry={"attempts": 2, "first": "PT1S", "max": "PT1S"})
    await world.run(300, step=1)
    world.receiver.otherwise = DELIVERED
    await world.run(200, step=1)
    found = states(world)
    assert found["delivered"] >= 20, "two attempts each would have been over after seconds"
    assert found["delivered"] + found.get("dead", 0) == 30


async def test_failed_probe_costs_its_event_no_attempt(world: World) -> None:
    world.receiver.otherwise = AGAIN
    await batch(world, 5, retry={"attempts": 6, "first": "PT1S", "max": "PT1S"})
    await world.run(8)
    assert (await flow(world))["breaker"] == "open"
    probed = await world.demo.create(due="2027-01-15T08:00:08Z", retry={"attempts": 1})
    await world.run(1_200, step=1)
    probes = world.receiver.of(probed["id"])
    assert len(probes) >= 1 and all(got.target.breaker.state == "half-open" for got in probes)
    [row] = [row for row in world.events() if row.props["id"] == probed["id"]]
    assert (row.props["state"], row.props["failed"], row.props["free"]) == ("retrying", 0, len(probes))
    world.receiver.otherwise = DELIVERED
    await world.run(300, step=1)
    assert states(world) == {"delivered": 6}


async def test_refusals_of_single_events_do_not_open_it(world: World) -> None:
    made = await batch(world, 60)
    for number, event in enumerate(made):
        if number % 4:
            world.receiver.script(event, Verdict("final", 422, "answered 422"))
    await world.run(20)
    assert await flow(world) == {"breaker": "closed"}
    assert states(world) == {"dead": 45, "delivered": 15}


async def test_an_event_that_has_not_failed_yet_makes_the_probe(world: World) -> None:
    for event in await batch(world, 5, retry={"first": "PT1S", "max": "PT1S"}):
        world.receiver.script(event, AGAIN)
    await world.run(6)
    assert (await flow(world))["breaker"] == "open"
    fresh = await world.demo.create(due="2027-01-15T08:00:08Z")
    await world.run(14)
    [got] = world.receiver.of(fresh["id"])
    assert got is world.receiver.received[5] and got.verdict.outcome == "delivered", "it came first, though it is in another shard"
    assert world.app.scheduler.counters["breaker_closed"] == 1


async def test_one_instance_probes_for_all(two: Instances) -> None:
    two.receiver.otherwise = AGAIN
    await batch(two, 100)
    await two.run(8)
    first = len(two.receiver.received)
    shown = await flow(two)
    assert shown["breaker"] == "open"
    await two.clock.advance(10)
    asked = await two.do(asyncio.wait_for(_all_hold(two), 60))
    assert sorted(hold.room for hold in asked) == [0, 0, 0, 1]
    assert len(two.receiver.received) == first
    assert (await flow(two))["breaker"] == "half-open"


async def _all_hold(two: Instances) -> list[Any]:
    flows = [app.scheduler.flow for app in two.apps]
    found = await asyncio.gather(*(each.holds(object(), "demo", {"default": 5}, bool) for each in (*flows, *flows)))
    return [each["default"] for each in found]


async def test_probe_whose_instance_dies_is_made_by_another(two: Instances) -> None:
    two.receiver.otherwise = AGAIN
    await batch(two, 50)
    await two.run(8)
    await two.clock.advance(10)
    mine, other = two.apps[0].scheduler.flow, two.apps[1].scheduler.flow
    assert (await mine.holds(object(), "demo", {"default": 1}, bool))["default"].room == 1
    assert (await other.holds(object(), "demo", {"default": 1}, bool))["default"].room == 0
    await two.clock.advance(circuit_breaker.PROBE_LEASE / 1000 + 10)
    assert (await other.holds(object(), "demo", {"default": 1}, bool))["default"].room == 1


async def test_another_address_or_a_resume_closes_it(world: World) -> None:
    for turn in ("put", "resume"):
        world.receiver.otherwise = AGAIN
        await world.demo.post("/api/v1/events/batch", [{"delay": "PT1S", "payload": 1}] * 30)
        await world.run(4)
        assert (await flow(world))["breaker"] == "open"
        if turn == "put":
            tag = (await world.admin.get(DEFAULT)).headers["etag"]
            await channel(world)
            assert (await flow(world))["breaker"] == "open", "the same settings are no news"
            assert (await world.admin.get(DEFAULT)).headers["etag"] == tag
            assert (await world.admin.put(DEFAULT, HTTP, {"if-match": '"former"'})).status == 412
            await channel(world, url="http://localhost:7072/other")
        else:
            await world.admin.post(f"{DEFAULT}/resume")
        assert await flow(world) == {"breaker": "closed"}
        world.receiver.otherwise = DELIVERED
        await world.run(90)


async def test_a_failure_to_write_its_state_harms_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def lost(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(world.app.directory.channels, "turn", lost)
    world.receiver.otherwise = AGAIN
    await batch(world, 20, retry={"attempts": 2, "first": "PT1S", "max": "PT1S"})
    await world.run(60)
    assert states(world) == {"dead": 20}
