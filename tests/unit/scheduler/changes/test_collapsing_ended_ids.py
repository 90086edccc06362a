"""A post of an event whose id belongs to a run that has ended without a delivery."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from shared.scheduler.changes.verbs import ChangeRequest

from ..harness import World

URL = "/api/v1/events"
REFUSED = Verdict("final", 400)


async def ended(world: World, how: str, event_id: str = "x") -> dict[str, Any]:
    """An event that has ended in a state; returns its request."""
    request = {"id": event_id, "due": "2027-01-15T08:00:10Z", "payload": {"n": 1}, **({"expires": "PT1S"} if how == "lapsed" else {})}
    if how == "dead":
        world.receiver.script(event_id, REFUSED, Verdict("delivered", 200))
    if how == "lapsed":
        assert (await world.admin.post("/api/v1/tenants/demo/channels/default/pause")).status == 200
    assert (await world.demo.post(URL, request)).status == 201
    if how == "cancelled":
        assert (await world.demo.delete(f"{URL}/{event_id}")).status == 204
    await world.run(60)
    assert (await world.demo.event(event_id))["state"] == how
    return request


@pytest.mark.parametrize("how", ["dead", "cancelled", "lapsed"])
async def test_answer_says_in_a_header_that_the_event_has_ended_and_schedules_nothing(world: World, how: str) -> None:
    request = await ended(world, how)
    before = world.events()
    for given in (request, request | {"on_conflict": "keep"}):
        answer = await world.demo.post(URL, given)
        assert (answer.status, answer.json()["state"], answer.headers["tocsin-conflict"]) == (200, how, how)
    assert world.events() == before


async def test_open_and_delivered_events_and_other_content_have_no_such_header(world: World) -> None:
    request = {"id": "x", "due": "2027-01-15T08:00:10Z", "payload": {"n": 1}}
    answers = [await world.demo.post(URL, request | {"on_conflict": "error"}) for _ in range(2)]
    await world.run(20)
    answers += [await world.demo.post(URL, request | {"on_conflict": wanted}) for wanted in ("keep", "error", "redrive")]
    assert [(each.status, each.json()["state"]) for each in answers] == [
        (201, "scheduled"),
        (200, "scheduled"),
        *[(200, "delivered")] * 3,
    ]
    assert all("tocsin-conflict" not in each.headers for each in answers)
    assert len(world.receiver.of("x")) == 1
    other = await world.demo.post(URL, request | {"payload": 2, "on_conflict": "redrive"})
    assert (other.status, other.code) == (409, "id-conflict")


@pytest.mark.parametrize(
    ("how", "wanted"), [("dead", "error"), ("cancelled", "error"), ("cancelled", "redrive"), ("lapsed", "error"), ("lapsed", "redrive")]
)
async def test_error_and_a_redrive_of_what_is_not_dead_are_409_and_change_nothing(world: World, how: str, wanted: str) -> None:
    request = await ended(world, how)
    before = world.events()
    answer = await world.demo.post(URL, request | {"on_conflict": wanted})
    assert (answer.status, answer.code) == (409, "already-final") and f"x exists and is {how}" in answer.json()["detail"]
    assert world.events() == before


async def test_redrive_delivers_a_dead_event_again_and_once_for_calls_at_the_same_time(world: World) -> None:
    request = await ended(world, "dead") | {"on_conflict": "redrive"}
    answers = await world.do(asyncio.gather(*(world.demo.without_time().post(URL, request) for _ in range(3))))
    assert {each.status for each in answers} == {200} and all("tocsin-conflict" not in each.headers for each in answers)
    assert {each.json()["state"] for each in answers} <= {"scheduled", "firing", "delivered"}
    await world.run(20)
    assert (await world.demo.event("x"))["state"] == "delivered" and len(world.receiver.of("x")) == 2


async def test_fan_out_with_a_dead_event_is_kept_refused_or_redriven(world: World) -> None:
    for name in ("a", "b"):
        await world.admin.put(f"/api/v1/tenants/demo/channels/{name}", {"type": "http", "url": "http://localhost:7072/x"})
    world.receiver.script("x@b", REFUSED, Verdict("delivered", 200))
    request = {"id": "x", "due": "2027-01-15T08:00:10Z", "payload": 1, "channels": ["a", "b"]}
    assert (await world.demo.post(URL, request)).status == 201
    await world.run(20)
    kept = await world.demo.post(URL, request)
    assert (kept.status, kept.headers["tocsin-conflict"]) == (200, "dead")
    refused = await world.demo.post(URL, request | {"on_conflict": "error"})
    assert (refused.status, refused.code) == (409, "already-final")
    redriven = await world.demo.post(URL, request | {"on_conflict": "redrive"})
    assert redriven.status == 200 and "tocsin-conflict" not in redriven.headers
    await world.run(20)
    assert [len(world.receiver.of(f"x@{name}")) for name in ("a", "b")] == [1, 2]
    assert {each["state"] for each in (await world.demo.event("x"))["events"]} == {"delivered"}


async def test_line_of_a_batch_shows_the_state_and_a_batch_takes_no_other_treatment(world: World) -> None:
    request = await ended(world, "dead")
    lines = [request, {"delay": "PT1H", "payload": 1}, {"id": "y", "delay": "PT1H", "payload": 1, "on_conflict": "error"}]
    results = (await world.demo.post(f"{URL}/batch", lines)).json()["results"]
    assert [(each["status"], each.get("ended")) for each in results] == [(200, "dead"), (201, None), (422, None)]
    assert results[2]["problem"]["errors"][0]["pointer"] == "/on_conflict"


@pytest.mark.parametrize(
    "given",
    [
        {"on_conflict": "redrive"},
        {"on_conflict": "error", "id": "x", "collapse": "PT1H"},
        {"on_conflict": "replace", "id": "x"},
        {"on_conflict": None, "id": "x"},
    ],
)
async def test_treatment_without_an_id_or_beside_collapse_is_refused(world: World, given: dict[str, Any]) -> None:
    before = world.events()
    assert (await world.demo.post(URL, {"delay": "PT1H", "payload": 1} | given)).status == 422
    assert world.events() == before


@pytest.mark.parametrize("theirs", [True, False])
async def test_redrive_that_meets_a_cancel_says_that_nothing_is_scheduled(
    world: World, monkeypatch: pytest.MonkeyPatch, theirs: bool
) -> None:
    """theirs: another call has redriven the event, too."""
    request = await ended(world, "dead") | {"on_conflict": "redrive"}
    changes = world.app.scheduler.changes
    redrive = changes.redrive_one

    async def redriven_and_cancelled(asked: ChangeRequest, event_id: str) -> None:
        await redrive(asked, event_id)
        await changes.cancel(asked, event_id)
        if theirs:
            await redrive(asked, event_id)

    monkeypatch.setattr(changes, "redrive_one", redriven_and_cancelled)
    answer = await world.demo.post(URL, request)
    if theirs:
        assert (answer.status, answer.code) == (409, "already-final")
    else:
        assert (answer.status, answer.json()["state"], answer.headers["tocsin-conflict"]) == (200, "cancelled", "cancelled")
    await world.run(20)
    assert len(world.receiver.of("x")) == 1
