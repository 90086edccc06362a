"""The receiver's helper for long work, against the application in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import httpx
import pytest

from shared import Conflict, ServerFailed, Unauthenticated, Work
from shared.client.http import PlainHttpRefused
from shared.delivery.channels.ports import Verdict
from shared.web.local_client import LocalReply
from tests.unit.scheduler.harness import World

APP = "https://app.example"
TOKEN = "tct_1_" + "A" * 43


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World(public_url=f"{APP}/").open()
    channel = {"type": "http", "url": "http://localhost:7072/x", "long_work": {}}
    assert (await world.admin.put("/api/v1/tenants/demo/channels/default", channel)).status == 200
    world.receiver.otherwise = Verdict("delivered", 202, later=True)
    yield world
    await world.close()


async def accepted(world: World) -> tuple[str, Work]:
    event_id = str((await world.demo.create(delay="PT0S"))["id"])
    await world.run(2)
    delivery = world.receiver.of(event_id)[-1].delivery
    offer = delivery.completion
    assert offer is not None
    return event_id, Work(offer.url(1), offer.token(1), timedelta(milliseconds=offer.within))


def transport(world: World) -> httpx.AsyncBaseTransport:
    async def handle(request: httpx.Request) -> httpx.Response:
        assert str(request.url).startswith(APP)
        sent = {name: request.headers[name] for name in ("authorization", "content-type", "content-length") if name in request.headers}
        body = await request.aread()
        reply: LocalReply = await world.nobody.call("POST", request.url.path, body or None, sent)
        return httpx.Response(reply.status, headers=reply.headers, content=reply.body)

    return httpx.MockTransport(handle)


async def test_work_is_extended_and_completed(world: World) -> None:
    event_id, work = await accepted(world)
    assert work.later() == {"Tocsin-Complete": "later"} and work.token not in repr(work)
    again = Work.load(work.save())
    assert again == work and again.within == timedelta(minutes=15)
    await world.run(60)
    state = await again.heartbeat_async(transport=transport(world))
    assert state.state == "working" and state.deadline is not None and state.latest is not None and state.deadline < state.latest
    assert (await again.complete_async(transport=transport(world))).event == "delivered"
    assert (await world.demo.event(event_id))["state"] == "delivered"
    with pytest.raises(Conflict) as refused:
        await again.heartbeat_async(transport=transport(world))
    assert refused.value.code == "work-over" and work.token not in str(refused.value)


async def test_work_fails_with_an_error_of_any_text(world: World) -> None:
    event_id, work = await accepted(world)
    state = await work.fail_async("disk\nfull\x00" + "x" * 900, retry_after=timedelta(minutes=2), transport=transport(world))
    assert state.event == "retrying" and state.next_attempt is not None
    [attempt] = (await world.demo.event(event_id))["attempts"]
    assert attempt["error"].startswith("disk full x") and len(attempt["error"]) == 400
    event_id, work = await accepted(world)
    assert (await work.fail_async(retry=False, transport=transport(world))).event == "dead"


async def test_a_wrong_token_is_refused(world: World) -> None:
    _, work = await accepted(world)
    with pytest.raises(Unauthenticated):
        await Work(work.url, TOKEN).complete_async(transport=transport(world))


def test_calls_are_repeated() -> None:
    tries: list[str] = []

    def handle(request: httpx.Request) -> httpx.Response:
        tries.append(request.headers["authorization"])
        if len(tries) == 1:
            raise httpx.ReadTimeout("late")
        if len(tries) == 2:
            return httpx.Response(503, headers={"retry-after": "1"}, json={"type": "x/attempt-unsettled", "detail": "early"})
        return httpx.Response(200, json={"state": "completed", "event": "delivered"})

    slept: list[float] = []
    options: dict[str, Any] = {"transport": httpx.MockTransport(handle), "sleep": slept.append}
    work = Work("http://127.0.0.1:1/api/v1/work/t/0123456789abcdef.000/1", TOKEN).at(APP)
    assert work.complete(**options).event == "delivered" and tries == [f"Bearer {TOKEN}"] * 3 and slept[1] >= 1
    tries[:] = []
    with pytest.raises(ServerFailed):
        work.heartbeat(**options, retries=1)
    tries[:] = ["", ""]
    assert work.fail("no", **options).state == "completed"


@pytest.mark.parametrize(
    ("work", "wrong"),
    [
        (Work("/api/v1/work/t/0123456789abcdef.000/1", TOKEN), "TOCSIN_PUBLIC_URL"),
        (Work(f"{APP}/elsewhere", TOKEN), "names no app"),
        (Work(f"{APP}/api/v1/work/t/0123456789abcdef.000/1", "x"), "not the token"),
    ],
)
def test_work_that_cannot_be_called(work: Work, wrong: str) -> None:
    with pytest.raises(ValueError, match=wrong):
        work.complete()


def test_a_token_does_not_travel_unencrypted() -> None:
    with pytest.raises(PlainHttpRefused):
        Work("http://app.example/api/v1/work/t/0123456789abcdef.000/1", TOKEN).complete()


@pytest.mark.parametrize("text", ["{}", "[]", "x", '{"url": "u", "token": "t"}'])
def test_texts_that_hold_no_work(text: str) -> None:
    with pytest.raises(ValueError):
        Work.load(text)
