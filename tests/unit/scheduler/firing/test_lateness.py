"""Lateness counts from the later of due time and acceptance."""

from __future__ import annotations

import re

from shared.core.clock import to_text
from shared.scheduler.keys import MINUTE
from shared.scheduler.properties.late_reasons import expected_at
from tests.unit.scheduler.harness import START, World

LONG_AGO = "2020-01-01T00:00:00Z"
FEW: int = 10_000


async def latest(world: World, event_id: str) -> int:
    """The lateness of a delivered event, which every figure has."""
    event = await world.demo.event(event_id)
    assert event["state"] == "delivered"
    late = (await world.demo.get("/api/v1/stats")).json()["late_ms"]
    assert late["p99"] <= late["max"] and late["max"] >= event["late_ms"]
    metrics = (await world.admin.get("/api/metrics")).body.decode()
    [total] = re.findall(r'tocsin_lateness_seconds_sum\{channel="default",tenant="demo"\} (\S+)', metrics)
    assert float(total) <= late["max"] / 1000 * 10
    assert max(each.delivery.late_ms for each in world.receiver.received) == late["max"]
    return int(late["max"])


async def test_an_event_whose_due_time_was_past_is_not_late_for_that(world: World) -> None:
    made = await world.demo.create(due=LONG_AGO)
    await world.run(60)
    assert await latest(world, made["id"]) < FEW


async def test_an_event_that_was_changed_to_a_past_time_counts_from_the_change(world: World) -> None:
    made = await world.demo.create(delay="P2D")
    await world.clock.advance(72_000)
    assert (await world.demo.patch(f"/api/v1/events/{made['id']}", {"due": LONG_AGO})).status == 200
    await world.run(60)
    assert await latest(world, made["id"]) < FEW


async def test_an_event_that_was_put_off_after_all_counts_from_its_new_time(world: World) -> None:
    made = await world.demo.create(delay="PT1H")
    for due in (LONG_AGO, to_text(START + 10 * MINUTE)):
        assert (await world.demo.patch(f"/api/v1/events/{made['id']}", {"due": due})).status == 200
    await world.run(11 * 60)
    assert await latest(world, made["id"]) < FEW


async def test_a_service_that_is_late_shows_it(world: World) -> None:
    made = await world.demo.create(delay="PT5S")
    await world.clock.advance(200)
    await world.run(60)
    assert await latest(world, made["id"]) > 190_000


async def test_a_schedules_occurrence_that_no_sweep_has_stored_in_time_is_late(world: World) -> None:
    made = await world.demo.put("/api/v1/schedules/s", {"every": "PT1H", "start": to_text(START + 30 * MINUTE), "payload": 1})
    assert made.status == 201
    # Nothing runs until ten minutes after its time.
    await world.clock.advance(40 * 60)
    await world.run(90)
    [event] = [each for page in await world.demo.pages("/api/v1/events") for each in page if each["state"] == "delivered"]
    assert event["late_ms"] >= 600_000 and event["late_because"][0]["reason"] == "accepted-late"
    assert event["late_because"][0]["text"].endswith("before it was stored")


async def test_an_event_that_waited_in_the_ingest_queue_counts_from_its_due_time(world: World) -> None:
    answer = await world.demo.post("/api/v1/events", {"delay": "PT1S", "payload": 1, "durability": "fast"})
    assert answer.status == 202
    await world.clock.advance(300)
    await world.run(60)
    assert await latest(world, answer.json()["id"]) >= 299_000


def test_the_later_of_due_time_and_acceptance_counts() -> None:
    assert expected_at({"due": 5, "created": 3}) == expected_at({"due": 3, "created": 5}) == 5
    assert expected_at({"due": 3, "created": 9, "asked": 4}) == 4
    assert expected_at({"due": 3, "created": 9, "since": 3}) == 3
    assert expected_at({"due": 8, "created": 1, "since": 6}) == 8
