"""Events one by one: creating and reading, and the same id again."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.durations import MAX_DURATION
from shared.delivery.channels.ports import Verdict
from tests.integration.api.calls import AGAIN, EVENTS
from tests.unit.scheduler.harness import START, World

# ---- creating -----------------------------------------------------------------------------------


async def test_new_event_is_201_with_location_and_etag_and_reads_back_the_same(world: World) -> None:
    asked = {
        "id": "order-17:time-out@eu~1_x",
        "due": "2027-01-15T10:21:55.2501+01:00",
        "payload": {"order": 17},
        "channel": "default",
        "expires": "PT90M",
        "durability": "standard",
        "retry": {"attempts": 3, "first": "PT1S", "max": "PT60S", "within": "P1D"},
        "labels": {"team": "ops", "note.1": "Grüße \U0001f514", "empty": ""},
    }
    made = await world.demo.post(EVENTS, asked)
    assert (made.status, made.headers["location"]) == (201, f"{EVENTS}/{asked['id']}")
    assert made.json() == {
        "id": asked["id"],
        "tenant": "demo",
        "state": "scheduled",
        "due": "2027-01-15T09:21:55.251Z",
        "created": "2027-01-15T08:00:00.000Z",
        "channel": "default",
        "payload": {"order": 17},
        "expires": "PT1H30M",
        "retry": {"attempts": 3, "first": "PT1S", "max": "PT1M", "within": "P1D"},
        "labels": asked["labels"],
        "attempts": [],
    }
    found = await world.demo.get(made.headers["location"])
    assert (found.status, found.headers["etag"], found.body) == (200, made.headers["etag"], made.body)


async def test_id_of_the_service_is_distinguished_from_every_id_a_client_may_choose(world: World) -> None:
    made = await world.demo.create()
    assert "." in made["id"]
    assert (await world.demo.post(EVENTS, {"id": made["id"], "delay": "PT1S", "payload": 1})).pointers == ["/id"]


PAYLOADS = [
    "null",
    "true",
    "0",
    "-0",
    "-0.0",
    "1e2",
    "1E+2",
    "1.10",
    "1e-400",
    "12345678901234567890123456789",
    "0.1000000000000000055511151231257827",
    '""',
    '"Gr\u00fc\u00dfe \U0001f514 \u2028"',
    r'"\u0047\u00fc\ud83d\udd14\/\b\u0000"',
    '{"b":1,  "a":[ 1 ,2 ]}',
    '{"a":1,"a":2}',
    '{"payload":{"payload":1}}',
    '{"":{"\\"":1}}',
    "1e400",
    "[-1E+9999, " + "7" * 400 + "]",
    "7" * 5_000,
    "7" * 5_000 + "e-5000",
    '["\\"' + "7" * 5_000 + '", -' + "7" * 5_000 + ", 1E-" + "0" * 5_000 + "5]",
    "[\n\t1\r\n]",
    "[]",
    '"' + "\U0001f514" * 20_000 + '"',
    '"' + "x" * 15_999 + "\U0001f514" * 3 + '"',
    "[" + ",".join(["1e2"] * 12_000) + "]",
]


@pytest.mark.parametrize("payload", PAYLOADS, ids=[payload[:20].encode("ascii", "backslashreplace").decode() for payload in PAYLOADS])
async def test_payload_comes_back_and_is_delivered_byte_for_byte(world: World, payload: str) -> None:
    raw = f'{{"delay":"PT1S", "payload" : {payload} ,"id":"p"}}'.encode()
    made = await world.demo.post(EVENTS, raw)
    assert made.status == 201
    member = f'"payload":{payload},"attempts"'.encode()
    assert member in made.body
    assert member in (await world.demo.get(f"{EVENTS}/p")).body
    assert member in (await world.demo.get(EVENTS)).body
    await world.run(2)
    [got] = world.receiver.of("p")
    assert got.delivery.body == payload.encode()


NUMBERS = b'{"a":1e400, "b":-0,"c":1E+5,"d":%b,"e":1.0,"f":[-1E-9999,-0.0, 1e-7]}' % (b"7" * 5_000)


async def test_numbers_stay_as_sent_through_changes_redrives_and_schedules(world: World) -> None:
    async def sends(method: str, path: str, body: bytes = b"") -> None:
        answer = await world.demo.call(method, path, body)
        assert answer.status in (200, 201, 202) and NUMBERS in answer.body, answer.body[:300]

    await world.demo.create(id="p", delay="PT1H")
    await sends("PATCH", f"{EVENTS}/p", b'{"payload":%b}' % NUMBERS)
    await sends("PATCH", f"{EVENTS}/p", b'{"delay":"PT2H"}')
    world.receiver.otherwise = AGAIN
    await sends("POST", EVENTS, b'{"id":"r","delay":"PT0S","retry":{"attempts":1},"payload":%b}' % NUMBERS)
    await world.run(3)
    assert NUMBERS in (await world.demo.get("/api/v1/dead-letters")).body
    world.receiver.otherwise = Verdict("delivered", 200)
    await sends("POST", f"{EVENTS}/r/redrive")
    await sends("POST", f"{EVENTS}/p/fire")
    await sends("PUT", "/api/v1/schedules/s", b'{"every":"PT10S","payload":%b}' % NUMBERS)
    await sends("GET", "/api/v1/schedules/s")
    await sends("POST", "/api/v1/schedules/s/trigger")
    assert (await world.demo.post(EVENTS, b'{"delay":"PT1S","durability":"fast","payload":%b}' % NUMBERS)).status == 202
    await world.run(25)
    bodies = [got.delivery.body for got in world.receiver.received]
    assert len(bodies) >= 6 and set(bodies) == {NUMBERS}


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "1e", "01", "+1", ".5", "1.", "--1", "1_0", "0" + "7" * 5_000, "7" * 5_000 + "e"])
@pytest.mark.parametrize("before", ["", "1e400,", "7" * 5_000 + ","])
async def test_a_number_that_is_not_json_is_refused_beside_large_ones(world: World, number: str, before: str) -> None:
    raw = f'{{"delay":"PT1H","payload":[{before}{number}]}}'.encode()
    assert (await world.demo.post(EVENTS, raw)).status == 422


async def test_members_given_twice_are_refused_by_name_but_inside_of_payloads(world: World) -> None:
    refused = await world.demo.post(EVENTS, b'{"delay":"PT1S","payload":1,"payload":2,"delay":"PT2S","labels":{"a":"1","a":"2"}}')
    assert (refused.status, sorted(refused.pointers)) == (422, ["/delay", "/labels/a", "/payload"])
    assert (await world.demo.post(EVENTS, b'{"delay":"PT1S","payload":{"a":1,"a":2}}')).status == 201


@pytest.mark.parametrize("due", ["2027-01-15T07:59:59.999Z", "1970-01-01T00:00:00Z", "1969-07-20T20:17:40Z", "0001-01-01T00:00:00Z"])
async def test_past_due_fires_at_once(world: World, due: str) -> None:
    made = await world.demo.create(due=due)
    await world.run(1)
    [got] = world.receiver.of(made["id"])
    assert got.began - world.now <= 1_000 and got.delivery.late_ms == got.began - START
    event = await world.demo.event(made["id"])
    assert (event["state"], event["late_ms"]) == ("delivered", got.delivery.late_ms)
    assert event["due"][:19] == due[:19]


async def test_event_may_be_due_as_late_as_its_longest_delay(world: World) -> None:
    latest = to_text(world.clock.now() + MAX_DURATION)
    late = to_text(world.clock.now() + MAX_DURATION + 10)
    made = await world.demo.create(due=latest, id="doomsday")
    assert made["due"] == latest
    for refused in (
        await world.demo.post(EVENTS, {"due": late, "payload": 1}),
        await world.demo.patch(f"{EVENTS}/doomsday", {"due": "9999-12-31T23:59:59.999Z"}),
    ):
        assert (refused.status, refused.pointers) == (422, ["/due"])
    await world.run(30)
    [listed] = await world.demo.all(f"{EVENTS}?from={latest}")
    assert (listed["id"], listed["state"]) == ("doomsday", "scheduled")
    assert (await world.demo.delete(f"{EVENTS}/doomsday")).status == 204


async def test_event_fires_at_its_time_and_never_before(world: World) -> None:
    made = [await world.demo.create(delay=delay) for delay in ("PT0S", "PT0.001S", "PT7.5S", "PT30S", "PT65S", "PT3M")]
    await world.run(190)
    for event in made:
        [got] = world.receiver.of(event["id"])
        assert got.began >= got.delivery.due
        assert got.delivery.late_ms <= 500


async def test_expired_event_lapses(world: World) -> None:
    made = await world.demo.create(due="2027-01-15T07:59:00Z", expires="PT59.999S")
    just = await world.demo.create(due="2027-01-15T07:59:00Z", expires="PT120S")
    await world.run(1)
    event = await world.demo.event(made["id"])
    assert (event["state"], event["attempts"]) == ("lapsed", [])
    assert world.receiver.delivered() == [just["id"]]


async def test_expires_of_nothing_means_exactly_on_time(world: World) -> None:
    made = await world.demo.create(delay="PT5S", expires="PT0S")
    await world.run(6)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"


async def test_event_overrides_how_it_is_tried_again(world: World) -> None:
    world.receiver.otherwise = AGAIN
    once = await world.demo.create(delay="PT0S", retry={"attempts": 1})
    thrice = await world.demo.create(delay="PT0S", retry={"attempts": 3, "first": "PT1S", "max": "PT2S"})
    await world.run(40)
    for made, attempts in ((once, 1), (thrice, 3)):
        event = await world.demo.event(made["id"])
        assert (event["state"], len(event["attempts"]), event["error"]) == ("dead", attempts, "answered 503")
        assert all(entry["outcome"] == "retry" and entry["status"] == 503 for entry in event["attempts"])
    assert [got.delivery.attempt for got in world.receiver.of(thrice["id"])] == [1, 2, 3]


async def test_past_due_event_is_tried_again_like_any_other(world: World) -> None:
    made = await world.demo.create(due="2020-01-01T00:00:00Z", retry={"first": "PT1S"})
    world.receiver.script(made["id"], AGAIN, Verdict("delivered", 200))
    await world.run(20)
    event = await world.demo.event(made["id"])
    assert (event["state"], len(event["attempts"])) == ("delivered", 2)


async def test_retrying_event_says_when_it_is_tried_next(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503, "answered 503", retry_after=600)
    made = await world.demo.create(delay="PT0S")
    await world.run(2)
    event = await world.demo.event(made["id"])
    assert event["state"] == "retrying" and event["next_attempt"] >= "2027-01-15T08:10:00.000Z"


# ---- the same id again --------------------------------------------------------------------------

FIRST = '"id":"x","delay":"PT60S","payload":'
"""The common part of all the events below."""
SAME: list[tuple[str, str, str]] = [
    ("itself", FIRST + "1", FIRST + "1"),
    ("laid out differently", FIRST + '{"a":1,"b":[2]}', '"payload":{ "b":[ 2 ],"a":1},"delay":"PT60S", "id":"x"'),
    ("number spelled differently", FIRST + "100", FIRST + "1.0e2"),
    ("text spelled differently", FIRST + '"a/"', FIRST + r'"\u0061\/"'),
    ("a large number", FIRST + "123456789012345678901", FIRST + "123456789012345678901"),
]
OTHER: list[tuple[str, str, str]] = [
    ("payload", FIRST + "1", FIRST + "2"),
    ("text for null", FIRST + "null", FIRST + '""'),
    ("truth for one", FIRST + "1", FIRST + "true"),
    ("text for a number", FIRST + "1", FIRST + '"1"'),
    ("delay", FIRST + "1", '"id":"x","delay":"PT61S","payload":1'),
    ("due for delay", FIRST + "1", '"id":"x","due":"2027-01-15T08:01:00Z","payload":1'),
    ("a default filled in", FIRST + "1", FIRST + '1,"channel":"default"'),
    ("labels", FIRST + "1", FIRST + '1,"labels":{"a":"b"}'),
    ("retry", FIRST + "1", FIRST + '1,"retry":{"attempts":2}'),
    ("expires", FIRST + "1", FIRST + '1,"expires":"PT1S"'),
    ("last digit of a large number", FIRST + "123456789012345678901", FIRST + "123456789012345678902"),
    ("last digit of a fraction", FIRST + "0.12345678901234567", FIRST + "0.12345678901234568"),
]


@pytest.mark.parametrize(("first", "again"), [case[1:] for case in SAME], ids=[case[0] for case in SAME])
async def test_same_id_and_content_is_200_and_the_same_event(world: World, first: str, again: str) -> None:
    made = await world.demo.post(EVENTS, f"{{{first}}}".encode())
    await world.clock.advance(5)
    answer = await changes_nothing_but_shards(world, f"{{{again}}}".encode())
    assert made.status == 201
    assert (answer.status, answer.body, answer.headers["etag"]) == (200, made.body, made.headers["etag"])
    assert len(world.events()) == 1


@pytest.mark.parametrize(("first", "again"), [case[1:] for case in OTHER], ids=[case[0] for case in OTHER])
async def test_same_id_and_other_content_is_409(world: World, first: str, again: str) -> None:
    made = await world.demo.post(EVENTS, f"{{{first}}}".encode())
    answer = await changes_nothing_but_shards(world, f"{{{again}}}".encode())
    assert (answer.status, answer.code) == (409, "id-conflict")
    assert (await world.demo.get(f"{EVENTS}/x")).body == made.body


async def changes_nothing_but_shards(world: World, body: bytes) -> Any:
    """A repeated id may open an empty shard for the event that it turns out not to be; nothing else changes."""
    before = {key: value for key, value in world.dump().items() if key[0] in ("TocsinEvents", "TocsinIds")}
    answer = await world.demo.post(EVENTS, body)
    assert {key: value for key, value in world.dump().items() if key[0] in ("TocsinEvents", "TocsinIds")} == before
    return answer


async def test_delay_is_compared_as_delay_however_late_it_is_sent_again(world: World) -> None:
    body = {"id": "x", "delay": "PT2H", "payload": 1}
    made = await world.demo.post(EVENTS, body)
    await world.clock.advance(3000)
    again = await world.demo.post(EVENTS, body)
    assert (again.status, again.json()["due"]) == (200, made.json()["due"])


async def test_same_id_answers_with_the_event_as_it_stands(world: World) -> None:
    body = {"id": "x", "delay": "PT1S", "payload": 1}
    assert (await world.demo.post(EVENTS, body)).status == 201
    await world.run(2)
    again = await world.demo.post(EVENTS, body)
    assert (again.status, again.json()["state"]) == (200, "delivered")
    assert (await world.demo.post(EVENTS, body | {"payload": 2})).status == 409


async def test_same_id_of_a_moved_event_still_answers_with_the_event_as_it_stands(world: World) -> None:
    body = {"id": "x", "delay": "PT1H", "payload": 1}
    made = await world.demo.post(EVENTS, body)
    moved = await world.demo.patch(f"{EVENTS}/x", {"due": "2027-01-15T12:00:00Z", "payload": 2})
    assert moved.status == 200
    again = await world.demo.post(EVENTS, body)
    assert (again.status, again.json()) == (200, moved.json()) and again.json() != made.json()
    cancelled = await world.demo.delete(f"{EVENTS}/x")
    assert cancelled.status == 204
    assert (await world.demo.post(EVENTS, body)).json()["state"] == "cancelled"


async def test_names_are_each_tenants_own(world: World) -> None:
    other = await world.tenant("acme")
    for client, payload in ((world.demo, 1), (other, 2)):
        assert (await client.create(id="same", payload=payload))["payload"] == payload
    assert (await other.delete(f"{EVENTS}/same")).status == 204
    assert (await world.demo.event("same"))["state"] == "scheduled"


def test_cases_have_distinct_names() -> None:
    assert all(one[0] != other[0] for one, other in itertools.combinations([*SAME, *OTHER], 2))


async def test_callbacks_and_notices_are_answered_as_documented(world: World) -> None:
    for name in ("told", "ops"):
        await world.admin.put(f"/api/v1/tenants/demo/channels/{name}", {"type": "http", "url": "http://localhost:7072/"})
    notices = {"channel": "ops", "kinds": ["event.dead", "schedule.ended"]}
    assert (await world.admin.put("/api/v1/tenants/demo", {"notices": notices})).json()["notices"] == notices
    await world.clock.advance(6)
    made = await world.demo.create(id="a", delay="PT1S", on_delivered="told", on_dead="told")
    assert (made["on_delivered"], made["on_dead"]) == ("told", "told")
    world.receiver.script("a", Verdict("final", 404, "answered 404"))
    schedule = {"every": "PT1H", "payload": 1, "on_dead": "told"}
    assert (await world.demo.put("/api/v1/schedules/s", schedule)).json()["on_dead"] == "told"
    await world.run(20)
    callback = await world.demo.event((await world.demo.event("a"))["callback"])
    assert callback["callback_of"] == "a"
    listed = (await world.demo.get(f"{EVENTS}?state=delivered")).json()["items"]
    assert sorted(each.get("notice", "callback") for each in listed) == ["callback", "event.dead"]
    assert (await world.demo.post(EVENTS, {"delay": "PT1S", "payload": 1, "on_dead": "nobody"})).pointers == ["/on_dead"]
    # Both are the service's own: no client can make them.
    for forged in ({"callback_of": "a"}, {"notice": "event.dead"}, {"callback": "a"}, {"owed": "notice"}):
        assert (await world.demo.post(EVENTS, {"delay": "PT1S", "payload": 1, **forged})).status == 422
