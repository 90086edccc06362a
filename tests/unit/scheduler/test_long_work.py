"""A receiver answers 202 with `Tocsin-Complete: later`, and completes, fails or extends the event with the attempt's token."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shared.delivery.channels.ports import OutgoingDelivery, Verdict
from shared.scheduler.facets.long_work import hash_of
from shared.storage.names import EVENTS, SHARDS
from shared.web.local_client import LocalReply
from tests.texts import assert_text

from .harness import World

LATER = Verdict("delivered", 202, later=True)
WORK = {"within": "PT15M", "at_most": "PT1H"}


async def allow(world: World, **change: Any) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/x", "long_work": WORK} | change
    assert (await world.admin.put("/api/v1/tenants/demo/channels/default", channel)).status == 200


async def accepted(world: World, *script: Verdict, **event: Any) -> str:
    """Return the id of an event whose first attempt was accepted."""
    await allow(world)
    made = await world.demo.create(**{"delay": "PT0S", **event})
    world.receiver.script(made["id"], *(script or (LATER,)))
    await world.run(2)
    return str(made["id"])


def sent(world: World, event_id: str, number: int = -1) -> OutgoingDelivery:
    return world.receiver.of(event_id)[number].delivery


async def tell(world: World, delivery: OutgoingDelivery, verb: str, body: Any = None, token: str | None = None) -> LocalReply:
    """Make the call that a receiver makes."""
    offer = delivery.completion
    assert offer is not None
    headers = {"authorization": f"Bearer {offer.token(delivery.attempt) if token is None else token}"}
    return await world.nobody.post(f"{offer.url(delivery.attempt)}/{verb}", body, headers)


async def test_an_event_is_delivered_when_its_receiver_completes_it(world: World) -> None:
    event_id = await accepted(world)
    event = await world.demo.event(event_id)
    assert event["state"] == "working" and "next_attempt" not in event
    assert {"attempt": 1, "heartbeats": 0, "within": "PT15M"}.items() <= event["work"].items()
    assert [attempt["outcome"] for attempt in event["attempts"]] == ["working"]
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["retrying"], stats["working"]) == (1, 1, 1)
    assert b'\ntocsin_events_working{tenant="demo"} 1.0\n' in (await world.admin.get("/api/metrics")).body
    await world.run(600)
    done = await tell(world, sent(world, event_id), "complete")
    assert (done.status, done.json()) == (200, {"state": "completed", "event": "delivered"})
    event = await world.demo.event(event_id)
    assert event["state"] == "delivered" and event["late_ms"] < 1_000 and "work" not in event
    assert [(each["outcome"], each["status"], each["took_ms"] >= 600_000) for each in event["attempts"]] == [("delivered", 202, True)]
    again = await tell(world, sent(world, event_id), "complete")
    assert again.json() == done.json()
    assert (await tell(world, sent(world, event_id), "fail")).code == "work-over"
    await world.run(60)
    assert len(world.receiver.of(event_id)) == 1 and not world.rows(SHARDS), "the shard is finished long before the deadline"
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["delivered"], stats["open"], stats["retrying"], stats["working"]) == (1, 0, 0, 0)
    assert b'\ntocsin_events_working{tenant="demo"} 0.0\n' in (await world.admin.get("/api/metrics")).body


async def test_waiting_takes_no_storage_request(world: World) -> None:
    await accepted(world)
    await world.run(30)
    before = world.rows(EVENTS) + world.rows(SHARDS)
    await world.run(600)
    assert world.rows(EVENTS) + world.rows(SHARDS) == before


async def test_silence_is_a_failed_attempt(world: World) -> None:
    event_id = await accepted(world, LATER, Verdict("delivered", 200), retry={"schedule": ["PT1M"]})
    first = sent(world, event_id)
    await world.run(15 * 60 - 10)
    assert (await world.demo.event(event_id))["state"] == "working"
    await world.run(20)
    event = await world.demo.event(event_id)
    assert event["state"] == "retrying"
    assert [each["outcome"] for each in event["attempts"]] == ["retry"] and "did not complete it in time" in event["attempts"][0]["error"]
    for verb in ("complete", "fail", "heartbeat"):
        late = await tell(world, first, verb)
        assert (late.status, late.code) == (409, "work-over") and "the time of this attempt was over" in late.json()["detail"]
    await world.run(90)
    assert (await world.demo.event(event_id))["state"] == "delivered" and len(world.receiver.of(event_id)) == 2
    assert (await tell(world, first, "complete")).status == 409


async def test_an_event_dies_of_the_silence_after_its_last_attempt(world: World) -> None:
    event_id = await accepted(world, retry={"attempts": 1})
    await world.run(15 * 60 + 10)
    [dead] = await world.demo.all("/api/v1/dead-letters")
    assert dead["id"] == event_id and "nothing was heard of it" in dead["error"]
    assert (await world.demo.post(f"/api/v1/events/{event_id}/redrive")).status == 202
    assert (await tell(world, sent(world, event_id), "complete")).status == 409
    await world.run(5)
    assert (await world.demo.event(event_id))["state"] == "working", "the copy has work of its own"
    assert (await tell(world, sent(world, event_id), "complete")).json()["event"] == "delivered"
    assert (await world.demo.event(event_id))["state"] == "delivered"


async def test_heartbeats_extend_the_time_up_to_its_limit(world: World) -> None:
    event_id = await accepted(world, retry={"schedule": ["PT1M"]})
    delivery = sent(world, event_id)
    since = world.now
    for beat in range(1, 6):
        await world.run(600)
        heard = (await tell(world, delivery, "heartbeat")).json()
        event = await world.demo.event(event_id)
        assert event["work"]["heartbeats"] == beat and event["work"]["deadline"] == heard["deadline"] <= heard["latest"]
    await world.run(300)
    assert (await tell(world, delivery, "heartbeat")).json()["deadline"] == heard["latest"]
    assert (await world.demo.event(event_id))["work"]["heartbeats"] == 5, "a heartbeat that changes nothing is not stored"
    await world.run(300 + 10)
    assert (await world.demo.event(event_id))["state"] == "retrying" and world.now - since >= 3_600_000


async def test_work_that_fails_is_retried_by_the_policy(world: World) -> None:
    event_id = await accepted(world, LATER, LATER, LATER, retry={"schedule": ["PT10S", "PT20S"]})
    failed = await tell(world, sent(world, event_id), "fail", {"error": "the disk is full"})
    assert (failed.status, failed.json()["event"]) == (200, "retrying")
    assert [each["error"] for each in (await world.demo.event(event_id))["attempts"]] == ["the disk is full"]
    assert (await tell(world, sent(world, event_id), "fail")).status == 200, "a repetition changes nothing"
    first = sent(world, event_id)
    await world.run(15)
    assert sent(world, event_id).attempt == 2, "long before the deadline of the first attempt"
    assert (await tell(world, first, "complete")).status == 409
    await tell(world, sent(world, event_id), "fail", {"retry_after": "PT1M"})
    await world.run(55)
    assert len(world.receiver.of(event_id)) == 2
    await world.run(40)
    assert (await tell(world, sent(world, event_id), "fail")).json()["event"] == "dead"
    assert (await world.demo.all("/api/v1/dead-letters"))[0]["id"] == event_id


async def test_work_that_must_not_be_retried_kills_the_event(world: World) -> None:
    event_id = await accepted(world)
    assert (await tell(world, sent(world, event_id), "fail", {"error": "no such order", "retry": False})).json()["event"] == "dead"
    event = await world.demo.event(event_id)
    assert (event["state"], event["error"], event["attempts"][0]["outcome"]) == ("dead", "no such order", "final")
    await world.run(60)
    assert (await world.demo.get("/api/v1/stats")).json()["dead"] == 1


async def test_a_receiver_learns_that_its_event_was_cancelled_or_moved(world: World) -> None:
    event_id = await accepted(world)
    assert (await world.demo.delete(f"/api/v1/events/{event_id}")).status == 204
    refused = await tell(world, sent(world, event_id), "heartbeat")
    assert refused.code == "work-over"
    assert_text("problem.work-over", refused.json()["detail"])
    event_id = await accepted(world)
    assert (await world.demo.patch(f"/api/v1/events/{event_id}", {"delay": "PT2H"})).status == 200
    assert (await world.demo.event(event_id))["state"] == "scheduled"
    assert (await tell(world, sent(world, event_id), "complete")).json()["detail"].startswith("the event was rescheduled")
    assert (await world.demo.event(event_id))["state"] == "scheduled"


async def test_an_edit_leaves_the_work_alone(world: World) -> None:
    event_id = await accepted(world)
    assert (await world.demo.patch(f"/api/v1/events/{event_id}", {"payload": 2})).status == 200
    assert (await world.demo.event(event_id))["state"] == "working"
    assert (await tell(world, sent(world, event_id), "complete")).status == 200


async def test_work_that_began_in_time_does_not_lapse(world: World) -> None:
    event_id = await accepted(world, expires="PT1M")
    await world.run(120)
    assert (await world.demo.event(event_id))["state"] == "working"
    assert (await tell(world, sent(world, event_id), "fail")).json()["event"] == "lapsed", "a retry would be too late"


async def test_a_call_before_the_answer_is_stored_is_to_be_repeated(world: World) -> None:
    await allow(world)
    made = await world.demo.create(delay="PT0S")
    early: list[LocalReply] = []

    async def fast(target: Any, delivery: OutgoingDelivery) -> Verdict:
        offer = delivery.completion
        assert offer is not None
        nobody, headers = world.nobody.without_time(), {"authorization": f"Bearer {offer.token(delivery.attempt)}"}
        early.append(await nobody.post(f"{offer.url(delivery.attempt)}/complete", None, headers))
        return LATER

    world.receiver.script(made["id"], fast)
    await world.run(3)
    assert [(each.status, each.code, each.headers["retry-after"]) for each in early] == [(503, "attempt-unsettled", "1")]
    assert early[0].json()["outcome"] == "unchanged"
    assert (await tell(world, sent(world, made["id"]), "complete")).status == 200


async def test_express_events_are_completed_too() -> None:
    world = await World(express_events=200).open()
    try:
        await allow(world)
        world.receiver.otherwise = LATER
        event_id = (await world.demo.create(delay="PT0S"))["id"]
        await world.run(60)
        assert (await world.demo.event(event_id))["state"] == "working"
        await tell(world, sent(world, event_id), "complete")
        await world.run(60)
        assert (await world.demo.event(event_id))["state"] == "delivered" and not world.rows(SHARDS)
    finally:
        await world.close()


async def test_strangers_learn_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    event_id = await accepted(world)
    delivery = sent(world, event_id)
    offer = delivery.completion
    assert offer is not None
    good, before = offer.token(1), world.dump()
    url = offer.url(1)
    tokens = ["", "x", "local-demo-key", offer.token(2), good.replace("tct_1_", "tct_2_"), good[:-1], f"{good}A", "tct_1_" + "A" * 43]
    answers = [await tell(world, delivery, "complete", token=token) for token in tokens]
    for other in (url.replace("/demo/", "/other/"), f"{url}0", url.replace(".000/", ".001/")):
        answers.append(await world.nobody.post(f"{other}/complete", None, {"authorization": f"Bearer {good}"}))
    answers.append(await world.nobody.post(f"{url}/complete"))
    # A body is not looked at before the token is.
    answers.append(await world.nobody.post(f"{url}/fail", b"{", {"authorization": "Bearer x"}))
    answers.append(await world.nobody.post(f"{url}/fail", b"x" * 100_000, {"authorization": "Bearer x", "content-type": "text/html"}))
    # Nor is the query, and nor are the parts of the path.
    answers += [await world.nobody.post(f"{url}/{call}?nope=1") for call in ("complete", "fail", "heartbeat")]
    for other in (f"{url}x", url.replace("/demo/", "/De~mo/"), f"{url.rpartition('/')[0]}/{'1' * 5000}"):
        answers.append(await world.nobody.post(f"{other}/complete", None, {"authorization": f"Bearer {good}"}))
    assert {(each.status, each.code, each.json()["detail"]) for each in answers} == {(401, "unauthenticated", answers[0].json()["detail"])}
    assert world.dump() == before
    assert (await world.nobody.post(url.replace("/work/demo/", "/work/demo/.../") + "/complete")).status == 404
    assert not any(good in text for text in (caplog.text, repr(delivery), repr(before)))
    [row] = [row for row in world.rows(EVENTS) if row.rk.startswith("e")]
    assert hash_of(good) in row.props["work"]


async def test_calls_are_bounded(world: World) -> None:
    event_id = await accepted(world)
    nobody, offer = world.nobody.without_time(), sent(world, event_id).completion
    assert offer is not None
    headers = {"authorization": f"Bearer {offer.token(1)}"}
    answers = [await nobody.post(f"{offer.url(1)}/heartbeat", None, headers) for _ in range(7)]
    assert [each.status for each in answers] == [200] * 5 + [429] * 2 and answers[-1].headers["retry-after"] == "1"
    await world.run(2)
    assert (await nobody.post(f"{offer.url(1)}/fail", {"error": "x" * 5_000}, headers)).status == 413
    assert (await nobody.post(f"{offer.url(1)}/fail", {"error": "a\nb"}, headers)).pointers == ["/error"]
    assert (await world.demo.event(event_id))["state"] == "working"


async def test_lists_show_work_apart_from_retries(world: World) -> None:
    working = await accepted(world)
    retrying = await accepted(world, Verdict("retry", 503, "answered 503"))
    found = {state: [each["id"] for each in await world.demo.all(f"/api/v1/events?state={state}")] for state in ("working", "retrying")}
    assert found == {"working": [working], "retrying": [retrying]}


async def test_a_channel_that_does_not_allow_it_takes_202_as_a_delivery(world: World) -> None:
    made = await world.demo.create(delay="PT0S")
    world.receiver.script(made["id"], LATER)
    await world.run(2)
    assert (await world.demo.event(made["id"]))["state"] == "delivered" and sent(world, made["id"]).completion is None


@pytest.mark.parametrize("wrong", [{"within": "PT1S"}, {"within": "PT2H", "at_most": "PT1H"}, {"at_most": "P8D"}])
async def test_limits_of_the_setting(world: World, wrong: dict[str, str]) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/x", "long_work": wrong}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/default", channel)).status == 422


async def test_the_end_of_work_has_its_callback_at_once(world: World) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/outcomes"}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/outcomes", channel)).status == 201
    outcomes = {"on_delivered": "outcomes", "on_dead": "outcomes"}
    for verb, body, ended in (("complete", None, "event.delivered"), ("fail", {"retry": False}, "event.dead")):
        event_id = await accepted(world, **outcomes)
        await tell(world, sent(world, event_id), verb, body)
        await world.run(20)
        told = [got.payload for got in world.receiver.received if got.target.name == "outcomes" and got.payload["event"] == event_id]
        assert [each["type"] for each in told] == [ended]
    silent = await accepted(world, retry={"attempts": 1}, **outcomes)
    await world.run(15 * 60 + 20)
    assert [got.payload["event"] for got in world.receiver.received if got.target.name == "outcomes"][-1] == silent


@pytest.mark.parametrize("verb", ["complete", "fail", "heartbeat"])
async def test_work_of_a_tenant_that_was_deleted_is_gone(world: World, verb: str) -> None:
    event_id = await accepted(world)
    delivery = sent(world, event_id)
    assert (await world.admin.delete("/api/v1/tenants/demo")).status in (202, 204)
    await world.run(30)
    assert (await tell(world, delivery, verb)).status == 404


async def test_a_completed_event_is_open_no_more_before_an_owner_comes(world: World) -> None:
    done, goes_on = await accepted(world), await accepted(world)
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["working"]) == (2, 2)
    assert (await tell(world, sent(world, done), "complete")).status == 200
    await world.run(5)
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["working"], stats["delivered"]) == (1, 1, 1)
    assert (await tell(world, sent(world, goes_on), "fail", {"error": "no", "retry": False})).status == 200
    await world.run(5)
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert (stats["open"], stats["retrying"], stats["delivered"], stats["dead"]) == (0, 0, 1, 1)
