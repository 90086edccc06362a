"""Flexible windows and `expires`: where in its window an event is planned, and the last instant at which it is delivered."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.scheduler import rows, rules
from shared.scheduler.changes.verbs import ChangeRequest
from shared.scheduler.model import EventIn, EventPatch
from shared.storage.names import EVENTS
from tests.unit.scheduler.harness import START, World

EVENT: TypeAdapter[EventIn] = TypeAdapter(EventIn)
URL = "/api/v1/events"
names = st.text("abcdefghijklmnopqrstuvwxyz0123456789_:@~-", min_size=1, max_size=200)


async def ended(world: World, event_id: str, seconds: float) -> dict[str, Any]:
    await world.run(seconds)
    return await world.demo.event(event_id)


# ---- the place in the window


@given(names, names, st.integers(1, 3660 * 86_400_000))
def test_place_lies_in_the_window_and_follows_from_tenant_and_id(tenant: str, name: str, flex: int) -> None:
    place = rules.spread(tenant, name, flex)
    assert 0 <= place < flex and place == rules.spread(tenant, name, flex)


@pytest.mark.parametrize(
    ("tenant", "name", "flex", "place"),
    [("demo", "order-17", 60_000, 58_440), ("demo", "order-18", 60_000, 13_244), ("acme", "order-17", 60_000, 21_348), ("demo", "x", 1, 0)],
)
def test_place_of_an_id_is_the_same_for_ever(tenant: str, name: str, flex: int, place: int) -> None:
    assert rules.spread(tenant, name, flex) == place


@pytest.mark.parametrize(("flex", "cells"), [(60_000, 60), (1_000, 50), (3_600_000, 100), (7, 7)])
def test_ids_that_count_up_are_spread_evenly_over_the_window(flex: int, cells: int) -> None:
    """Chi square against the even spread, at the bound that chance passes once in a million; exact, for hashes know no chance."""
    total = 20_000
    found = Counter(rules.spread("demo", f"order-{number}", flex) * cells // flex for number in range(total))
    expected = total / cells
    chi = sum((found[cell] - expected) ** 2 / expected for cell in range(cells))
    free = cells - 1
    # Wilson and Hilferty's approximation of the quantile at z = 4.75.
    assert chi < free * (1 - 2 / (9 * free) + 4.75 * (2 / (9 * free)) ** 0.5) ** 3


async def test_event_is_delivered_at_its_place_and_is_not_late_for_that(world: World) -> None:
    due = START + 10_000
    made = await world.demo.create(id="order-17", due=to_text(due), flex="PT1M")
    planned = due + rules.spread("demo", "order-17", 60_000)
    assert (made["due"], made["flex"], made["planned"]) == (to_text(due), "PT1M", to_text(planned))
    event = await ended(world, "order-17", 75)
    [got] = world.receiver.received
    assert got.began == got.delivery.due == planned
    assert (event["state"], event["late_ms"], event["due"], event["planned"]) == ("delivered", 0, to_text(due), to_text(planned))


async def test_thousands_due_at_one_instant_come_evenly(world: World) -> None:
    answer = await world.demo.post(f"{URL}/batch", [{"delay": "PT30S", "flex": "PT20S", "payload": n} for n in range(400)])
    assert answer.json()["accepted"] == 400
    await world.run(60)
    seconds = Counter((got.began - START) // 1000 for got in world.receiver.received)
    assert sum(seconds.values()) == 400 and set(seconds) <= set(range(30, 51))
    assert max(seconds.values()) < 50, "20 a second if it were exact"


async def test_replay_answers_the_same_place(world: World) -> None:
    body = {"id": "again", "delay": "PT1M", "flex": "PT1H", "payload": 1}
    first, second = await world.demo.post(URL, body), await world.demo.post(URL, body)
    assert (first.status, second.status) == (201, 200) and first.json()["planned"] == second.json()["planned"]
    assert (await world.demo.post(URL, body | {"flex": "PT2H"})).status == 409


async def test_rescheduled_event_keeps_its_place_in_the_window(world: World) -> None:
    made = await world.demo.create(due=to_text(START + 100_000), flex="PT10M")
    place = world.events()[0].props["shift"]
    new = START + 7_200_000
    moved = (await world.demo.patch(f"{URL}/{made['id']}", {"due": to_text(new)})).json()
    assert (moved["due"], moved["planned"], moved["flex"]) == (to_text(new), to_text(new + place), "PT10M")
    edited = (await world.demo.patch(f"{URL}/{made['id']}", {"payload": "x" * 2000})).json()
    assert (edited["due"], edited["planned"]) == (moved["due"], moved["planned"])
    asked = world.now
    delayed = (await world.demo.patch(f"{URL}/{made['id']}", {"delay": "PT1M"})).json()
    assert delayed["planned"] == to_text(asked + 60_000 + place)


async def test_event_fired_now_or_brought_back_leaves_its_window_behind(world: World) -> None:
    for name in ("now", "dead"):
        await world.demo.create(id=name, delay="PT1M", flex="PT24H", retry={"attempts": 1})
    world.receiver.script("dead", Verdict("final", 400), Verdict("delivered", 200))
    at = world.now
    for name in ("now", "dead"):
        fired = (await world.demo.post(f"{URL}/{name}/fire")).json()
        assert "flex" not in fired and "planned" not in fired and at <= START + 1_000
    await world.run(5)
    assert (await world.demo.event("now"))["state"] == "delivered"
    await world.put_props("demo", "dead", flex=86_400_000, shift=5_000_000)
    again = (await world.demo.post(f"{URL}/dead/redrive")).json()
    assert "flex" not in again and again["due"] == to_text(world.now)
    assert (await ended(world, "dead", 5))["state"] == "delivered"


@pytest.mark.parametrize("first", ["seen with its window", "seen without"])
async def test_moves_of_an_event_seen_with_and_without_its_window_show_the_due_time_that_was_asked_for(world: World, first: str) -> None:
    """One call has read the event before it was fired, another after that; both are stored, in one order or the other."""
    await world.demo.create(id="order-17", delay="PT1H", flex="PT10M")
    with_window = dict(world.events()[0].props)
    assert (await world.demo.call("POST", f"{URL}/order-17/fire", None)).status == 202
    without = dict(world.events()[-1].props)
    assert (with_window["flex"], without["flex"]) == (600_000, 0)
    seen = [(with_window, START + 7_200_000), (without, START + 9_000_000)]
    scheduler = world.app.scheduler
    for props, new in seen if first == "seen with its window" else reversed(seen):
        patch = EventPatch.model_validate_json(f'{{"due":"{to_text(new)}"}}')
        due, change = await scheduler.ingest.patch("demo", patch, None, props)
        row = await scheduler.changes.move(ChangeRequest("demo"), "order-17", due, change)
        assert rules.asked_due(row.props, int(row.props["due"])) == new
        assert (await world.demo.event("order-17"))["due"] == to_text(new)


async def test_window_of_a_past_due_time_is_still_a_window(world: World) -> None:
    due = START - 30_000
    made = await world.demo.create(id="order-17", due=to_text(due), flex="PT1M")
    assert made["planned"] == to_text(due + 58_440)
    await world.run(40)
    assert [got.began for got in world.receiver.received] == [due + 58_440]


def test_events_without_a_window_hold_nothing_of_one() -> None:
    for given_ in ({}, {"flex": "PT0S"}):
        event = EVENT.validate_python({"delay": "PT1S", "payload": 1, **given_})
        assert not {"flex", "shift"} & rows.new_event(event, b"1", START).props.keys()


@pytest.mark.parametrize(
    "given_",
    [
        {"delay": "PT1S", "flex": "-PT1S"},
        {"delay": "PT1S", "flex": 60},
        {"delay": "PT1S", "flex": "PT1M", "expires": "PT59.999S"},
        {"due": "9999-12-31T23:59:00Z", "flex": "PT1M"},
    ],
)
def test_windows_that_cannot_be_kept_are_refused_by_name(given_: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as refused:
        EVENT.validate_python({"payload": 1, **given_})
    assert [error["loc"] for error in refused.value.errors()] == [("flex",)]


async def test_patch_cannot_make_an_event_lapse_before_its_place(world: World) -> None:
    made = await world.demo.create(delay="PT1M", flex="PT10M", expires="PT10M")
    url = f"{URL}/{made['id']}"
    refused = await world.demo.patch(url, {"expires": "PT9M"})
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == "/expires"
    late = await world.demo.patch(url, {"due": "9999-12-31T23:59:59.999Z"})
    assert late.status == 422 and late.json()["errors"][0]["pointer"] == "/due"
    assert (await world.demo.event(made["id"]))["expires"] == "PT10M"
    assert (await world.demo.patch(url, {"expires": None})).status == 200


# ---- expires


@given(st.integers(0, 10**9), st.integers(0, 10**6), st.integers(0, 10**6), st.integers(-3, 3))
def test_expires_counts_from_the_due_time_that_was_asked_for(due: int, shift: int, more: int, off: int) -> None:
    props = {"due": due + shift, "shift": shift, "expires": shift + more}
    assert not rules.lapsed(props, due + shift), "never before its place in the window"
    assert rules.lapsed(props, due + shift + more + off) == (off > 0)


async def test_event_that_cannot_be_tried_again_in_time_lapses_with_its_last_error(world: World) -> None:
    await world.demo.create(id="x", delay="PT2S", expires="PT10S", retry={"schedule": ["PT1M"]})
    world.receiver.script("x", Verdict("retry", 503, "answered 503"))
    event = await ended(world, "x", 8)
    assert (event["state"], event["error"]) == ("lapsed", "answered 503")
    assert [attempt["outcome"] for attempt in event["attempts"]] == ["retry"]
    assert len(world.receiver.received) == 1
    assert (await world.demo.get("/api/v1/stats")).json()["lapsed"] == 1


@pytest.mark.parametrize("asked", [10.0, 10.001, 86_400.0])
async def test_retry_at_the_last_instant_is_made(world: World, asked: float) -> None:
    await world.demo.create(id="x", delay="PT2S", expires="PT10S")
    world.receiver.script("x", Verdict("retry", 503, retry_after=asked), Verdict("delivered", 200))
    await world.run(30)
    assert [got.began - START for got in world.receiver.received] == [2_000, 12_000]


async def test_event_overdue_after_an_outage_lapses_or_fires_by_its_own_limit(world: World) -> None:
    for name, expires in (("short", "PT1M"), ("exact", "PT9M58S"), ("long", "PT1H")):
        await world.demo.create(id=name, delay="PT2S", expires=expires)
    await world.clock.advance(600)  # nobody serves anything
    await world.run(60)
    states = {name: (await world.demo.event(name))["state"] for name in ("short", "exact", "long")}
    assert states == {"short": "lapsed", "exact": "lapsed", "long": "delivered"}
    assert [got.delivery.id for got in world.receiver.received] == ["long"]


async def test_event_of_a_paused_channel_lapses_while_it_waits(world: World) -> None:
    await world.demo.create(id="x", delay="PT2S", expires="PT20S")
    assert (await world.admin.post("/api/v1/tenants/demo/channels/default/pause")).status == 200
    assert (await ended(world, "x", 120))["state"] == "lapsed"
    assert (await world.admin.post("/api/v1/tenants/demo/channels/default/resume")).status == 200
    await world.run(60)
    assert world.receiver.received == []


async def test_lapsed_event_is_final(world: World) -> None:
    await world.demo.create(id="x", due=to_text(START - 60_000), expires="PT30S")
    assert (await ended(world, "x", 10))["state"] == "lapsed"
    for method, path in (("POST", "/redrive"), ("POST", "/fire"), ("DELETE", "")):
        assert (await world.demo.call(method, f"{URL}/x{path}")).status == 409
    assert (await world.demo.patch(f"{URL}/x", {"expires": "PT1H"})).status == 409
    assert (await world.demo.get("/api/v1/dead-letters")).json()["items"] == []


@pytest.mark.parametrize(("patched", "state"), [("PT1M", "lapsed"), ("PT1H", "delivered"), (None, "delivered")])
async def test_patched_limit_is_the_one_that_counts(world: World, patched: str | None, state: str) -> None:
    made = await world.demo.create(delay="PT2S", expires="PT10M")
    assert (await world.demo.patch(f"{URL}/{made['id']}", {"expires": patched})).status == 200
    await world.clock.advance(700)
    assert (await ended(world, made["id"], 60))["state"] == state


# ---- attempts of owners that were lost


async def test_attempt_of_a_lost_owner_is_reported_as_unknown(world: World) -> None:
    made = await world.demo.create(id="x", delay="PT2S")
    await world.put_props("demo", "x", state="firing", epoch=0, tries=1)
    event = await ended(world, "x", 10)
    [lost, last] = event["attempts"]
    assert (lost["at"], lost["outcome"], lost["took_ms"]) == (made["due"], "unknown", 0) and "disappeared" in lost["error"]
    assert (last["outcome"], last["status"]) == ("delivered", 200)
    assert world.receiver.received[0].delivery.attempt == 2


async def test_what_lapses_or_is_given_up_in_a_lost_owners_hands_says_so(world: World) -> None:
    for name, tries, expires in (("late", 1, "PT1S"), ("tired", 100, "PT24H")):
        await world.demo.create(id=name, delay="PT2S", expires=expires)
        await world.put_props("demo", name, state="firing", epoch=0, tries=tries)
    await world.clock.advance(600)
    await world.run(30)
    for name, state in (("late", "lapsed"), ("tired", "dead")):
        event = await world.demo.event(name)
        assert (event["state"], [attempt["outcome"] for attempt in event["attempts"]]) == (state, ["unknown"])
    assert "may have delivered it" in (await world.demo.event("late"))["error"]
    assert world.receiver.received == [] and len(world.rows(EVENTS)) >= 2


async def test_what_lapses_after_an_unknown_attempt_and_a_refusal_names_both(world: World) -> None:
    await world.demo.create(id="x", delay="PT2S", expires="PT30S", retry={"attempts": 8, "first": "PT1M", "max": "PT1M"})
    await world.put_props("demo", "x", state="firing", epoch=0, tries=1)
    world.receiver.script("x", Verdict("retry", 503, "answered 503", retry_after=31.0))
    event = await ended(world, "x", 120)
    assert (event["state"], [attempt["outcome"] for attempt in event["attempts"]][:2]) == ("lapsed", ["unknown", "retry"])
    assert "answered 503" in event["error"] and "may have delivered it" in event["error"]


async def test_what_lapses_without_an_unknown_attempt_says_nothing_of_one(world: World) -> None:
    await world.demo.create(id="x", delay="PT2S", expires="PT1S")
    await world.clock.advance(600)
    event = await ended(world, "x", 30)
    assert event["state"] == "lapsed" and event["attempts"] == [] and "error" not in event
