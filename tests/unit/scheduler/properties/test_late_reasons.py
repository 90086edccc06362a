"""Late events say why, in milliseconds that add up."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Unavailable
from shared.core.readable import readable_duration
from shared.scheduler import timings
from shared.scheduler.properties import late_reasons
from shared.scheduler.properties.late_reasons import LATE_FROM, REASONS, Span, split
from shared.storage.names import EVENTS
from shared.storage.ports import Op

from ..flow.flowing import AGAIN, DEFAULT, DELIVERED, batch, channel
from ..harness import World

_TIMES = st.integers(0, 60)
_SPAN = st.builds(lambda reason, first, length: Span(reason, first, first + length), st.sampled_from(REASONS), _TIMES, _TIMES)


def test_a_reason_of_a_later_version_is_shown_as_another_one() -> None:
    props = {"created": 0, "due": 0, "waits": '{"paused":500,"eclipse":700}'}
    shown = late_reasons.late_because(props, 1_500)
    assert [(each["reason"], each["ms"]) for each in shown] == [("other", 1_000), ("paused", 500)]


@given(st.dictionaries(st.sampled_from(REASONS), st.integers(0, 10_000)), st.integers(LATE_FROM, 20_000), st.integers(0, 5_000))
def test_the_parts_of_lateness_never_exceed_it(waits: dict[str, int], late: int, accepted: int) -> None:
    props = {"created": accepted, "due": 0, "since": 0, "waits": json.dumps(waits)}
    shown = [each["ms"] for each in late_reasons.late_because(props, late)]
    assert sum(shown) <= late < sum(shown) + LATE_FROM and 0 not in shown


async def test_a_redriven_event_is_late_since_its_new_due_time(world: World) -> None:
    made = await world.demo.create(delay="PT1S", retry={"schedule": ["PT30S"]})
    world.receiver.script(made["id"], AGAIN, AGAIN, AGAIN, DELIVERED)
    await world.run(60)
    assert (await world.demo.event(made["id"]))["state"] == "dead"
    assert (await world.demo.post(f"/api/v1/events/{made['id']}/redrive")).status == 202
    await world.run(60)
    found = await reasons(world, made["id"])
    event = await world.demo.event(made["id"])
    assert sum(found.values()) <= event["late_ms"] and found["retry"] >= 30_000


async def test_an_event_that_fails_and_is_moved_is_late_since_its_new_due_time(world: World) -> None:
    made = await world.demo.create(delay="PT1S", retry={"schedule": ["PT1M"]})
    world.receiver.script(made["id"], AGAIN, DELIVERED)
    await world.run(10)
    moved = await world.demo.patch(f"/api/v1/events/{made['id']}", {"delay": "PT2M"})
    assert moved.status == 200
    await world.run(200)
    event = await world.demo.event(made["id"])
    assert (event["state"], event["late_ms"] < LATE_FROM, event.get("late_because")) == ("delivered", True, None)


@given(_TIMES, _TIMES, st.lists(_SPAN, max_size=8))
def test_each_instant_has_the_reason_that_comes_first_in_the_list(first: int, length: int, spans: list[Span]) -> None:
    wanted: dict[str, int] = {}
    for now in range(first, first + length):
        here = [span.reason for span in spans if span.first <= now < span.end]
        if here:
            reason = min(here, key=REASONS.index)
            wanted[reason] = wanted.get(reason, 0) + 1
    assert split(first, first + length, spans) == wanted


async def reasons(world: World, event_id: str) -> dict[str, int]:
    """The reasons of a delivered event, which must add up."""
    event = await world.demo.event(event_id)
    assert event["state"] == "delivered"
    found = {each["reason"]: each["ms"] for each in event.get("late_because", ())}
    assert abs(sum(found.values()) - event["late_ms"]) < LATE_FROM, (found, event["late_ms"])
    assert list(found.values()) == sorted(found.values(), reverse=True)
    return found


async def test_punctual_event_says_nothing_and_stores_nothing(world: World) -> None:
    made = await world.demo.create(delay="PT5S")
    await world.run(10)
    assert await reasons(world, made["id"]) == {} and not any(late_reasons.WAITS in row.props for row in world.rows(EVENTS))


async def test_pause_is_a_reason(world: World) -> None:
    made = await world.demo.create(delay="PT5S")
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(65)
    await world.admin.post(f"{DEFAULT}/resume")
    await world.run(30)
    found = await reasons(world, made["id"])
    assert next(iter(found)) == "paused" and 59_000 <= found["paused"] <= 61_000
    shown = (await world.demo.event(made["id"]))["late_because"][0]["text"]
    assert shown == f"its channel was paused for {readable_duration(found['paused'])} of its wait"


async def test_retries_are_a_reason_and_so_is_what_delayed_them(world: World) -> None:
    made = await world.demo.create(delay="PT5S", retry={"schedule": ["PT30S", "PT1M"]})
    world.receiver.script(made["id"], AGAIN, AGAIN, DELIVERED)
    await world.run(150)
    found = await reasons(world, made["id"])
    assert next(iter(found)) == "retry" and found["retry"] >= 90_000


async def test_open_breaker_is_a_reason(world: World) -> None:
    ids = await batch(world, 30)
    world.receiver.otherwise = AGAIN
    await world.run(20)
    late = [(await world.demo.create(delay="PT1S"))["id"] for _ in range(3)]
    await world.run(20)
    world.receiver.otherwise = DELIVERED
    await world.run(300)
    # One of them may be the attempt that finds the receiver well again.
    found = [await reasons(world, id) for id in late]
    assert sum(each.get("breaker", 0) > 10_000 for each in found) >= 2, found
    assert sum([sum((await reasons(world, id)).values()) > 0 for id in ids[:5]]) == 5


async def test_rate_and_concurrency_are_reasons(world: World) -> None:
    await channel(world, limits={"deliveries_per_second": 2})
    limited = await batch(world, 40)
    await world.run(40)
    found = [await reasons(world, id) for id in limited]
    assert max(each.get("rate", 0) for each in found) > 10_000
    assert sum(each.get("rate", 0) for each in found) > 0.8 * sum(sum(each.values()) for each in found)
    await channel(world, limits=None)
    world.receiver.takes = 3.0
    crowded = await batch(world, 200, due="2027-01-15T08:01:00Z")
    await world.run(60)
    found = [await reasons(world, id) for id in crowded]
    assert max(each.get("concurrency", 0) for each in found) > 5_000


async def test_events_of_a_herd_wait_for_the_deliveries_before_them(world: World) -> None:
    world.receiver.takes = 0.25
    ids = await batch(world, 400)
    await world.run(20)
    found = [await reasons(world, id) for id in ids]
    assert max(each.get("concurrency", 0) for each in found) > 1_500
    assert max(each.get("other", 0) for each in found) < LATE_FROM, "those that no task had taken up yet too"


async def test_lost_owner_is_a_reason(world: World) -> None:
    world.receiver.takes = 1000.0
    made = await world.demo.create(delay="PT5S")
    await world.run(8)
    await world.close()
    world.receiver.takes = 0.0
    await world.open()
    await world.run(180)
    found = await reasons(world, made["id"])
    assert next(iter(found)) == "owner-lost" and found["owner-lost"] > timings.OWNER_SILENT / 2


async def test_the_wait_for_a_key_before_an_owner_was_lost_is_a_reason_of_its_own(world: World) -> None:
    url = (await world.admin.get("/api/v1/tenants/demo/channels/default")).json()["url"]
    limited = {"type": "http", "url": url, "timeout": "PT1M", "per_key": {"ordered": True}}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/default", limited)).status == 200
    world.receiver.takes = 50.0
    first = await world.demo.create(id="a", delay="PT15S", ordering_key="k")
    second = await world.demo.create(id="b", delay="PT15S", ordering_key="k")
    await world.run(75)
    await world.close()
    world.receiver.takes = 0.0
    await world.open()
    await world.run(180)
    # The second began when the first had ended, and its owner was lost a moment later.
    assert "owner-lost" not in await reasons(world, first["id"])
    found = await reasons(world, second["id"])
    assert 45_000 < found["ordering-key"] < 55_000 and found["owner-lost"] > timings.OWNER_SILENT / 2


async def test_nobody_there_is_a_reason_and_an_overdue_event_is_not_blamed_on_the_service(world: World) -> None:
    made = await world.demo.create(delay="PT5S")
    await world.clock.advance(200)
    await world.run(40)
    assert next(iter(await reasons(world, made["id"]))) == "not-taken"
    old = await world.demo.create(due="2027-01-01T00:00:00Z")
    await world.run(10)
    assert await reasons(world, old["id"]) == {}, "it is as late as it was accepted late, and no later"


async def test_storage_that_refuses_is_a_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.demo.create(delay="PT5S")
    write, refusing = world.tables.write, True

    async def refuse(table: str, pk: str, ops: list[Op]) -> Any:
        if refusing and table == EVENTS and world.now >= 1_800_000_001_000:
            raise Unavailable("503")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", refuse)
    await world.run(9)
    refusing = False
    await world.run(60)
    found = await reasons(world, made["id"])
    assert next(iter(found)) == "storage" and found["storage"] > 3_000
