"""The view of callers on events that a paused channel or an open breaker holds: in the event, in lists, in the figures."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shared.delivery import circuit_breaker
from shared.scheduler.facets.finding import SPREAD
from shared.scheduler.queries import stats

from ..harness import World
from .flowing import AGAIN, CHANNELS, DEFAULT, DELIVERED, batch, begun, channel, flow

EVENTS = "/api/v1/events"


async def figures(world: World) -> dict[str, Any]:
    found: dict[str, Any] = (await world.demo.get("/api/v1/stats")).json()
    return found


def of_channels(found: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {name: (each["state"], each["held"]) for name, each in found["channels"].items()}


async def test_event_of_a_paused_channel_says_so_once_its_time_has_come(world: World) -> None:
    [made] = await batch(world, 1)
    await world.admin.post(f"{DEFAULT}/pause")
    assert "held" not in await world.demo.event(made)
    await world.run(10)
    shown = await world.demo.event(made)
    assert (shown["state"], shown["held"]) == ("scheduled", {"reason": "paused"})
    assert [each["held"] for each in await world.demo.all(EVENTS)] == [{"reason": "paused"}]
    patched = await world.demo.patch(f"{EVENTS}/{made}", {"payload": 2})
    assert patched.json()["held"] == {"reason": "paused"}
    await world.admin.post(f"{DEFAULT}/resume")
    assert "held" not in await world.demo.event(made)
    await world.run(5)
    assert "held" not in await world.demo.event(made)


async def test_event_behind_a_breaker_says_until_when_instead_of_a_next_attempt_that_is_past(world: World) -> None:
    world.receiver.otherwise, world.receiver.takes = AGAIN, 0.001
    await batch(world, 20, retry={"first": "PT1S", "max": "PT1S"})
    await world.run(60)
    # Some have failed, some were never tried; all of them are past their time.
    shown = await world.demo.all(EVENTS)
    state = (await flow(world))["breaker"]
    assert {each["state"] for each in shown} == {"scheduled", "retrying"} and state == "open"
    until = (await flow(world))["until"]
    assert [each["held"] for each in shown] == [{"reason": "breaker-open", "until": until}] * 20
    assert not any("next_attempt" in each for each in shown)


async def test_retrying_event_of_a_healthy_channel_shows_its_next_attempt(world: World) -> None:
    world.receiver.otherwise = AGAIN
    [made] = await batch(world, 1, retry={"first": "PT10M"})
    await world.run(8)
    shown = await world.demo.event(made)
    assert shown["state"] == "retrying" and "held" not in shown and shown["next_attempt"] > "2027-01-15T08:00:05"


HOUR_OF_RETRIES = {"attempts": 100, "first": "PT2M", "max": "PT2M", "within": "PT1H"}


async def held_for_hours(world: World, event: str) -> None:
    """Its channel is paused, and its first attempt after that fails."""
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(3 * 3600, step=20)
    world.receiver.otherwise = AGAIN
    await world.admin.post(f"{DEFAULT}/resume")
    await world.run(10)
    assert (await world.demo.event(event))["state"] == "retrying"


async def dies_after_an_hour(world: World, event: str) -> None:
    """The time that it has is spent on attempts alone."""
    at = world.now
    await world.run(10)
    while (await world.demo.event(event))["state"] == "retrying":
        await world.run(300, step=5)
    assert (await world.demo.event(event))["state"] == "dead"
    assert 40 * 60_000 <= world.now - at <= 70 * 60_000


async def test_what_an_event_was_held_for_is_not_taken_from_its_retries(world: World) -> None:
    [made] = await batch(world, 1, retry=HOUR_OF_RETRIES)
    await held_for_hours(world, made)
    # Once more in mid-retry.
    await held_for_hours(world, made)
    await dies_after_an_hour(world, made)
    # Once brought back, it has another hour, and no more than that.
    assert (await world.demo.post(f"{EVENTS}/{made}/redrive")).status == 202
    await dies_after_an_hour(world, made)


async def test_what_an_event_was_held_for_is_not_added_to_its_retries_at_another_time(world: World) -> None:
    [made] = await batch(world, 1, retry=HOUR_OF_RETRIES)
    await held_for_hours(world, made)
    assert (await world.demo.patch(f"{EVENTS}/{made}", {"delay": "PT0S"})).status == 200
    await dies_after_an_hour(world, made)


async def test_new_event_for_now_on_a_paused_channel_is_held_at_once(world: World) -> None:
    await world.admin.post(f"{DEFAULT}/pause")
    assert (await world.demo.create(delay="PT0S"))["held"] == {"reason": "paused"}
    assert "held" not in await world.demo.create(delay="PT1M")


async def test_stats_show_which_channels_hold_how_many_events(world: World) -> None:
    await channel(world, "b")
    await batch(world, 4)
    await batch(world, 3, channel="b")
    await batch(world, 2, due="2027-01-15T09:00:00Z")
    before = await figures(world)
    assert (before["held"], before["held_partial"], before["channels"]) == (0, False, {})
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(10)
    found = await figures(world)
    assert (found["open"], found["held"], found["held_partial"]) == (6, 4, False)
    assert of_channels(found)["default"] == ("paused", 4)
    assert (await world.admin.delete(f"{CHANNELS}/b")).status == 204
    await world.admin.post(f"{DEFAULT}/resume")
    await world.run(120)
    assert of_channels(await figures(world)) == {"b": ("removed", 0), "default": ("ok", 0)}


async def test_stats_read_a_bounded_number_of_held_rows_and_say_that_there_may_be_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "HELD_ROWS", 1)
    await world.admin.post(f"{DEFAULT}/pause")
    for second in range(SPREAD + 1):
        await batch(world, 5, due=f"2027-01-15T08:0{second}:05Z")
    await world.run(60 * SPREAD + 10, step=5)
    found = await figures(world)
    # At least two of the rows are in one partition.
    assert found["held"] <= 5 * SPREAD and found["held_partial"]


async def test_stats_read_held_rows_while_a_channel_is_blocked_and_no_events(world: World) -> None:
    await batch(world, 5)
    before = world.tables.transactions["query"], world.tables.transactions["rows_read"]
    await figures(world)
    without = world.tables.transactions["query"] - before[0]
    await world.admin.post(f"{DEFAULT}/pause")
    await world.run(10)
    before = world.tables.transactions["query"], world.tables.transactions["rows_read"]
    assert (await figures(world))["held"] == 5
    assert world.tables.transactions["query"] - before[0] == without + SPREAD
    assert world.tables.transactions["rows_read"] - before[1] < 5 + 5, "rows of tenant, channel, index and the held row, and no events"


async def test_new_settings_that_close_the_breaker_call_its_events_back_at_once(world: World) -> None:
    world.receiver.otherwise = AGAIN
    made = await batch(world, 30)
    # Probes have failed so often that the next one is two minutes away.
    while (await flow(world)).get("failures", 0) < 12:
        await world.run(30)
    world.receiver.otherwise = DELIVERED
    at = world.now
    await channel(world, url="http://localhost:7072/other")
    await world.run(10)
    fresh = [one for one in begun(world) if one >= at]
    assert fresh and min(fresh) - at <= 3_000 < circuit_breaker.OPEN_LONGEST
    assert len(set(world.receiver.delivered()) & set(made)) >= 20


async def test_the_same_settings_again_call_nobody_back(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.receiver.otherwise = AGAIN
    await batch(world, 30)
    await world.run(10)
    caplog.set_level(logging.INFO)
    await channel(world)
    assert (await flow(world))["breaker"] != "closed"
    assert "shards_recalled" not in {getattr(record, "action", "") for record in caplog.records}
