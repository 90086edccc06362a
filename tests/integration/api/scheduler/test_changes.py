"""Events one by one: changing, cancelling, firing, bringing back."""

from __future__ import annotations

import pytest

from shared.delivery.channels.ports import Verdict
from tests.integration.api.calls import DEAD, EVENTS, NEVER, changes_nothing, changes_of, dead
from tests.unit.scheduler.harness import World

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


async def test_refusal_says_when_a_change_becomes_possible_and_that_is_so(world: World) -> None:
    world.receiver.takes, world.receiver.otherwise = 30.0, Verdict("retry", 503, "answered 503", retry_after=600)
    made, lost = await world.demo.create(delay="PT0S"), await world.demo.create(delay="PT0S")
    await world.run(5)
    await world.put_props("demo", lost["id"], flag=True)
    details = {each["id"]: (await world.demo.delete(f"{EVENTS}/{each['id']}")).json()["detail"] for each in (made, lost)}
    assert "while its state is `retrying`" in details[made["id"]]
    assert "until it has ended" in details[lost["id"]]
    await world.run(40)
    for each in (made, lost):
        assert (await world.demo.event(each["id"]))["state"] == "retrying"
    assert (await world.demo.delete(f"{EVENTS}/{lost['id']}")).json()["detail"] == details[lost["id"]]
    assert (await world.demo.delete(f"{EVENTS}/{made['id']}")).status == 204


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


async def test_redrive_by_filter_takes_what_matches_and_shows_how_many(world: World) -> None:
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


# ---- fan-outs -----------------------------------------------------------------------------------


async def test_every_answer_about_a_fan_out_is_as_the_document_says(world: World) -> None:
    hook = {"type": "http", "url": "http://localhost:7072/x"}
    for name in ("a", "b"):
        assert (await world.admin.put(f"/api/v1/tenants/demo/channels/{name}", hook)).status == 201
    given = {"id": "x", "channels": ["a", "b"], "delay": "PT1H", "payload": 1}
    calls = [("POST", EVENTS, given, 201), ("POST", EVENTS, given, 200), ("GET", f"{EVENTS}/x", None, 200)]
    calls += [("PATCH", f"{EVENTS}/x", {"delay": "PT2H"}, 200), ("POST", f"{EVENTS}/x/fire", None, 202)]
    calls += [("POST", f"{EVENTS}/x/redrive", None, 202), ("DELETE", f"{EVENTS}/x", None, 200), ("GET", EVENTS, None, 200)]
    schedule = {"every": "PT1H", "channels": ["a", "b"], "payload": 1}
    calls += [("PUT", "/api/v1/schedules/s", schedule, 201), ("GET", "/api/v1/schedules/s", None, 200)]
    calls += [("POST", "/api/v1/schedules/s/trigger", None, 202)]
    # The world shows each answer to the check against the document.
    for method, url, body, status in calls:
        assert (await world.demo.call(method, url, body)).status == status, (method, url)
