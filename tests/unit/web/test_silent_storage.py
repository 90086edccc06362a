"""Calls while storage is silent: each is answered in time, and the answer says what is known of its outcome."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import Any

import pytest

from shared.client.http import SLOW
from shared.web import serve
from shared.web.routes import Answer
from shared.whatif.twin.loop import VirtualLoop

from .conftest import THING, World


async def _silent(*_: Any) -> Any:
    await asyncio.Event().wait()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serve, "ANSWER_WITHIN", 0.01)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("method", "outcome"), [("GET", "unchanged"), ("PUT", "unknown")])
async def test_a_call_whose_storage_is_silent_is_answered_and_says_what_is_known(
    world: World, method: str, outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def silent(call: Any) -> Any:
        begun.set()
        await _silent()

    route = next(each for each in world.routes if (each.method, each.template) == (method, "v1/things/{name}"))
    monkeypatch.setitem(route.__dict__, "handler", silent)
    answer = await world.demo.call(method, "/api/v1/things/a")
    assert begun.is_set()
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "storage-unavailable", "1")
    assert answer.json()["outcome"] == outcome
    assert ("may still be" in answer.json()["detail"]) == (outcome == "unknown")


@pytest.mark.usefixtures("impatient")
async def test_a_call_that_was_answered_before_its_key_was_read_never_begins(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, read = asyncio.Event(), world.app.directory.key

    async def slow_key(token: str) -> Any:
        await answers.wait()
        return await read(token)

    monkeypatch.setattr(world.app.directory, "key", slow_key)
    answer = await world.demo.post("/api/v1/things", THING)
    assert (answer.status, answer.json()["outcome"]) == (503, "unchanged")
    [late] = serve._late
    answers.set()
    await late
    assert world.app.seen == [] and not serve._late


@pytest.mark.usefixtures("impatient")
async def test_a_change_that_was_begun_goes_on_after_the_answer(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    answers, ended = asyncio.Event(), list[str]()

    async def slow(call: Any) -> Answer:
        await answers.wait()
        ended.append("whole")
        return Answer(204)

    route = next(each for each in world.routes if (each.method, each.template) == ("PUT", "v1/things/{name}"))
    monkeypatch.setitem(route.__dict__, "handler", slow)
    assert (await world.demo.put("/api/v1/things/a")).status == 503
    [late] = serve._late
    answers.set()
    assert (await late).status == 204 and ended == ["whole"]


async def test_a_call_that_is_cancelled_takes_its_handler_with_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, ended = asyncio.Event(), list[str]()

    async def slow(call: Any) -> Answer:
        begun.set()
        try:
            await _silent()
        finally:
            ended.append("cancelled")
        raise AssertionError

    route = next(each for each in world.routes if (each.method, each.template) == ("PUT", "v1/things/{name}"))
    monkeypatch.setitem(route.__dict__, "handler", slow)
    task = asyncio.ensure_future(world.demo.put("/api/v1/things/a"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["cancelled"]


def test_calls_of_one_limit_are_late_each_at_its_own_time() -> None:
    loop, ended = VirtualLoop(), list[float]()

    async def call(limit: serve._TimeLimit, begin: float, lasts: float = math.inf) -> None:
        await asyncio.sleep(begin)
        progress = serve._Progress()
        waiting = limit.begin(progress)
        if lasts < math.inf:
            loop.call_later(lasts, progress.end)
        await waiting
        limit.end(progress)
        ended.append(loop.time())

    async def calls() -> None:
        limit = serve._TimeLimit(loop, 10.0)
        await asyncio.gather(call(limit, 0.0), call(limit, 1.0, lasts=2.0), call(limit, 4.0), call(limit, 30.0))

    with contextlib.closing(loop):
        loop.run_until_complete(calls())
    assert ended == [3.0, 10.0, 14.0, 40.0]


def test_clients_that_wait_half_a_minute_hear_every_answer() -> None:
    assert serve.ANSWER_WITHIN < 30 and serve.ANSWER_BATCH_WITHIN < SLOW
