"""Schedules whose occurrences must not overlap: one after the other, or skipped while one before them has not ended."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.scheduler.key_lines.rules import line_of_schedule
from shared.scheduler.keys import Address
from shared.storage.names import LIMITS, SCHEDULES
from shared.storage.ports import Insert, Row
from tests.texts import assert_text
from tests.unit.scheduler.harness import START, World

PATH = "/api/v1/schedules/often"
EVERY: dict[str, Any] = {"every": "PT10S", "start": to_text(START + 20_000), "end": to_text(START + 61_000), "payload": {"n": 1}}
"""Five occurrences, at 20 to 60 s."""


async def put(world: World, **more: Any) -> None:
    answer = await world.demo.put(PATH, {**EVERY, **more})
    assert answer.status == 201, answer.json()


def states(world: World) -> dict[int, str]:
    """States of the occurrences, by due time in seconds after the start."""
    own = [row.props for row in world.events() if str(row.props["id"]).startswith("often") and row.props["state"] != "moved"]
    return {(int(props["due"]) - START) // 1000: str(props["state"]) for props in own}


def tickets(world: World) -> list[Row]:
    return [row for row in world.rows(LIMITS) if row.pk.startswith("key:") and ":" in row.rk]


def one_at_a_time(world: World) -> bool:
    return all(first.ended <= second.began for first, second in pairwise(sorted(world.receiver.received, key=lambda got: got.began)))


async def test_without_a_policy_occurrences_overlap_and_store_nothing_more(world: World) -> None:
    await put(world, overlap="allow")
    world.receiver.takes = 25.0
    await world.run(100)
    assert set(states(world).values()) == {"delivered"} and not one_at_a_time(world)
    assert not [row for row in world.rows(LIMITS) if row.pk.startswith("key:")]
    assert not any("overlap" in row.props for row in world.events())
    [definition] = [row for row in world.rows(SCHEDULES) if row.rk.startswith("d:")]
    assert "overlap" not in definition.props["spec"] and "ordering_key" not in definition.props["spec"]
    assert "overlap" not in (await world.demo.get(PATH)).json()


async def test_queue_delivers_one_after_the_other_in_order(world: World) -> None:
    await put(world, overlap="queue")
    world.receiver.takes = 25.0
    await world.run(55)
    due = to_text(START + 40_000)
    waiting = next(row.props["id"] for row in world.events() if row.props["due"] == START + 40_000)
    assert (await world.demo.event(waiting))["held"] | {"behind": "?"} == {"reason": "overlap", "since": due, "behind": "?"}
    await world.run(150)
    assert states(world) == dict.fromkeys((20, 30, 40, 50, 60), "delivered")
    assert one_at_a_time(world) and [got.id for got in world.receiver.received] == sorted(got.id for got in world.receiver.received)
    assert not tickets(world) and (await world.demo.get(PATH)).json()["overlap"] == "queue"


async def test_skip_ends_what_is_due_while_one_before_it_has_not_ended(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 25.0
    await world.run(100)
    assert states(world) == {20: "delivered", 30: "lapsed", 40: "lapsed", 50: "delivered", 60: "lapsed"}
    assert one_at_a_time(world) and not tickets(world)
    skipped = next(row.props["id"] for row in world.events() if row.props["due"] == START + 30_000)
    shown = await world.demo.event(skipped)
    former = next(row.props["id"] for row in world.events() if row.props["due"] == START + 20_000)
    assert_text("schedule.skipped", shown["error"], former=former, schedule="often")
    assert shown["attempts"] == [] and "late_ms" not in shown
    assert (await world.demo.get(PATH)).json()["skipped"] == {"count": 3, "last": to_text(START + 60_000)}


async def test_a_new_schedule_of_a_deleted_ones_name_begins_with_nothing_skipped(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 25.0
    await world.run(55)
    assert (await world.demo.get(PATH)).json()["skipped"]["count"] == 2
    assert (await world.demo.delete(PATH)).status == 204
    await world.run(30)
    await put(world, overlap="skip", start=to_text(START + 150_000), end=to_text(START + 181_000))
    assert "skipped" not in (await world.demo.get(PATH)).json()
    await world.run(150)
    assert (await world.demo.get(PATH)).json()["skipped"] == {"count": 2, "last": to_text(START + 170_000)}


async def test_retries_count_as_not_ended(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo", {"retry": {"schedule": ["PT12S"]}})).status == 200
    world.receiver.otherwise = Verdict("retry", 503)
    await put(world, overlap="skip", end=to_text(START + 41_000))
    await world.run(100)
    # The second attempt follows 12 to 14.4 s after the first, and is the last one.
    assert states(world) == {20: "dead", 30: "lapsed", 40: "dead"}


async def test_a_paused_channel_keeps_the_first_and_skips_the_others(world: World) -> None:
    await put(world, overlap="skip")
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause", {})
    await world.run(75)
    assert states(world) == {20: "scheduled", 30: "lapsed", 40: "lapsed", 50: "lapsed", 60: "lapsed"}
    await world.admin.post("/api/v1/tenants/demo/channels/default/resume", {})
    await world.run(60)
    assert states(world)[20] == "delivered" and not tickets(world)


async def test_an_event_that_a_user_asked_for_waits_and_others_are_skipped_for_it(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 14.0
    await world.run(22)
    assert (await world.demo.post(f"{PATH}/trigger")).status == 202
    await world.run(100)
    # The occurrence at 20 ends at 34, the triggered event at 48.
    found = states(world)
    [asked] = [state for due, state in found.items() if due not in (20, 30, 40, 50, 60)]
    assert asked == "delivered" and one_at_a_time(world)
    assert (found[20], found[30], found[40], found[50]) == ("delivered", "lapsed", "lapsed", "delivered")
    assert (await world.demo.get(PATH)).json()["skipped"]["count"] == sum(state == "lapsed" for state in found.values())


async def test_an_occurrence_that_a_user_fires_waits_instead_of_being_skipped(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 14.0
    await world.run(22)
    by_due = {row.props["due"]: str(row.props["id"]) for row in world.events()}
    fired = by_due[START + 50_000]
    assert (await world.demo.post(f"/api/v1/events/{fired}/fire")).status == 202
    await world.run(100)
    # The occurrence at 20 ends at 34, the fired one at 48.
    assert (await world.demo.event(fired))["state"] == "delivered" and one_at_a_time(world)
    assert {due: state for due, state in states(world).items() if due >= 30} == {30: "lapsed", 40: "lapsed", 60: "delivered"}
    assert not tickets(world)


async def test_an_owner_that_ends_leaves_the_decision_to_the_next(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 35.0
    await world.run(29)
    await world.close()
    await world.open()
    world.receiver.takes = 0.0
    await world.run(300)
    found = states(world)
    assert found[20] == "delivered" and found[30] == "lapsed"
    assert (await world.demo.get(PATH)).json()["skipped"]["count"] == sum(state == "lapsed" for state in found.values())
    assert not tickets(world)


async def test_a_notice_tells_of_skipped_occurrences_and_a_callback_of_each(world: World) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/ops"}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/ops", channel)).status == 201
    wanted = {"notices": {"channel": "ops", "kinds": ["schedule.missed", "event.dead"]}}
    assert (await world.admin.put("/api/v1/tenants/demo", wanted)).status == 200
    await put(world, overlap="skip", on_dead="ops")
    world.receiver.takes = 25.0
    await world.run(50)
    world.receiver.takes = 0.0
    await world.run(100)
    notices = [row.props for row in world.events() if "notice" in row.props]
    assert {str(props["notice"]) for props in notices} == {"schedule.missed"}
    assert sum('"subject":"often"' in str(props["body"]) for props in notices) == len(notices) > 0
    callbacks = [row.props for row in world.events() if "callback_of" in row.props]
    assert len(callbacks) == sum(state == "lapsed" for state in states(world).values())
    assert all('"state":"lapsed"' in str(props["body"]) and "skipped: event" in str(props["body"]) for props in callbacks)


async def test_a_cancelled_occurrence_skips_none_before_it_and_a_change_none_that_it_stores_again(world: World) -> None:
    await put(world, overlap="skip", catch_up={"policy": "all"})
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause", {})
    await world.run(15)
    later = next(str(row.props["id"]) for row in world.events() if row.props["due"] == START + 60_000)
    await world.run(8)
    assert states(world)[20] == "scheduled"
    assert (await world.demo.delete(f"/api/v1/events/{later}")).status == 204
    changed = await world.demo.put(PATH, {**EVERY, "overlap": "skip", "payload": {"n": 2}})
    assert changed.status == 200
    await world.admin.post("/api/v1/tenants/demo/channels/default/resume", {})
    await world.run(90)
    found = [got.delivery.due - START for got in world.receiver.received]
    assert found == [20_000, 30_000, 40_000, 50_000]
    assert "skipped" not in (await world.demo.get(PATH)).json()


async def test_a_second_ticket_of_a_skipped_occurrence_is_not_counted_and_a_refused_move_leaves_none(world: World) -> None:
    await put(world, overlap="skip")
    world.receiver.takes = 25.0
    await world.run(32)
    skipped = next(row for row in world.events() if row.props["due"] == START + 30_000)
    assert skipped.props["state"] == "lapsed"
    before = tickets(world)
    refused = await world.demo.patch(f"/api/v1/events/{skipped.props['id']}", {"due": to_text(START + 29_000)})
    assert (refused.status, refused.code) == (409, "already-final") and tickets(world) == before
    # As a move leaves one that is refused because the event was skipped meanwhile.
    line, ticket = line_of_schedule("demo", "often"), f"{START + 29_000:014d}:{skipped.props['id']}"
    await world.tables.write(LIMITS, line.partition, (Insert(line.ticket_row(ticket), {"at": Address(skipped.pk, skipped.rk).text}),))
    await world.run(70)
    assert (await world.demo.get(PATH)).json()["skipped"]["count"] == sum(state == "lapsed" for state in states(world).values())
    assert not tickets(world)


async def test_an_ordering_key_of_a_schedule(world: World) -> None:
    url = (await world.admin.get("/api/v1/tenants/demo/channels/default")).json()["url"]
    limited = {"type": "http", "url": url, "per_key": {"ordered": True}}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/default", limited)).status == 200
    await put(world, ordering_key="k")
    world.receiver.takes = 15.0
    await world.run(150)
    assert states(world) == dict.fromkeys((20, 30, 40, 50, 60), "delivered") and one_at_a_time(world)
    assert (await world.demo.get(PATH)).json()["ordering_key"] == "k"


async def test_bad_input(world: World) -> None:
    for wrong, pointer in (({"overlap": "never"}, "/overlap"), ({"overlap": "skip", "ordering_key": "k"}, ""), ({"ordering_key": ""}, "")):
        refused = await world.demo.put(PATH, {**EVERY, **wrong})
        assert refused.status == 422 and refused.json()["errors"][0]["pointer"].startswith(pointer)
    assert (await world.demo.put(PATH, {**EVERY, "overlap": "allow", "ordering_key": "k"})).status == 201


async def test_a_moved_occurrence_keeps_its_line(world: World) -> None:
    await put(world, overlap="queue")
    world.receiver.takes = 25.0
    await world.run(18)
    by_due = {row.props["due"]: str(row.props["id"]) for row in world.events()}
    moved = by_due[START + 40_000]
    assert (await world.demo.patch(f"/api/v1/events/{moved}", {"due": to_text(START + 25_000)})).status == 200
    same = by_due[START + 50_000]
    assert (await world.demo.patch(f"/api/v1/events/{same}", {"due": to_text(START + 50_000)})).status == 200
    await world.run(200)
    assert one_at_a_time(world)
    assert [got.id for got in world.receiver.received][:2] == [by_due[START + 20_000], moved]
    assert len(world.receiver.received) == 5 and not tickets(world)
