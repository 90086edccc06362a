"""Flow control as its users see it: pause, breaker, 410, rates and concurrency, through HTTP and over instances."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import pytest

from shared.app import Application
from shared.channels.ports import Delivery, Sender, Target, Verdict
from shared.clock import Millis
from shared.flow import breaker, rules
from shared.ids import SeededIds
from shared.settings import Settings
from shared.storage.names import EVENTS, LIMITS, QUEUE_INGEST
from shared.storage.ports import Message

from .harness import START, World

AGAIN = Verdict("retry", 503, "answered 503")
DELIVERED = Verdict("delivered", 200)
CHANNELS = "/api/v1/tenants/demo/channels"
DEFAULT = f"{CHANNELS}/default"
HTTP = {"type": "http", "url": "http://localhost:7072/"}


class Instances(World):
    """Two instances that share storage; messages go to them in turn."""

    apps: list[Application]

    async def open(self) -> World:
        await super().open()
        senders = cast(dict[str, Sender], dict.fromkeys(("http", "queue", "eventgrid"), self.receiver))
        other = await Application.open(self.settings, clock=self.clock, ids=SeededIds(8), storage=self.storage, senders=senders)
        self.apps = [self.app, other]
        return self

    async def _serve(self, queue: str, message: Message) -> None:
        if queue == QUEUE_INGEST:
            return await super()._serve(queue, message)
        self.apps.append(self.apps.pop(0))
        await self.apps[0].scheduler.firing.serve(message.text)
        await self.queues.delete(queue, message)


@pytest.fixture
async def two() -> AsyncIterator[Instances]:
    world = Instances(shard_events=10)
    await world.open()
    yield world
    await world.close()


async def batch(world: World, count: int, **event: Any) -> list[str]:
    body = {"due": "2027-01-15T08:00:05Z", "payload": 1, **event}
    answer = await world.demo.post("/api/v1/events/batch", [body] * count)
    assert answer.json()["accepted"] == count
    return [line["id"] for line in answer.json()["results"]]


async def channel(world: World, name: str = "default", **spec: Any) -> dict[str, Any]:
    answer = await world.admin.put(f"{CHANNELS}/{name}", HTTP | spec)
    assert answer.status in (200, 201), answer
    return dict(answer.json())


async def flow(world: World, name: str = "default") -> dict[str, Any]:
    return dict((await world.admin.get(f"{CHANNELS}/{name}")).json()["flow"])


def states(world: World) -> dict[str, int]:
    found: dict[str, int] = {}
    for row in world.events():
        found[str(row.props["state"])] = found.get(str(row.props["state"]), 0) + 1
    return found


def begun(world: World, name: str = "default") -> list[Millis]:
    return sorted(got.began for got in world.receiver.received if got.target.name == name)


def calls(world: World) -> int:
    """Storage transactions so far."""
    return sum(world.tables.transactions[kind] for kind in ("get", "query", "write"))


def most_within(times: list[Millis], span: Millis) -> int:
    """The most of these times that lie within any span of that length."""
    return max((sum(at <= other < at + span for other in times) for at in times), default=0)


# -- pause


async def test_events_of_a_paused_channel_stay_as_they_are_and_cost_next_to_nothing(world: World) -> None:
    made = await batch(world, 50)
    await world.admin.post(f"{DEFAULT}/pause", {"reason": "moving"})
    await world.run(10)
    await world.run(1200, step=1)
    assert states(world) == {"scheduled": 50}
    assert world.app.scheduler.counters["shards_taken"] <= 16, "a look every half minute at first, then less and less"
    assert (await world.demo.delete(f"/api/v1/events/{made[0]}")).status == 204
    shown = (await world.admin.get(DEFAULT)).json()
    assert (shown["paused"], shown["reason"], shown["flow"]) == (True, "moving", {"breaker": "closed"})
    assert world.receiver.received == []


async def test_resuming_calls_the_events_back_at_once(world: World) -> None:
    made = await batch(world, 20)
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(1200, step=1)
    at = world.now
    resumed = (await world.admin.post(f"{DEFAULT}/resume")).json()
    assert (resumed["paused"], "paused_at" in resumed) == (False, False)
    await world.run(5)
    assert sorted(world.receiver.delivered()) == sorted(made)
    assert max(begun(world)) - at <= 3_000
    assert all(got.delivery.attempt == 1 for got in world.receiver.received)


async def test_resuming_succeeds_although_nobody_can_be_called_back(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from shared.errors import Unavailable

    await batch(world, 3)
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(20)

    async def away(*_: Any, **__: Any) -> None:
        raise Unavailable("throttled")

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "query", away)
        assert (await world.admin.post(f"{DEFAULT}/resume")).status == 200
    await world.run(60)
    assert len(world.receiver.received) == 3, "each shard looks again by itself"


async def test_other_channels_of_the_same_shard_are_served_on_time(world: World) -> None:
    await channel(world, "b")
    body = [{"delay": f"PT{5 + number}S", "payload": 1, "channel": "b" if number % 2 else "default"} for number in range(40)]
    assert (await world.demo.post("/api/v1/events/batch", body)).json()["accepted"] == 40
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(60)
    assert [got.target.name for got in world.receiver.received] == ["b"] * 20
    assert max(got.delivery.late_ms for got in world.receiver.received) == 0
    assert states(world) == {"delivered": 20, "scheduled": 20}


async def test_events_claimed_before_a_pause_are_given_back_as_they_were(world: World) -> None:
    await batch(world, 5)
    await world.run(3)
    assert states(world) == {"firing": 5}
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(5)
    assert states(world) == {"scheduled": 5} and world.receiver.received == []
    assert {row.props["tries"] for row in world.events()} == {0}


async def test_pause_reaches_every_instance_within_a_second(two: Instances) -> None:
    await two.demo.post("/api/v1/events/batch", [{"delay": f"PT{5 + number / 10}S", "payload": 1} for number in range(200)])
    await two.run(10)
    assert len(two.receiver.received) > 10
    await two.admin.post(f"{DEFAULT}/pause")
    at = two.now
    await two.run(20)
    assert all(start <= at + 1_000 for start in begun(two))


# -- 410


async def test_410_ends_the_event_and_pauses_the_channel_and_says_so(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first = await world.demo.create(delay="PT1S")
    world.receiver.script(first["id"], Verdict("final", 410, "answered 410 Gone: the receiver wants no more deliveries"), DELIVERED)
    later = await world.demo.create(delay="PT10S")
    await world.run(30)
    assert (await world.demo.event(first["id"]))["state"] == "dead"
    shown = (await world.admin.get(DEFAULT)).json()
    assert (shown["paused"], shown["reason"]) == (True, "the receiver answered 410 Gone at 2027-01-15T08:00:01.000Z")
    assert (await world.demo.event(later["id"]))["state"] == "scheduled"
    assert [record for record in caplog.records if getattr(record, "action", "") == "channel_gone"]
    assert world.app.scheduler.counters["channels_gone"] == 1
    resumed = (await world.admin.post(f"{DEFAULT}/resume")).json()
    assert (resumed["paused"], "reason" in resumed) == (False, False)
    await world.run(5)
    assert (await world.demo.event(later["id"]))["state"] == "delivered"


async def test_410_does_not_overwrite_a_persons_pause(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 410, "answered 410 Gone"))
    world.receiver.takes = 5.0
    await world.run(3)
    await world.admin.post(f"{DEFAULT}/pause", {"reason": "by hand"})
    await world.run(10)
    assert (await world.demo.event(made["id"]))["state"] == "dead"
    assert (await world.admin.get(DEFAULT)).json()["reason"] == "by hand"


async def test_410_of_an_address_that_was_replaced_meanwhile_pauses_nothing(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 410, "answered 410 Gone"))
    world.receiver.takes = 5.0
    await world.run(3)
    await channel(world, url="http://localhost:7073/new")
    await world.run(10)
    assert (await world.admin.get(DEFAULT)).json()["paused"] is False


# -- breaker


async def test_dead_receiver_opens_the_breaker_and_its_events_wait_untouched(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.receiver.otherwise = Verdict("retry", None, "no connection")
    await batch(world, 200)
    await world.run(9)
    shown = await flow(world)
    assert (shown["breaker"], shown["error"]) == ("open", "no connection")
    assert shown["since"].startswith("2027-01-15T08:00:05") and shown["failures"] >= 5
    assert len(world.receiver.received) <= 2 * rules.FIRST_WINDOW
    untouched = [row for row in world.events() if row.props["state"] == "scheduled"]
    assert len(untouched) >= 190 and {row.props.get("tries", 0) for row in untouched} == {0}
    [told] = [record for record in caplog.records if getattr(record, "action", "") == "breaker_opened"]
    assert "demo/default" in told.message
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
    await two.clock.advance(breaker.PROBE_LEASE / 1000 + 10)
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
            assert (await world.admin.put(DEFAULT, HTTP, {"if-match": tag})).status == 412
            await channel(world, url="http://localhost:7072/other")
        else:
            await world.admin.post(f"{DEFAULT}/resume")
        assert await flow(world) == {"breaker": "closed"}
        world.receiver.otherwise = DELIVERED
        await world.run(90)


async def test_a_failure_to_write_its_state_harms_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    from shared.errors import OutcomeUnknown

    async def lost(*_: Any, **__: Any) -> None:
        raise OutcomeUnknown("the answer was lost")

    monkeypatch.setattr(world.app.directory.channels, "turn", lost)
    world.receiver.otherwise = AGAIN
    await batch(world, 20, retry={"attempts": 2, "first": "PT1S", "max": "PT1S"})
    await world.run(60)
    assert states(world) == {"dead": 20}


# -- rates


async def test_rate_of_a_channel_is_kept_and_what_waits_can_be_cancelled(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 10})
    made = await batch(world, 150)
    await world.run(9)
    waiting = [row for row in world.events() if row.props["state"] == "scheduled"]
    assert len(waiting) >= 60, "what cannot go out within three seconds is not claimed"
    gone = str(waiting[-1].props["id"])
    assert (await world.demo.delete(f"/api/v1/events/{gone}")).status == 204
    await world.run(25)
    times = begun(world)
    assert len(times) == 149 and gone not in world.receiver.delivered() and len(made) == 150
    assert most_within(times, 1_000) <= 2 * 10 and most_within(times, 5_000) <= 10 * (5 + 1)
    assert times[-1] - times[0] <= 16_000, "and used"


async def test_rate_holds_over_instances_and_channels_of_a_tenant(two: Instances) -> None:
    assert (await two.admin.put("/api/v1/tenants/demo", {"limits": {"deliveries_per_second": 20}})).status == 200
    await channel(two, "b")
    await two.run(6)
    for name in ("default", "b"):
        await two.demo.post("/api/v1/events/batch", [{"delay": "PT5S", "payload": 1, "channel": name}] * 100)
    await two.run(40)
    times = sorted([*begun(two), *begun(two, "b")])
    assert len(times) == 200
    assert most_within(times, 1_000) <= 2 * 20 and most_within(times, 4_000) <= 20 * (4 + 1)
    assert times[-1] - times[0] <= 20_000


async def test_slow_rate_keeps_no_owner_busy_and_few_events_claimed(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 0.1})
    await batch(world, 5)
    claimed = 0
    for _ in range(60):
        await world.run(1)
        claimed = max(claimed, states(world).get("firing", 0))
    assert claimed <= 2
    times = begun(world)
    assert len(times) >= 4 and all(later - earlier >= 9_999 for earlier, later in pairwise(times))
    await world.run(60)
    assert states(world) == {"delivered": 5}


async def test_rate_costs_less_than_a_write_per_event(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 100})
    await batch(world, 500)
    before = calls(world)
    await world.run(12)
    assert len(world.receiver.received) == 500
    limits = [row for row in world.rows(LIMITS) if row.rk == "rate:deliveries:default"]
    assert len(limits) == 1
    assert calls(world) - before < 100


# -- concurrency


async def test_concurrency_of_a_channel_holds_over_instances(two: Instances) -> None:
    await channel(two, limits={"concurrency": 3})
    two.receiver.takes = 1.0
    most = 0
    await batch(two, 60)
    for _ in range(160):
        await two.run(0.25)
        most = max(most, two.receiver.in_flight)
    assert most == 3
    assert states(two) == {"delivered": 60}
    assert begun(two)[-1] - begun(two)[0] <= 32_000, "and used"


async def test_slots_of_an_instance_that_died_come_back(two: Instances) -> None:
    await channel(two, limits={"concurrency": 1})
    dead = two.apps[0].scheduler.flow
    await dead.holds(object(), "demo", {"default": 1}, bool)
    stuck = asyncio.ensure_future(dead.lanes.slot(dead.lanes.lane("demo", "default"), backlog=False).__aenter__())
    await two.clock.advance(1)
    assert stuck.done(), "it holds the one slot"
    for task in asyncio.all_tasks():
        if task.get_coro().__qualname__.startswith("Lanes."):  # type: ignore[union-attr]
            task.cancel()
    two.apps = two.apps[1:] * 2
    at = two.now
    await two.demo.post("/api/v1/events/batch", [{"delay": "PT1S", "payload": 1}] * 3)
    await two.run(60)
    assert states(two) == {"delivered": 3}
    assert begun(two)[0] - at >= rules.LEASE - 2_000


async def test_concurrency_of_a_tenant_is_shared_by_its_channels(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"concurrency": 4}})).status == 200
    await channel(world, "b")
    await world.run(6)
    world.receiver.takes = 0.5
    for name in ("default", "b"):
        await world.demo.post("/api/v1/events/batch", [{"delay": "PT5S", "payload": 1, "channel": name}] * 20)
    most = 0
    for _ in range(120):
        await world.run(0.25)
        most = max(most, world.receiver.in_flight)
    assert most == 4 and states(world) == {"delivered": 40}


# -- costs, and the platform


async def test_without_limits_the_table_of_limits_is_not_touched(world: World) -> None:
    await batch(world, 100)
    await world.run(10)
    assert len(world.receiver.received) == 100 and world.rows(LIMITS) == []


async def test_owners_at_once_are_what_the_host_lets_in() -> None:
    queues = json.loads(Path("host.json").read_text())["extensions"]["queues"]
    assert Settings.model_fields["owners"].default == queues["batchSize"] + queues["newBatchThreshold"]


@pytest.mark.parametrize(
    ("limits", "pointer"),
    [
        ({"deliveries_per_second": 0}, "/limits/deliveries_per_second"),
        ({"concurrency": 0}, "/limits/concurrency"),
        ({"concurrency": 1.5}, "/limits/concurrency"),
        ({"events_per_second": 5}, "/limits/events_per_second"),
    ],
)
async def test_limits_that_make_no_sense_are_422_and_change_nothing(world: World, limits: dict[str, Any], pointer: str) -> None:
    before = world.dump()
    answer = await world.admin.put(DEFAULT, HTTP | {"limits": limits})
    assert (answer.status, [each["pointer"] for each in answer.json()["errors"]]) == (422, [pointer])
    assert world.dump() == before


async def test_limits_are_shown_as_they_were_put(world: World) -> None:
    shown = await channel(world, "fast", limits={"deliveries_per_second": 2.5})
    assert shown["limits"] == {"deliveries_per_second": 2.5, "concurrency": None}
    assert "limits" not in await channel(world, "free")


_ = (EVENTS, START, Delivery, Target)
