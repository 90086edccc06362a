"""Events one by one: creating, reading, changing, cancelling, firing, bringing back."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from shared.channels.ports import Verdict
from tests.integration.api.calls import AGAIN, DEAD, EVENTS, NEVER, changes_nothing, changes_of, dead
from tests.unit.scheduler.harness import World

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


async def test_id_of_the_service_is_told_apart_from_every_id_a_client_may_choose(world: World) -> None:
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


async def test_of_a_member_given_twice_the_last_counts(world: World) -> None:
    made = await world.demo.post(EVENTS, b'{"delay":"PT1S","payload":1,"payload":2,"delay":"PT2S"}')
    assert (made.json()["payload"], made.json()["due"]) == (2, "2027-01-15T08:00:02.000Z")


@pytest.mark.parametrize("due", ["2027-01-15T07:59:59.999Z", "1970-01-01T00:00:00Z", "1969-07-20T20:17:40Z", "0001-01-01T00:00:00Z"])
async def test_past_due_fires_at_once(world: World, due: str) -> None:
    made = await world.demo.create(due=due)
    await world.run(1)
    [got] = world.receiver.of(made["id"])
    assert got.began - world.now <= 1_000 and got.delivery.late_ms == got.began - got.delivery.due > 0
    event = await world.demo.event(made["id"])
    assert (event["state"], event["late_ms"]) == ("delivered", got.delivery.late_ms)
    assert event["due"][:19] == due[:19]


async def test_event_may_be_due_until_the_end_of_the_year_9999(world: World) -> None:
    made = await world.demo.create(due="9999-12-31T23:59:59.999Z", id="doomsday")
    assert made["due"] == "9999-12-31T23:59:59.999Z"
    await world.run(30)
    [listed] = await world.demo.all(f"{EVENTS}?from=9999-12-31T23:59:59Z")
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
"""What all the events below begin with."""
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


# ---- changing -----------------------------------------------------------------------------------


async def test_change_needs_the_etag_it_names(world: World) -> None:
    made = await world.demo.post(EVENTS, {"delay": "PT1H", "payload": 1})
    url, tag = made.headers["location"], made.headers["etag"]
    for change in ({"payload": 2}, {"delay": "PT2H"}):
        for wrong in ('"other"', f"W/{tag}", '"a", "b"'):
            answer = await changes_nothing(world.demo, "PATCH", url, change, if_match=wrong)
            assert (answer.status, answer.code) == (412, "precondition-failed")
        assert (await changes_nothing(world.demo, "PATCH", url, change, if_match=tag[1:-1])).pointers == ["@if-match"]
        changed = await world.demo.patch(url, change, {"if-match": f'"x", {tag}'})
        assert changed.status == 200 and changed.headers["etag"] != tag
        assert (await changes_nothing(world.demo, "PATCH", url, change, if_match=tag)).status == 412
        tag = changed.headers["etag"]
    for verb, call in (("DELETE", url), ("POST", f"{url}/fire")):
        assert (await changes_nothing(world.demo, verb, call, if_match='"other"')).status == 412
    assert (await world.demo.patch(url, {"payload": 3}, {"if-match": "*"})).status == 200
    tag = (await world.demo.get(url)).headers["etag"]
    assert (await world.demo.delete(url, {"if-match": tag})).status == 204


async def test_payload_may_shrink_and_grow_over_its_chunks(world: World) -> None:
    made = await world.demo.create(payload="x" * 50_000)
    url = f"{EVENTS}/{made['id']}"
    for payload in ("y", "z" * 33_000, "\U0001f514" * 16_000, None, "w" * 100_000, 0):
        answer = await world.demo.patch(url, {"payload": payload})
        assert (answer.status, answer.json()["payload"]) == (200, payload)
        assert (await world.demo.event(made["id"]))["payload"] == payload
    fired = await world.demo.post(f"{url}/fire")
    assert fired.status == 202
    await world.run(1)
    [got] = world.receiver.of(made["id"])
    assert got.delivery.body == b"0"


async def test_changed_payload_comes_back_byte_for_byte(world: World) -> None:
    made = await world.demo.create()
    answer = await world.demo.patch(f"{EVENTS}/{made['id']}", b'{ "payload" : [1e2, 1.0 ] }')
    assert b'"payload":[1e2, 1.0 ],' in answer.body
    answer = await world.demo.patch(f"{EVENTS}/{made['id']}", b'{ "payload" : [2e2, 1.0 ] , "delay":"PT2H"}')
    assert b'"payload":[2e2, 1.0 ],' in answer.body


async def test_expires_may_be_set_and_taken_away(world: World) -> None:
    made = await world.demo.create(expires="PT5S")
    url = f"{EVENTS}/{made['id']}"
    assert (await world.demo.patch(url, {"expires": "PT1M"})).json()["expires"] == "PT1M"
    assert "expires" not in (await world.demo.patch(url, {"expires": None})).json()
    assert (await world.demo.patch(url, {"expires": "PT0S"})).json()["expires"] == "PT0S"
    assert "expires" not in (await world.demo.patch(url, {"expires": None, "due": "2000-01-01T00:00:00Z"})).json()
    await world.run(1)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"


@pytest.mark.parametrize("chosen", [{}, {"id": "chosen"}])
async def test_event_fires_at_its_new_time_only(world: World, chosen: dict[str, str]) -> None:
    made = await world.demo.create(delay="PT20S", labels={"a": "b"}, expires="PT1H", retry={"attempts": 2}, **chosen)
    url = f"{EVENTS}/{made['id']}"
    later = await world.demo.patch(url, {"delay": "PT90S"})
    assert later.json() == made | {"due": "2027-01-15T08:01:30.003Z"}, "counted from the change, 3 ms after the creation"
    await world.run(30)
    assert world.receiver.received == []
    sooner = await world.demo.patch(url, {"due": "2027-01-15T08:00:40Z", "payload": "new", "expires": None})
    assert (sooner.json()["id"], sooner.json()["payload"]) == (made["id"], "new")
    await world.run(15)
    [got] = world.receiver.received
    assert (got.delivery.id, got.delivery.body, got.delivery.late_ms) == (made["id"], b'"new"', 0)
    await world.run(90)
    assert len(world.receiver.received) == 1
    assert [event["id"] for event in await world.demo.all(EVENTS)] == [made["id"]]


async def test_channel_may_be_changed(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/other", {"type": "http", "url": "http://localhost:1/"})).status == 201
    made = await world.demo.create(delay="PT5S")
    assert (await world.demo.patch(f"{EVENTS}/{made['id']}", {"channel": "other"})).json()["channel"] == "other"
    await world.run(6)
    [got] = world.receiver.received
    assert got.target.name == "other"


async def test_event_of_a_removed_channel_may_still_be_changed(world: World) -> None:
    url = "/api/v1/tenants/demo/channels/other"
    assert (await world.admin.put(url, {"type": "http", "url": "http://localhost:1/"})).status == 201
    made = await world.demo.create(channel="other")
    assert (await world.admin.delete(url)).status == 204
    assert (await world.demo.patch(f"{EVENTS}/{made['id']}", {"payload": 2})).status == 200
    assert (await world.demo.patch(f"{EVENTS}/{made['id']}", {"channel": "other"})).pointers == ["/channel"]
    assert (await world.demo.patch(f"{EVENTS}/{made['id']}", {"channel": "default"})).status == 200


# ---- cancelling, firing, bringing back ----------------------------------------------------------


async def test_cancelled_event_never_fires_and_stays_cancelled(world: World) -> None:
    made = await world.demo.create(delay="PT10S")
    url = f"{EVENTS}/{made['id']}"
    gone = await world.demo.delete(url)
    assert (gone.status, gone.body) == (204, b"")
    assert (await world.demo.event(made["id"]))["state"] == "cancelled"
    for method, path, body in changes_of(url):
        answer = await changes_nothing(world.demo, method, path, body)
        assert (answer.status, answer.code) == (409, "already-final")
    assert (await changes_nothing(world.demo, "POST", f"{url}/redrive")).code == "not-dead"
    await world.run(30)
    assert world.receiver.received == []


@pytest.mark.parametrize("chosen", [{}, {"id": "chosen"}])
async def test_event_may_be_fired_now(world: World, chosen: dict[str, str]) -> None:
    made = await world.demo.create(delay="PT1H", **chosen)
    await world.run(10)
    answer = await world.demo.post(f"{EVENTS}/{made['id']}/fire")
    assert (answer.status, answer.json()["state"], answer.json()["due"]) == (202, "scheduled", "2027-01-15T08:00:10.003Z")
    await world.run(2)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"
    assert (await changes_nothing(world.demo, "POST", f"{EVENTS}/{made['id']}/fire")).code == "already-final"
    await world.run(3600, step=30)
    assert world.receiver.delivered() == [made["id"]]


async def test_event_being_delivered_cannot_be_changed(world: World) -> None:
    world.receiver.takes = 30.0
    made = await world.demo.create(delay="PT0S")
    await world.run(5)
    assert (await world.demo.event(made["id"]))["state"] == "firing"
    url = f"{EVENTS}/{made['id']}"
    for method, path, body in changes_of(url):
        answer = await changes_nothing(world.demo, method, path, body)
        assert (answer.status, answer.code) == (409, "already-firing")
    assert (await changes_nothing(world.demo, "POST", f"{url}/redrive")).code == "not-dead"
    await world.run(40)
    assert (await world.demo.event(made["id"]))["state"] == "delivered"


async def test_retrying_event_may_be_cancelled_and_fired(world: World) -> None:
    world.receiver.otherwise = Verdict("retry", 503, "answered 503", retry_after=600)
    cancelled, fired = await world.demo.create(delay="PT0S"), await world.demo.create(delay="PT0S")
    await world.run(5)
    world.receiver.otherwise = Verdict("delivered", 200)
    assert (await world.demo.delete(f"{EVENTS}/{cancelled['id']}")).status == 204
    answer = await world.demo.post(f"{EVENTS}/{fired['id']}/fire")
    assert (answer.status, len(answer.json()["attempts"])) == (202, 1)
    await world.run(700, step=1)
    assert world.receiver.delivered() == [fired["id"]]
    assert [got.delivery.attempt for got in world.receiver.of(fired["id"])] == [1, 2]


@pytest.mark.parametrize("chosen", [{}, {"id": "chosen"}])
async def test_dead_event_is_listed_and_may_be_brought_back(world: World, chosen: dict[str, str]) -> None:
    made = await dead(world, **chosen)
    url = f"{EVENTS}/{made['id']}"
    [listed] = await world.demo.all(DEAD)
    assert listed == await world.demo.event(made["id"])
    assert (listed["error"], len(listed["attempts"]), listed["attempts"][0]["outcome"]) == ("answered 400", 1, "final")
    assert (await changes_nothing(world.demo, "DELETE", url)).code == "already-final"
    back = await world.demo.post(f"{url}/redrive")
    assert (back.status, back.json()["state"], back.json()["id"]) == (202, "scheduled", made["id"])
    assert back.headers["etag"] == (await world.demo.get(url)).headers["etag"]
    assert await world.demo.all(DEAD) == []
    assert (await changes_nothing(world.demo, "POST", f"{url}/redrive")).code == "not-dead"
    await world.run(3)
    event = await world.demo.event(made["id"])
    assert (event["state"], len(event["attempts"])) == ("delivered", 2)
    assert [got.delivery.attempt for got in world.receiver.of(made["id"])] == [1, 1]
    assert [each["id"] for each in await world.demo.all(f"{EVENTS}?state=delivered")] == [made["id"]]


async def test_redrive_by_filter_takes_what_matches_and_tells_how_many(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/other", {"type": "http", "url": "http://localhost:1/"})).status == 201
    world.receiver.otherwise = NEVER
    for number in range(5):
        await world.demo.create(delay="PT1S", channel="other" if number % 2 else "default")
    await world.run(90)
    late = [await world.demo.create(delay="PT1S") for _ in range(2)]
    await world.run(5)
    world.receiver.otherwise = Verdict("delivered", 200)
    assert len(await world.demo.all(f"{DEAD}?channel=other")) == 2
    assert len(await world.demo.all(f"{DEAD}?to=2027-01-15T08:01:00Z")) == 5
    assert {event["id"] for event in await world.demo.all(f"{DEAD}?from=2027-01-15T08:01:00Z")} == {event["id"] for event in late}

    async def redrive(**chosen: str) -> int:
        answer = await world.demo.post(f"{DEAD}/redrive", chosen)
        assert answer.status == 202
        count: int = answer.json()["redriven"]
        return count

    assert await redrive(channel="nowhere") == 0
    assert await redrive(channel="other") == 2
    assert await redrive(**{"from": "2027-01-15T08:01:00Z"}) == 2
    assert await redrive() == 3
    assert await redrive() == 0
    await world.run(5)
    assert len(world.receiver.delivered()) == 7 and await world.demo.all(DEAD) == []


async def test_event_that_is_not_dead_cannot_be_brought_back(world: World) -> None:
    waiting, done = await world.demo.create(), await world.demo.create(delay="PT0S")
    await world.run(2)
    for event in (waiting, done):
        answer = await changes_nothing(world.demo, "POST", f"{EVENTS}/{event['id']}/redrive")
        assert (answer.status, answer.code) == (409, "not-dead")


def test_cases_have_distinct_names() -> None:
    assert all(one[0] != other[0] for one, other in itertools.combinations([*SAME, *OTHER], 2))
