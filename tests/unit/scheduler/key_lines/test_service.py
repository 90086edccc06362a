"""Limits per ordering key: order, concurrency and rate; what waits, what blocks, and what an ended owner leaves behind."""

from __future__ import annotations

from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.storage.names import EVENTS, LIMITS
from shared.storage.ports import Row

from ..harness import START, World

URL = "/api/v1/events"
CHANNEL = "/api/v1/tenants/demo/channels/default"


async def limit(world: World, **per_key: Any) -> None:
    """Give the channel limits per key."""
    found = (await world.admin.get(CHANNEL)).json()
    answer = await world.admin.put(CHANNEL, {"type": "http", "url": found["url"], "per_key": per_key})
    assert answer.status == 200 and per_key.items() <= answer.json()["per_key"].items()


@pytest.fixture
async def ordered(world: World) -> AsyncIterator[World]:
    await limit(world, ordered=True)
    yield world


async def post(world: World, name: str, due: int, key: str = "k", **more: Any) -> dict[str, Any]:
    """An event that is due `due` seconds after the start."""
    return await world.demo.create(id=name, due=to_text(START + due * 1000), ordering_key=key, **more)


def lines(world: World) -> list[Row]:
    return [row for row in world.rows(LIMITS) if row.pk.startswith("key:")]


def began(world: World, name: str) -> float:
    """Seconds after the start at which the last attempt began."""
    return (world.receiver.of(name)[-1].began - START) / 1000


async def test_one_at_a_time_in_the_order_of_due_times_over_shards_and_minutes(ordered: World) -> None:
    ordered.receiver.takes = 3.0
    names = ["a70", "b71", "c20", "d21", "e21", "f59"]
    for name in ("f59", "b71", "d21", "c20", "a70", "e21"):
        await post(ordered, name, int(name[1:]))
    await post(ordered, "other", 20, key="other")
    await ordered.run(90)
    got = [each for each in ordered.receiver.received if each.id != "other"]
    assert [each.id for each in got] == ["c20", "d21", "e21", "f59", "a70", "b71"] and sorted(names) == sorted(each.id for each in got)
    assert all(first.ended <= second.began for first, second in pairwise(got))
    assert began(ordered, "other") < 21
    assert not lines(ordered)


async def test_a_hundred_of_one_key_and_many_keys_beside_it(ordered: World) -> None:
    for number in range(100):
        await post(ordered, f"e{number:03d}", 20)
    for number in range(30):
        await post(ordered, f"x{number}", 20, key=f"k{number}")
    await ordered.run(60)
    many = [got.id for got in ordered.receiver.received if got.id.startswith("e")]
    assert many == [f"e{number:03d}" for number in range(100)]
    assert max(began(ordered, f"x{number}") for number in range(30)) < 22
    assert not lines(ordered)


async def test_a_failed_event_blocks_its_key_and_shows_who_waits(ordered: World) -> None:
    ordered.receiver.first("one", Verdict("retry", 503))
    await post(ordered, "one", 20, retry={"schedule": ["PT30S"]})
    await post(ordered, "two", 21)
    await ordered.run(30)
    assert not ordered.receiver.of("two")
    held = (await ordered.demo.event("two"))["held"]
    assert held == {"reason": "ordering-key", "since": to_text(START + 21_000), "behind": "one"}
    await ordered.run(120)
    assert ordered.receiver.delivered() == ["one", "two"]
    assert {part["reason"] for part in (await ordered.demo.event("two"))["late_because"]} == {"ordering-key"}
    assert not lines(ordered)


async def test_a_failed_event_that_does_not_block(world: World) -> None:
    await limit(world, ordered=True, failed_blocks=False)
    world.receiver.first("one", Verdict("retry", 503))
    await post(world, "one", 20, retry={"schedule": ["PT10S"]})
    await post(world, "two", 21)
    await world.run(60)
    assert [got.id for got in world.receiver.received] == ["one", "two", "one"]
    assert not lines(world)


async def test_a_cancelled_or_moved_event_gives_its_place_away(ordered: World) -> None:
    ordered.receiver.script("one", Verdict("retry", 503))
    await post(ordered, "one", 20, retry={"schedule": ["PT2H"]})
    await post(ordered, "two", 21)
    await post(ordered, "moved", 22)
    assert (await ordered.demo.patch(f"{URL}/moved", {"due": to_text(START + 19_000)})).status == 200
    await ordered.run(40)
    assert [got.id for got in ordered.receiver.received] == ["moved", "one"]
    assert (await ordered.demo.delete(f"{URL}/one")).status == 204
    await ordered.run(10)
    assert [got.id for got in ordered.receiver.received] == ["moved", "one", "two"]
    assert not lines(ordered)


async def test_waiting_for_a_paused_channel_makes_no_messages(ordered: World) -> None:
    for name, due in (("two", 21), ("one", 20)):
        await post(ordered, name, due)
    await ordered.admin.post(f"{CHANNEL}/pause", {})
    await ordered.run(30)
    epochs = [row.props["epoch"] for row in ordered.rows(EVENTS) if row.rk == "gate"]
    assert sum(epochs) <= 6, "an owner that gives its turn back does not wake itself"


async def test_a_pause_keeps_the_order(ordered: World) -> None:
    for name, due in (("two", 21), ("one", 20)):
        await post(ordered, name, due)
    await ordered.admin.post(f"{CHANNEL}/pause", {})
    await ordered.run(60)
    assert not ordered.receiver.received
    await ordered.admin.post(f"{CHANNEL}/resume", {})
    await ordered.run(30)
    assert [got.id for got in ordered.receiver.received] == ["one", "two"]


async def test_concurrency_of_a_key(world: World) -> None:
    await limit(world, concurrency=2)
    world.receiver.takes = 5.0
    for number in range(6):
        await post(world, f"e{number}", 20)
    most = 0
    for _ in range(200):
        await world.run(0.5)
        most = max(most, world.receiver.in_flight)
    assert most == 2 and len(world.receiver.received) == 6
    assert not lines(world)


async def test_rate_of_a_key(world: World) -> None:
    await limit(world, deliveries_per_second=2.0)
    for number in range(10):
        await post(world, f"e{number}", 20)
    await post(world, "other", 20, key="other")
    await world.run(60)
    starts = sorted(got.began - START for got in world.receiver.received if got.id != "other")
    assert len(starts) == 10 and starts[-1] - starts[0] >= 4_000
    assert all(later - earlier >= 400 for earlier, later in pairwise(starts))
    assert starts[-1] < 40_000
    await world.run(60)


@pytest.mark.parametrize("stall", [0.0, 2.0, 6.0])
async def test_rate_of_a_key_is_exceeded_only_by_starts_that_slow_storage_held_up(
    world: World, monkeypatch: pytest.MonkeyPatch, stall: float
) -> None:
    """stall: seconds that each write of events takes for a while. The bound is that of docs/how-to/ordering-keys.md."""
    rate = 2.0
    await limit(world, deliveries_per_second=rate)
    # In two minutes, so two owners have them.
    for number in range(24):
        await post(world, f"e{number:02}", 55 if number < 12 else 60)
    allowed: dict[str, float] = {}
    ask, write = world.app.scheduler.lines.ask, world.tables.write

    async def asked(question: Any) -> Any:
        answer = await ask(question)
        allowed.update({ticket.partition(":")[2]: (start - START) / 1000 for ticket, start in answer.granted.items()})
        return answer

    async def written(table: str, *given: Any) -> Any:
        if table == EVENTS and START + 56_000 <= world.now <= START + 64_000:
            await world.clock.sleep(stall)
        return await write(table, *given)

    monkeypatch.setattr(world.app.scheduler.lines, "ask", asked)
    monkeypatch.setattr(world.tables, "write", written)
    await world.run(140)
    starts = sorted((got.began - START) / 1000 for got in world.receiver.received)
    assert len(starts) == 24
    held_up = max(began(world, name) - allowed[name] for name in allowed)
    over = max(later - first + 1 - rate * (starts[later] - starts[first]) for first in range(24) for later in range(first, 24))
    """Most starts in a span, less those of the rate in it."""
    assert over <= rate * max(1.0, held_up) + 1
    assert (over > rate + 1) == (stall > 0), "the bound of storage that answers in time does not hold here"


async def test_an_owner_that_ends_leaves_its_key_to_the_next(ordered: World) -> None:
    ordered.receiver.takes = 20.0
    await post(ordered, "one", 20)
    await post(ordered, "two", 21)
    await ordered.run(25)
    assert ordered.receiver.in_flight == 1 and lines(ordered)
    await ordered.close()
    ordered.receiver.takes = 0.0
    await ordered.open()
    await ordered.run(300)
    assert ordered.receiver.delivered()[-2:] == ["one", "two"]
    assert not lines(ordered)


async def test_events_without_a_key_and_channels_without_limits_store_nothing(world: World) -> None:
    await post(world, "keyed", 20)
    await limit(world, ordered=True)
    await world.demo.create(id="plain", due=to_text(START + 21_000))
    await world.run(5)
    assert not lines(world)
    await world.run(30)
    assert sorted(world.receiver.delivered()) == ["keyed", "plain"]


async def test_limits_that_contradict_each_other(world: World) -> None:
    for wrong in ({"ordered": True, "concurrency": 2}, {}, {"ordered": False}, {"concurrency": 0}, {"deliveries_per_second": 0}):
        answer = await world.admin.put(CHANNEL, {"type": "http", "url": "http://localhost:7072/x", "per_key": wrong})
        assert answer.status == 422, wrong
    for wrong in ("", "x" * 129, "a\nb", 7):
        assert (await world.demo.post(URL, {"delay": "PT1H", "payload": 1, "ordering_key": wrong})).status == 422


async def test_rows_that_nobody_needs_are_removed(ordered: World) -> None:
    await post(ordered, "gone", 20)
    await post(ordered, "waits", 20_000, key="other")
    await ordered.admin.delete(CHANNEL)
    await ordered.run(30)
    assert (await ordered.demo.event("gone"))["state"] == "dead" and len(lines(ordered)) == 2
    await ordered.clock.advance(3 * 3600.0, settle=3)
    url = "http://localhost:7072/x"
    assert (await ordered.admin.put(CHANNEL, {"type": "http", "url": url, "per_key": {"ordered": True}})).status == 201
    for _ in range(16):
        await ordered.do(ordered.app.scheduler.key_tidying.run_once(ordered.now))
        await ordered.clock.advance(3600.0, settle=1)
    [left] = lines(ordered)
    assert left.rk.endswith(":waits")
