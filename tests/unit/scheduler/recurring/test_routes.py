"""The routes of recurring schedules, and what becomes of their events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Unavailable
from shared.scheduler.recurring import timing
from shared.scheduler.timings import KEEP_DELETED_SCHEDULE, OCCURRENCES_AHEAD
from shared.storage.names import EVENTS, SCHEDULES
from shared.storage.ports import Merge
from tests.unit.scheduler.harness import START, Client, World, drive

from .faults import MINUTE, URL, live, sweep, sweeps

SCHEDULES_URL = "/api/v1/schedules"
MINUTELY = {"cron": "* * * * *", "payload": {"n": 1}}


async def put(client: Client, schedule: str = "tick", **spec: Any) -> dict[str, Any]:
    given = {"payload": {"n": 1}} | ({} if "every" in spec else {"cron": "* * * * *"}) | spec
    answer = await client.put(f"{SCHEDULES_URL}/{schedule}", given)
    assert answer.status in (200, 201), answer.body
    found: dict[str, Any] = answer.json()
    return found


async def ids(client: Client, state: str) -> list[str]:
    return sorted(event["id"] for event in await client.all(f"/api/v1/events?state={state}"))


# ---- put, get, list


async def test_schedule_is_shown_as_put_with_what_is_to_come(world: World) -> None:
    given = {
        "cron": "30 9 * * MON-FRI",
        "timezone": "Europe/Berlin",
        "start": "2027-01-01T00:00:00+01:00",
        "end": "2028-01-01T00:00:00Z",
        "jitter": "PT90S",
        "catch_up": {"policy": "all", "within": "PT1H"},
        "channel": "default",
        "payload": {"text": "Gr\u00fc\u00dfe", "exact": 1.10},
    }
    answer = await world.demo.put(URL, given)
    assert answer.status == 201 and answer.headers["location"] == URL and answer.headers["etag"]
    shown = answer.json()
    assert shown == given | {
        "id": "tick",
        "tenant": "demo",
        "start": "2026-12-31T23:00:00.000Z",
        "end": "2028-01-01T00:00:00.000Z",
        "jitter": "PT1M30S",
        "paused": False,
        "created": "2027-01-15T08:00:00.000Z",
        "revision": 1,
        "next": "2027-01-15T08:30:00.000Z",
        "last": None,
        "reads_as": "at 09:30 on Monday to Friday, in Europe/Berlin",
    }
    again = await world.demo.get(URL)
    assert (again.json(), again.headers["etag"]) == (shown, answer.headers["etag"])
    assert [(each["id"], each["next"]) for each in await world.demo.all(SCHEDULES_URL)] == [("tick", shown["next"])]


async def test_defaults_are_shown(world: World) -> None:
    shown = await put(world.demo)
    assert (shown["timezone"], shown["channel"], shown["catch_up"]) == ("UTC", "default", {"policy": "last", "within": "P1D"})
    assert {"every", "start", "end", "jitter"} & shown.keys() == set()


async def test_answers_say_in_words_how_a_cron_was_read(world: World) -> None:
    words = "at 18:00 on the last weekday of each month, in Europe/Berlin"
    rule = {"cron": "0 18 LW * *", "timezone": "Europe/Berlin"}
    assert (await put(world.demo, **rule))["reads_as"] == words
    assert (await world.demo.get(URL)).json()["reads_as"] == words
    [listed] = await world.demo.all(SCHEDULES_URL)
    assert listed["reads_as"] == words
    for method, url, body in (("GET", f"{URL}/preview?n=2", None), ("POST", f"{SCHEDULES_URL}/preview?n=2", rule)):
        preview = (await world.demo.call(method, url, body)).json()
        assert preview["reads_as"] == words
        assert [each["local"][:16] for each in preview["items"]] == ["2027-01-29T18:00", "2027-02-26T18:00"]
    every = await put(world.demo, "every", every="PT10M")
    assert "reads_as" not in every and "reads_as" not in (await world.demo.get(f"{SCHEDULES_URL}/every/preview")).json()
    assert (await world.demo.put(f"{SCHEDULES_URL}/other", rule | {"payload": 1, "reads_as": words})).status == 422


async def test_six_fields_fire_on_their_second_and_match_both_day_fields(world: World) -> None:
    shown = await put(world.demo, cron="*/20 * 8 15 1 FRI")
    assert shown["next"] == "2027-01-15T08:00:20.000Z"
    await world.run(65)
    hits = [second for second in range(60) if world.receiver.of(f"tick:20270115T0800{second:02}Z")]
    assert hits == [20, 40] and world.receiver.of("tick:20270115T080100Z")
    assert (await put(world.demo, "thirteen", cron="0 0 0 13 * FRI"))["next"] == "2027-08-13T00:00:00.000Z"
    assert (await put(world.demo, "either", cron="0 0 13 * FRI"))["next"] == "2027-01-22T00:00:00.000Z"


async def test_preview_keeps_gap_and_fold_of_six_fields(world: World) -> None:
    rule = {"cron": "15 30 2 L 3,10 SUN", "timezone": "Europe/Berlin", "start": "2032-01-01T00:00:00Z"}
    found = (await world.demo.post(f"{SCHEDULES_URL}/preview?n=2", rule)).json()["items"]
    assert [(each["local"][:19], each.get("reason")) for each in found] == [
        ("2032-10-31T02:30:15", "fold"),
        ("2038-10-31T02:30:15", "fold"),
    ]
    rule["cron"] = "15 30 2 28 3 SUNL"
    found = (await world.demo.post(f"{SCHEDULES_URL}/preview?n=1", rule)).json()["items"]
    assert [(each["local"][:19], each["reason"]) for each in found] == [("2032-03-28T03:00:00", "gap")]


async def test_same_content_again_changes_nothing_and_other_content_makes_a_revision(world: World) -> None:
    first = await world.demo.put(URL, MINUTELY)
    before = world.dump()
    same = await world.demo.put(URL, b'{ "payload": {"n":1}, "timezone": "UTC", "cron": "* * * * *"}')
    assert same.status == 200 and same.json()["revision"] == 2, "a zone that was not given before"
    before = world.dump()
    same = await world.demo.put(URL, b'{"cron": "* * * * *", "timezone": "UTC", "payload": {"n": 1 }, "channel": "default"}')
    assert (same.status, same.json()["revision"], world.dump()) == (200, 2, before)
    other = await world.demo.put(URL, MINUTELY | {"payload": {"n": 2}})
    assert (other.status, other.json()["revision"]) == (200, 3)
    assert other.headers["etag"] != first.headers["etag"]


async def test_if_match_guards_what_was_seen_and_occurrences_do_not_disturb_it(world: World) -> None:
    etag = (await world.demo.put(URL, MINUTELY)).headers["etag"]
    await sweeps(world, 120)
    assert (await world.demo.get(URL)).headers["etag"] == etag
    changed = await world.demo.put(URL, MINUTELY | {"payload": 2}, {"if-match": etag})
    assert changed.status == 200
    for method, url in (("PUT", URL), ("DELETE", URL), ("POST", f"{URL}/pause"), ("POST", f"{URL}/resume")):
        body = MINUTELY if method == "PUT" else None
        assert (await world.demo.call(method, url, body, {"if-match": etag})).status == 412
    assert (await world.demo.put(f"{SCHEDULES_URL}/new", MINUTELY, {"if-match": "*"})).status == 412


@pytest.mark.parametrize(
    ("change", "pointer", "told"),
    [
        ({"cron": "0 0 30 2 *"}, "/cron", "never fires"),
        ({"cron": "61 * * * *"}, "/cron", "minute: values are 0 to 59"),
        ({"cron": "0 0 31W 2 *"}, "/cron", "never fires"),
        ({"cron": "0 0 0 15W * SAT"}, "/cron", "never fires"),
        ({"cron": "0 0 L-3 * *"}, "/cron", "or L, LW or 15W"),
        ({"cron": "* * * * * * *"}, "/cron", "five fields"),
        ({"every": "PT1M"}, "", "exactly one of cron and every"),
        ({"cron": None}, "", "exactly one of cron and every"),
        ({"cron": None, "every": "PT0.5S"}, "/every", "whole seconds"),
        ({"cron": None, "every": "PT1.5S"}, "/every", "whole seconds"),
        ({"cron": None, "every": "PT1M", "timezone": "UTC"}, "/timezone", "no time zone changes"),
        ({"cron": None, "every": "PT1M", "start": "2027-01-01T00:00:00.5Z"}, "/start", "a whole second"),
        ({"cron": None, "every": "PT1M", "jitter": "PT2M"}, "/jitter", "not be longer than every"),
        ({"timezone": "europe/berlin"}, "/timezone", "expected a zone of the tz database"),
        ({"timezone": "../../etc/passwd"}, "/timezone", "expected a zone of the tz database"),
        ({"timezone": "Mars/Olympus"}, "/timezone", "expected a zone of the tz database"),
        ({"start": "1960-01-01T00:00:00Z"}, "/start", "must not be before 1970"),
        ({"start": "2028-01-01T00:00:00Z", "end": "2028-01-01T00:00:00Z"}, "/end", "must be later than start"),
        ({"cron": "0 0 1 1 *", "start": "2028-01-02T00:00:00Z", "end": "2028-12-01T00:00:00Z"}, "/end", "nothing occurs"),
        ({"end": "2027-01-01T00:00:00Z"}, "/end", "no occurrence between"),
        ({"jitter": "PT25H"}, "/jitter", "must be at most P1D"),
        ({"catch_up": {"policy": "some"}}, "/catch_up/policy", "must be 'none', 'last' or 'all'"),
        ({"catch_up": {"within": "PT59S"}}, "/catch_up/within", "must be at least PT1M"),
        ({"channel": "nowhere"}, "/channel", "no channel nowhere"),
        ({"delay": "PT1S"}, "/delay", "is not a known field"),
    ],
)
async def test_wrong_content_is_reported_and_changes_nothing(world: World, change: dict[str, Any], pointer: str, told: str) -> None:
    before = world.dump()
    answer = await world.demo.put(URL, {key: value for key, value in (MINUTELY | change).items() if value is not None})
    assert answer.status == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == pointer and told in error["detail"]
    assert world.dump() == before


async def test_payload_is_measured_by_channel_and_tenant(world: World) -> None:
    small = await world.tenant("small", limits={"payload_bytes": 100})
    answer = await small.put(URL, MINUTELY | {"payload": "x" * 100})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (413, "/payload")


async def test_bad_ids_are_refused_on_put_and_name_nothing_else(world: World) -> None:
    assert (await world.demo.put(f"{SCHEDULES_URL}/{'x' * 161}", MINUTELY)).status == 422
    assert (await world.demo.put(f"{SCHEDULES_URL}/a.b", MINUTELY)).status == 422
    assert (await world.demo.get(f"{SCHEDULES_URL}/a.b")).status == 404
    assert (await world.demo.put(f"{SCHEDULES_URL}/{'x' * 160}", MINUTELY)).status == 201


async def test_list_shows_each_schedule_of_the_tenant_once_over_pages(world: World) -> None:
    other = await world.tenant("acme")
    await put(other, "theirs")
    names = {f"s:{number}" for number in range(23)}
    for name in names:
        await put(world.demo, name, cron="0 0 1 1 *")
    pages = await world.demo.pages(f"{SCHEDULES_URL}?limit=5")
    assert all(len(page) <= 5 for page in pages)
    found = [each["id"] for page in pages for each in page]
    assert len(found) == 23 and set(found) == names
    assert (await world.demo.get(f"{SCHEDULES_URL}?cursor=abc")).status == 422


async def test_schedules_of_other_tenants_are_not_to_be_found(world: World) -> None:
    other = await world.tenant("acme")
    await put(world.demo)
    for method, url in (
        ("GET", URL),
        ("DELETE", URL),
        ("POST", f"{URL}/pause"),
        ("POST", f"{URL}/resume"),
        ("POST", f"{URL}/trigger"),
        ("GET", f"{URL}/preview"),
    ):
        assert (await other.call(method, url)).status == 404
        assert (await world.nobody.call(method, url)).status == 401
    assert await other.all(SCHEDULES_URL) == []


# ---- firing


async def test_occurrences_are_delivered_on_time_under_their_ids_with_the_payload_as_sent(world: World) -> None:
    await world.demo.put(URL, b'{"cron": "* * * * *", "payload": {"exact": 1.10}}')
    await world.run(190)
    hits = [world.receiver.of(f"tick:20270115T080{minute}00Z") for minute in (1, 2, 3)]
    assert [len(each) for each in hits] == [1, 1, 1]
    event = await world.demo.event("tick:20270115T080200Z")
    assert (event["state"], event["due"], event["late_ms"]) == ("delivered", "2027-01-15T08:02:00.000Z", 0)
    assert b'{"exact": 1.10}' in (await world.demo.get("/api/v1/events/tick:20270115T080200Z")).body
    shown = (await world.demo.get(URL)).json()
    assert (shown["last"], shown["next"]) == ("2027-01-15T08:03:00.000Z", "2027-01-15T08:04:00.000Z")


async def test_interval_starts_one_interval_after_its_creation_and_at_once_if_that_is_soon(world: World) -> None:
    await world.clock.advance(0.5)
    shown = await put(world.demo, every="PT1S")
    assert shown["next"] == "2027-01-15T08:00:02.000Z"
    await world.run(5)
    assert len([second for second in range(60) if world.receiver.of(f"tick:20270115T0800{second:02}Z")]) == 4


async def test_start_and_end_bound_it_and_afterwards_nothing_is_next(world: World) -> None:
    await put(world.demo, start="2027-01-15T08:02:00Z", end="2027-01-15T08:04:00Z")
    await sweeps(world, 600)
    assert sorted(live(world)) == [START + 2 * MINUTE, START + 3 * MINUTE]
    shown = (await world.demo.get(URL)).json()
    assert (shown["next"], shown["last"]) == (None, "2027-01-15T08:03:00.000Z")
    assert [row.rk for row in world.rows(SCHEDULES)] == ["d:demo:tick"], "no sweep looks at it any more"


async def test_jitter_moves_the_due_time_and_not_the_id(world: World) -> None:
    await put(world.demo, jitter="PT59S")
    event = await world.demo.event("tick:20270115T080100Z")
    assert "2027-01-15T08:01:00.000Z" < event["due"] < "2027-01-15T08:01:59.000Z"


async def test_sweep_costs_nothing_for_schedules_that_are_far(world: World) -> None:
    for number in range(20):
        await put(world.demo, f"far{number}", cron="0 0 1 6 *")
    before = world.tables.transactions.copy()
    await drive(world.clock, sweep(world))
    spent = world.tables.transactions - before
    assert (spent["query"], spent["get"], spent["write"]) == (16, 0, 0)


async def test_timer_runs_it(world: World) -> None:
    await put(world.demo, cron="*/10 * * * *")
    await world.clock.advance(540, settle=3)
    counts = await world.do(world.app.timers.run_once("scheduler_scan"))
    assert counts["recurring"] == {"stored": 1}


async def test_limits_of_the_tenant_do_not_drop_occurrences_but_do_hold_for_trigger(world: World) -> None:
    client = await world.tenant("slow", limits={"open_events": 1})
    await put(client, every="PT1S")
    assert len(live(world)) > 100
    answer = await client.post(f"{URL}/trigger")
    assert answer.status == 429 and int(answer.headers["retry-after"]) >= 1


async def test_event_of_a_client_under_an_occurrences_id_neither_stops_nor_loses_it(world: World) -> None:
    await world.demo.create(id="tick:20270115T080100Z", payload="mine")
    await put(world.demo)
    assert (await world.demo.event("tick:20270115T080100Z"))["payload"] == "mine"
    assert (await world.demo.event("tick:20270115T080100Z~1"))["payload"] == {"n": 1}
    await world.demo.post(f"{URL}/pause")
    assert (await world.demo.event("tick:20270115T080100Z"))["state"] == "scheduled"
    assert (await world.demo.event("tick:20270115T080100Z~1"))["state"] == "cancelled"


# ---- pause, resume, change, delete


async def test_pause_takes_back_what_is_about_to_fire_and_nothing_missed_fires_later(world: World) -> None:
    await put(world.demo, catch_up={"policy": "all"})
    paused = await world.demo.post(f"{URL}/pause")
    assert (paused.status, paused.json()["paused"], paused.json()["next"]) == (200, True, None)
    assert await ids(world.demo, "cancelled") == [f"tick:20270115T080{minute}00Z" for minute in (1, 2, 3, 4, 5)]
    await sweeps(world, 300)
    assert (await world.demo.post(f"{URL}/pause")).json()["revision"] == paused.json()["revision"], "again changes nothing"
    resumed = await world.demo.post(f"{URL}/resume")
    assert resumed.json()["next"] == "2027-01-15T08:06:00.000Z"
    assert sorted(live(world)) == [START + minute * MINUTE for minute in (6, 7, 8, 9, 10)]


async def test_occurrences_before_a_pause_that_were_named_and_not_stored_fire_after_the_resume(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(world.demo, catch_up={"policy": "all"})
    await world.run(61)
    first = {hit.id for hit in world.receiver.received}

    async def crash(*_: Any) -> None:
        raise Unavailable("storage is away after the occurrences were named")

    with monkeypatch.context() as patched:
        patched.setattr(world.app.scheduler.recurring.chain, "_fire", crash)
        await world.run(420)
    missed = [START + number * MINUTE for number in (7, 8)]
    stored = {int(row.props["due"]) for row in world.events()}
    assert not stored & set(missed)
    assert (await world.demo.post(f"{URL}/pause")).status == 200
    await world.run(300)
    assert (await world.demo.post(f"{URL}/resume")).status == 200
    await world.run(131)
    dues = Counter(hit.delivery.due for hit in world.receiver.received)
    assert first and set(missed) <= set(dues) and max(dues.values()) == 1, "all of before the pause, each once"
    paused = range(START + 9 * MINUTE, START + 13 * MINUTE, MINUTE)
    assert not set(paused) & set(dues), "none of the pause"
    assert max(dues) > START + 14 * MINUTE - 1, "and the schedule goes on"


async def test_resumed_occurrence_fires_under_an_id_of_its_revision(world: World) -> None:
    await put(world.demo)
    await world.demo.post(f"{URL}/pause")
    await world.demo.post(f"{URL}/resume")
    await world.run(130)
    assert await ids(world.demo, "delivered") == ["tick:20270115T080100Z~3", "tick:20270115T080200Z~3"]


async def test_change_just_before_the_time_reaches_the_event(world: World) -> None:
    await put(world.demo)
    await world.run(50)
    await put(world.demo, payload={"n": 2})
    await world.run(75)
    assert [hit.payload for hit in world.receiver.received] == [{"n": 2}, {"n": 2}]


async def test_occurrence_that_is_already_firing_is_not_fired_again_by_a_change_or_a_resume(world: World) -> None:
    await put(world.demo)
    await world.run(59)
    assert await ids(world.demo, "firing") == ["tick:20270115T080100Z"]
    await put(world.demo, payload={"n": 2})
    await world.demo.post(f"{URL}/pause")
    await world.demo.post(f"{URL}/resume")
    await world.run(65)
    assert [hit.id for hit in world.receiver.received] == ["tick:20270115T080100Z", "tick:20270115T080200Z~4"]


async def test_occurrence_that_a_user_cancelled_stays_cancelled_through_a_change(world: World) -> None:
    await put(world.demo)
    assert (await world.demo.delete("/api/v1/events/tick:20270115T080100Z")).status == 204
    await sweeps(world, 15)
    await put(world.demo, payload={"n": 2})
    assert sorted(live(world)) == [START + minute * MINUTE for minute in (2, 3, 4, 5)]


async def test_occurrence_that_was_claimed_once_fires_as_it_is_whatever_changes(world: World) -> None:
    """Two processes may carry out one change: one sees the claim, and the other sees that it was given back."""
    await put(world.demo)
    claimed = next(row for row in world.events() if row.props["due"] == START + 2 * MINUTE)
    await world.tables.write(EVENTS, claimed.pk, [Merge(claimed.rk, {"epoch": 1, "tries": 0}, claimed.etag)])
    await put(world.demo, payload={"n": 2})
    assert sorted(live(world)) == [START + minute * MINUTE for minute in (1, 2, 3, 4, 5)]
    [row] = [row for row in world.events() if row.props["due"] == START + 2 * MINUTE]
    assert (row.props["id"], row.props["state"]) == (claimed.props["id"], "scheduled")


async def test_change_recreates_events_that_wait_in_their_jitter_window_and_leaves_those_that_are_due(world: World) -> None:
    await put(world.demo, jitter="PT1H", catch_up={"policy": "none"})
    await sweeps(world, 600)
    before, changed = live(world), to_text(world.now)
    await put(world.demo, jitter="PT1H", catch_up={"policy": "none"}, payload={"n": 2})
    after = live(world)
    assert before.keys() == after.keys() and len(before) == 15
    assert all(len(found) == 1 for found in after.values())
    payloads = [0, 0, 0]
    for [event_id] in after.values():
        event = await world.demo.event(event_id)
        assert event["payload"] == {"n": 2 if event["due"] > changed else 1}
        payloads[event["payload"]["n"]] += 1
    assert min(payloads[1:]) > 0


async def test_deleted_schedule_is_gone_with_its_events_and_its_rows_follow(world: World) -> None:
    await put(world.demo)
    assert (await world.demo.delete(URL)).status == 204
    assert (await world.demo.get(URL)).status == 404
    assert (await world.demo.delete(URL)).status == 404
    assert await world.demo.all(SCHEDULES_URL) == []
    assert live(world) == {}
    await sweeps(world, (KEEP_DELETED_SCHEDULE + OCCURRENCES_AHEAD) // 1000 + 60)
    assert world.rows(SCHEDULES) == []


async def test_schedule_recreated_after_its_deletion_fires_what_the_former_one_did_not(world: World) -> None:
    first = await put(world.demo)
    await world.clock.advance(1)
    await world.demo.delete(URL)
    answer = await world.demo.put(URL, MINUTELY)
    assert answer.status == 201 and answer.json()["created"] > first["created"]
    await world.run(130)
    assert await ids(world.demo, "delivered") == ["tick:20270115T080100Z~3", "tick:20270115T080200Z~3"]


async def test_schedules_of_a_deleted_tenant_stop_and_go(world: World) -> None:
    client = await world.tenant("gone")
    await put(client, "near", cron="*/10 * * * *")
    await put(client, "far", cron="0 0 1 6 *")
    await put(client, "still", cron="0 0 1 6 *")
    await client.post(f"{SCHEDULES_URL}/still/pause")
    await put(world.demo, "stays", cron="0 0 1 6 *")
    assert (await world.admin.delete("/api/v1/tenants/gone")).status == 204
    successor = await world.tenant("gone")
    assert await successor.all(SCHEDULES_URL) == [] and (await successor.get(f"{SCHEDULES_URL}/far")).status == 404
    events = len(world.events())
    await world.clock.advance(540, settle=3)
    assert (await drive(world.clock, sweep(world)))["removed"] == 1
    assert len(world.events()) == events
    counts = await world.do(world.app.timers.run_once("retention_scan"))
    assert counts["recurring"] == {"removed": 2}
    assert {row.rk.split(":")[1] for row in world.rows(SCHEDULES) if row.rk.startswith("d:")} == {"demo"}


# ---- trigger, preview


async def test_trigger_fires_once_now_even_while_paused_and_leaves_the_chain_alone(world: World) -> None:
    await put(world.demo, cron="0 0 1 6 *", jitter="PT1H")
    await world.demo.post(f"{URL}/pause")
    answer = await world.demo.post(f"{URL}/trigger")
    event = answer.json()
    assert answer.status == 202 and answer.headers["location"] == f"/api/v1/events/{event['id']}"
    assert event["id"].startswith("tick@") and event["payload"] == {"n": 1}
    await world.run(10)
    assert [hit.id for hit in world.receiver.received] == [event["id"]]
    assert (await world.demo.get(URL)).json()["last"] is None


async def test_a_trigger_that_is_repeated_by_its_id_makes_no_second_event(world: World) -> None:
    await put(world.demo, cron="0 0 1 6 *")
    made = [await world.demo.post(f"{URL}/trigger", {"id": "once"})]
    await world.run(5)
    made.append(await world.demo.post(f"{URL}/trigger", {"id": "once"}))
    await world.run(5)
    assert [(each.status, each.json()["id"]) for each in made] == [(202, "tick@once")] * 2
    assert made[1].json()["state"] == "delivered"
    assert [hit.id for hit in world.receiver.received] == ["tick@once"]
    await world.demo.post("/api/v1/events", {"id": "tick@mine", "delay": "PT1H", "payload": 1})
    assert (await world.demo.post(f"{URL}/trigger", {"id": "mine"})).json()["type"].endswith("/id-conflict")
    assert (await world.demo.post(f"{URL}/trigger", {"id": "Not me"})).status == 422


async def test_a_put_that_only_creates_replaces_nothing(world: World) -> None:
    only_new = {"if-none-match": "*"}
    assert (await world.demo.call("PUT", URL, MINUTELY, only_new)).status == 201
    for query in ("", "?dry_run=true"):
        refused = await world.demo.call("PUT", f"{URL}{query}", MINUTELY | {"payload": "other"}, only_new)
        assert (refused.status, refused.json()["type"].rsplit("/")[-1]) == (412, "precondition-failed")
    assert (await world.demo.get(URL)).json()["payload"] == MINUTELY["payload"]
    tagged = await world.demo.call("PUT", URL, MINUTELY, {"if-none-match": '"a"'})
    assert (tagged.status, tagged.json()["errors"][0]["pointer"]) == (422, "@if-none-match")
    await world.demo.call("DELETE", URL)
    assert (await world.demo.call("PUT", URL, MINUTELY, only_new)).status == 201


async def test_preview_shows_times_and_why_they_are_odd(world: World) -> None:
    await put(world.demo, cron="30 2 28 3 *", timezone="Europe/Berlin", start="2027-01-15T00:00:00Z", jitter="PT1H")
    answer = await world.demo.get(f"{URL}/preview?n=2")
    assert answer.json() == {
        "items": [
            {"at": "2027-03-28T01:00:00.000Z", "local": "2027-03-28T03:00:00.000+02:00", "reason": "gap"},
            {"at": "2028-03-28T00:30:00.000Z", "local": "2028-03-28T02:30:00.000+02:00"},
        ],
        "reads_as": "at 02:30 on day 28 of March, in Europe/Berlin",
    }
    await world.demo.post(f"{URL}/pause")
    assert len((await world.demo.get(f"{URL}/preview")).json()["items"]) == 10
    for wrong in ("0", "101", "x"):
        assert (await world.demo.get(f"{URL}/preview?n={wrong}")).status == 422


async def test_preview_of_a_nickname_is_in_utc_and_that_of_an_interval_has_no_zone(world: World) -> None:
    await put(world.demo, cron="@daily")
    assert (await world.demo.get(f"{URL}/preview?n=1")).json() == {
        "items": [{"at": "2027-01-16T00:00:00.000Z", "local": "2027-01-16T00:00:00.000+00:00"}],
        "reads_as": "at 00:00 every day, in UTC",
    }
    assert (await world.demo.get(URL)).json()["cron"] == "@daily"
    await put(world.demo, "beat", every="PT1H")
    assert (await world.demo.get(f"{SCHEDULES_URL}/beat/preview?n=1")).json() == {"items": [{"at": "2027-01-15T09:00:00.000Z"}]}


async def test_rule_that_is_not_stored_is_previewed_as_the_schedule_would_occur(world: World) -> None:
    await world.demo.put("/api/v1/calendars/holidays", {"dates": ["2027-01-18"]})
    rule = {"cron": "0 9 * * MON", "timezone": "Europe/Berlin", "exclude": {"calendars": ["holidays"]}, "channel": "not-there-yet"}
    found = await world.demo.post(f"{SCHEDULES_URL}/preview?n=3", rule)
    assert found.status == 200 and (await world.demo.get(SCHEDULES_URL)).json()["items"] == []
    await put(world.demo, **rule | {"channel": "default"})
    assert found.json() == (await world.demo.get(f"{URL}/preview?n=3")).json()
    assert [each["at"] for each in found.json()["items"]] == [f"2027-{day}T08:00:00.000Z" for day in ("01-25", "02-01", "02-08")]
    across = await world.demo.post(f"{SCHEDULES_URL}/preview?n=1", {"cron": "30 2 28 3 *", "timezone": "Europe/Berlin"})
    assert across.json()["items"][0]["reason"] == "gap"
    beats = (await world.demo.post(f"{SCHEDULES_URL}/preview", {"every": "PT1H"})).json()["items"]
    assert len(beats) == 10 and beats[0] == {"at": "2027-01-15T09:00:00.000Z"}
    over = await world.demo.post(f"{SCHEDULES_URL}/preview", {"every": "PT1H", "end": "2027-01-15T08:00:00Z"})
    assert (over.status, over.json()) == (200, {"items": []})


@pytest.mark.parametrize(
    ("rule", "pointer"),
    [
        ({"cron": "61 * * * *"}, "/cron"),
        ({"cron": "0 9 * * *", "timezone": "Europe/Nowhere"}, "/timezone"),
        ({"every": "PT0.5S"}, "/every"),
        ({"cron": "@daily", "every": "PT1H"}, ""),
        ({"cron": "@daily", "exclude": {"calendars": ["none-such"]}}, "/exclude/calendars/0"),
        ({"cron": "@daily", "payload": 1}, "/payload"),
    ],
)
async def test_preview_of_a_rule_names_the_wrong_field(world: World, rule: dict[str, Any], pointer: str) -> None:
    answer = await world.demo.post(f"{SCHEDULES_URL}/preview", rule)
    assert answer.status == 422 and answer.json()["errors"][0]["pointer"] == pointer


async def test_a_schedule_may_be_named_preview(world: World) -> None:
    await put(world.demo, "preview")
    assert (await world.demo.get(f"{SCHEDULES_URL}/preview")).json()["id"] == "preview"
    assert len((await world.demo.get(f"{SCHEDULES_URL}/preview/preview?n=2")).json()["items"]) == 2
    assert (await world.demo.post(f"{SCHEDULES_URL}/preview/pause")).json()["paused"] is True


# ---- releases of the zone data


async def test_hourly_job_computes_the_next_occurrence_anew_by_a_later_release_of_the_zone_data(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "release", lambda: "2020a")
    later = timing.zone("Europe/London")
    monkeypatch.setattr(timing, "zone", lambda name: later)
    former = (await put(world.demo, cron="0 12 * * *", timezone="Europe/Berlin"))["next"]
    await put(world.demo, "every", every="PT1H")
    monkeypatch.undo()
    assert (former, (await world.demo.get(URL)).json()["next"]) == ("2027-01-15T12:00:00.000Z",) * 2
    assert (await world.app.scheduler.recurring.chain.retain(world.now))["renewed"] == 1
    assert (await world.demo.get(URL)).json()["next"] == "2027-01-15T11:00:00.000Z"
    assert not await world.app.scheduler.recurring.chain.retain(world.now)
    await world.run(3 * 3_600 + 60, step=15)
    assert "tick:20270115T110000Z" in await ids(world.demo, "delivered")


async def test_delete_asks_for_overdue_occurrences(world: World) -> None:
    await put(world.demo)
    assert (await world.demo.delete(f"{URL}?overdue=lose")).status == 422
    assert (await world.demo.delete(f"{URL}?overdue=keep")).status == 204


async def test_key_to_read_previews_a_schedule_and_nothing_is_stored_or_recorded(world: World) -> None:
    reader = await world.key("demo", ["read"])
    before, records = world.dump(), (await world.admin.get("/api/v1/audit")).json()["items"]
    found = await reader.post(f"{SCHEDULES_URL}/preview?n=2", {"cron": "0 2 * * *"})
    assert (found.status, len(found.json()["items"])) == (200, 2)
    assert (await world.admin.post(f"{SCHEDULES_URL}/preview?tenant=demo", {"cron": "0 2 * * *"})).status == 200
    assert (await reader.put(f"{SCHEDULES_URL}/nightly", {"cron": "0 2 * * *", "payload": 1})).status == 403
    assert world.dump() == before and (await world.admin.get("/api/v1/audit")).json()["items"] == records
