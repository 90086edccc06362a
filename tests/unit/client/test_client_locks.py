"""Locks of both clients: against scripted answers, and against the service in memory."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
import threading
import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import orjson
import pytest

import shared as tocsin
from shared.client.exchange import ApiCall, ApiReply, ConnectionFailure
from shared.client.http import to_failure
from shared.client.locking import rules
from shared.core.clock import SettableClock
from shared.testing import BlockingTocsin, Tocsin

from .call_runner import run_call

NO_WAIT = timedelta(0)
LOST = ConnectionFailure(True, "no answer in time")
UNSENT = ConnectionFailure(False, "no connection")
HELD = ApiReply(200, {}, orjson.dumps({"state": "held", "token": 7, "valid_ms": 30_000, "version": "v1"}))
WAITING = ApiReply(202, {}, orjson.dumps({"state": "waiting", "ahead": 0, "retry_ms": 500}))


def problem(status: int, code: str, **headers: str) -> ApiReply:
    body = {"type": f"https://tocsin.dev/problems/{code}", "title": code, "status": status, "detail": "why"}
    return ApiReply(status, {name.replace("_", "-"): value for name, value in headers.items()}, orjson.dumps(body))


class Attempt:
    """An attempt that was run on scripted answers: the bodies sent, the pauses, and the grant or the error. A request takes a second."""

    def __init__(self, *answers: ApiReply | ConnectionFailure, wait: timedelta | None = None) -> None:
        self.sent: list[dict[str, Any]] = []
        self.slept: list[float] = []
        self.grant: rules.LockGrant | None = None
        self.error: tocsin.TocsinError | None = None
        self.requests = 0
        left = iter(answers)

        def reply(call: ApiCall[Any]) -> ApiReply | ConnectionFailure:
            assert (call.method, call.path) == ("PUT", "locks/nightly")
            self.requests += 1
            self.sent.append(orjson.loads(call.body))
            return next(left)

        ask = rules.new_attempt("nightly", timedelta(seconds=30), wait, "web-1")
        try:
            self.grant = run_call(rules.acquire(ask, lambda: self.requests + sum(self.slept), lambda: 1.0), reply, self.slept)
        except tocsin.TocsinError as error:
            self.error = error
        assert next(left, None) is None, "an answer was not asked for"


def test_validity_is_counted_from_before_the_request() -> None:
    attempt = Attempt(HELD)
    assert attempt.grant == rules.LockGrant(7, 0, 30, "v1")
    [body] = attempt.sent
    assert (body["holder"], body["ttl"], body["wait"]) == ("web-1", "PT30S", "PT15S")


def test_a_waiter_asks_again_when_it_is_told_to_and_after_lost_answers_with_the_same_nonce() -> None:
    attempt = Attempt(WAITING, LOST, problem(503, "storage-unavailable"), WAITING, problem(409, "too-many-waiters"), HELD)
    assert attempt.slept == [0.5, 0.2, 0.4, 0.5, 1.0]
    assert len({body["nonce"] for body in attempt.sent}) == 1
    assert attempt.grant is not None and attempt.grant.sent == 5 + sum(attempt.slept), "the last request counts"


def test_when_the_time_is_over_it_asks_once_more_without_waiting() -> None:
    attempt = Attempt(WAITING, WAITING, problem(409, "lock-held"), wait=timedelta(seconds=3))
    assert ["wait" in body for body in attempt.sent] == [True, True, False]
    assert isinstance(attempt.error, tocsin.LockHeld) and attempt.error.name == "nightly"
    assert sum(attempt.slept) + 2 == 3
    assert isinstance(Attempt(problem(409, "lock-held"), wait=NO_WAIT).error, tocsin.LockHeld)
    assert isinstance(Attempt(LOST, wait=NO_WAIT).error, tocsin.Unreachable)
    assert isinstance(Attempt(problem(429, "too-many-requests"), wait=NO_WAIT).error, tocsin.TooMany)


def test_a_waiter_waits_while_the_service_is_away_and_says_so_each_half_minute(caplog: pytest.LogCaptureFixture) -> None:
    away = [UNSENT, LOST, problem(503, "storage-unavailable"), problem(500, "internal")] * 10
    attempt = Attempt(*away, HELD)
    assert attempt.grant is not None and len(attempt.sent) == 41
    told = [record.getMessage() for record in caplog.records if record.name == rules.log.name]
    lasted, longest_pause = sum(attempt.slept) + 41, rules.LONGEST_PAUSE + 1
    assert lasted / (rules.TOLD_EVERY + longest_pause) - 1 < len(told) <= lasted / rules.TOLD_EVERY and len(told) > 3
    assert all("is asked for again, after" in line for line in told)


def test_a_waiter_gives_up_in_its_time_while_the_service_is_away() -> None:
    attempt = Attempt(*[UNSENT] * 6, wait=timedelta(seconds=10))
    assert isinstance(attempt.error, tocsin.Unreachable) and sum(attempt.slept) + 5 == 10


def test_a_waiter_whose_grant_ended_after_a_lost_answer_goes_on_under_another_nonce() -> None:
    attempt = Attempt(LOST, problem(409, "lock-lost"), WAITING, HELD)
    nonces = [body["nonce"] for body in attempt.sent]
    assert attempt.grant is not None
    assert nonces[0] == nonces[1] != nonces[2] == nonces[3]
    assert isinstance(Attempt(problem(409, "lock-lost"), wait=NO_WAIT).error, tocsin.LockHeld)


def test_what_no_time_mends_ends_an_attempt_at_once() -> None:
    lasting = ConnectionFailure(False, "the name does not resolve", lasting=True)
    for answer, error in (
        (problem(401, "unauthenticated"), tocsin.Unauthenticated),
        (problem(403, "forbidden"), tocsin.Forbidden),
        (problem(404, "not-found"), tocsin.NotFound),
        (lasting, tocsin.Unreachable),
        (ApiReply(200, {}, b"<html>"), tocsin.Unreadable),
    ):
        assert isinstance(Attempt(answer).error, error) and isinstance(Attempt(WAITING, answer).error, error)


@pytest.mark.parametrize(
    ("cause", "lasting"),
    [
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), True),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), False),
        (ssl.SSLCertVerificationError("certificate verify failed"), True),
        (ConnectionRefusedError("Connection refused"), False),
    ],
)
def test_names_that_do_not_resolve_and_tls_are_lasting(cause: Exception, lasting: bool) -> None:
    error = httpx.ConnectError("x")
    error.__cause__ = OSError("y")
    error.__cause__.__context__ = cause
    assert to_failure(error).lasting is lasting


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (HELD, rules.LockGrant(7, 10, 40, "v1")),
        (problem(409, "lock-lost"), rules.LockEnded("why")),
        (ApiReply(200, {}, HELD.body.replace(b"7", b"8")), rules.LockEnded("the service has given out another grant")),
        (LOST, None),
        (problem(503, "storage-unavailable"), None),
        (problem(401, "unauthenticated"), None),
    ],
)
def test_a_renewal_extends_ends_or_is_tried_again(answer: ApiReply, found: Any) -> None:
    grant, sent = rules.LockGrant(7, 0, 30, "v0"), list[ApiCall[Any]]()

    def reply(call: ApiCall[Any]) -> ApiReply:
        sent.append(call)
        return answer

    ask = rules.new_attempt("nightly", timedelta(seconds=30), None, "web-1")
    assert run_call(rules.renew(ask, grant, lambda: 10.0), reply, []) == found
    body = orjson.loads(sent[0].body)
    assert (body["token"], body["version"], body["nonce"]) == (7, "v0", ask.nonce) and sent[0].timeout == 10


def test_renewals_begin_at_a_third_and_tries_never_go_beyond_the_end() -> None:
    grant = rules.LockGrant(7, 0, 30, "v0")
    assert rules.renewal_pause(grant, 0, 4, 1.0) == 6
    assert [rules.renewal_pause(grant, failures, 10, 1.0) for failures in (1, 2, 9)] == [0.2, 0.4, 5]
    assert rules.renewal_pause(grant, 9, 29.5, 1.0) == 0.5
    assert rules.renewal_pause(grant, 9, 31, 1.0) == 0


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"name": "a/b"}, ValueError),
        ({"name": "x", "ttl": timedelta(seconds=1)}, ValueError),
        ({"name": "x", "ttl": 30}, TypeError),
        ({"name": "x", "wait": timedelta(seconds=-1)}, ValueError),
        ({"name": "x", "wait": 5}, TypeError),
    ],
)
def test_arguments_that_cannot_be_sent_are_refused_before_anything_is_sent(arguments: Any, error: type[Exception]) -> None:
    with tocsin.Client("https://app.example", "a-very-secret-key") as client, pytest.raises(error):
        client.lock(**arguments)


def test_a_with_block_holds_the_lock_and_releases_it_also_when_it_raises() -> None:
    with BlockingTocsin() as kit:
        lock = kit.client.lock("nightly", holder="a")
        with pytest.raises(RuntimeError, match="not held"):
            assert lock.token
        with pytest.raises(KeyError), lock:
            shown = kit.client.call("GET", "locks/nightly")
            assert (shown["state"], shown["holder"], shown["token"]) == ("held", "a", lock.token)
            assert not lock.lost and 0 < lock.remaining() <= 30
            lock.check()
            with pytest.raises(tocsin.LockHeld), kit.client.lock("nightly", wait=NO_WAIT):
                pass
            with pytest.raises(RuntimeError, match="in use"), lock:
                pass
            first = lock.token
            raise KeyError
        assert kit.client.call("GET", "locks/nightly")["state"] == "free"
        with lock:
            assert lock.token > first, "the same object makes a new attempt"


def test_the_block_is_told_that_the_lock_is_lost() -> None:
    told = threading.Event()
    with BlockingTocsin() as kit:
        with pytest.raises(tocsin.LockLost, match="validity is over") as lost, kit.client.lock("nightly", on_lost=told.set) as lock:
            kit.advance(seconds=31)
            assert lock.lost and lock.remaining() == 0
            token = lock.token
            with pytest.raises(tocsin.LockLost):
                lock.check()
            assert told.wait(10)
        assert (lost.value.name, lost.value.token) == ("nightly", token)
        with pytest.raises(KeyError), kit.client.lock("nightly"):
            kit.advance(seconds=31)
            raise KeyError


def test_a_waiter_gets_the_lock_after_its_holder_has_vanished() -> None:
    with BlockingTocsin() as kit:
        kit.client.call("PUT", "locks/nightly", {"holder": "gone", "nonce": "n", "ttl": "PT10S"})
        before = kit.now
        with kit.client.lock("nightly", wait=timedelta(seconds=20)) as lock:
            assert lock.token
        assert timedelta(seconds=12) < kit.now - before < timedelta(seconds=15)


def test_a_waiter_that_missed_its_grant_gets_the_lock_after_those_that_waited_meanwhile() -> None:
    with BlockingTocsin() as kit:
        make, nonces = uuid.uuid4, [uuid.UUID(int=1), uuid.UUID(int=2)]
        kit.client.call("PUT", "locks/nightly", {"holder": "a", "nonce": nonces[0].hex, "ttl": "PT2S"})  # its answer is lost
        kit.client.call("PUT", "locks/nightly", {"holder": "b", "nonce": "n", "ttl": "PT2S", "wait": "PT1M"})
        kit.advance(seconds=5)
        # It waits behind b, under the nonce of the grant that has run out. Then b gets the lock.
        late = {"holder": "a", "nonce": nonces[0].hex, "ttl": "PT2S", "wait": "PT1M"}
        assert kit.client.call("PUT", "locks/nightly", late)["state"] == "waiting"
        kit.client.call("PUT", "locks/nightly", {"holder": "b", "nonce": "n", "ttl": "PT2S", "wait": "PT1M"})
        assert kit.client.call("GET", "locks/nightly")["waiters"] == []
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(uuid, "uuid4", lambda: nonces.pop(0) if nonces else make())
            before = kit.now
            with kit.client.lock("nightly", holder="a", wait=timedelta(minutes=1)) as lock:
                assert kit.client.call("GET", "locks/nightly")["token"] == lock.token
                # The grant of b had 2 s and the margin left.
                assert kit.now - before < timedelta(seconds=8)
        assert kit.client.call("GET", "locks/nightly")["state"] == "free"


class Renewals:
    """Passes requests on, and answers renewals otherwise once `ended` is set. `seen` is set by the second renewal."""

    def __init__(self, answer: Callable[[], httpx.Response]) -> None:
        self.ended, self.seen, self.count = False, threading.Event(), 0
        self._answer = answer

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "DELETE":
            return httpx.Response(204)
        if "token" in orjson.loads(request.content):
            self.count += 1
            if self.count == 2:
                self.seen.set()
            if self.ended:
                return self._answer()
        return httpx.Response(200, json={"token": 7, "valid_ms": 2000, "version": "v"})


def lock_lost() -> httpx.Response:
    return httpx.Response(409, json={"type": "https://x/problems/lock-lost", "title": "x", "status": 409, "detail": "revoked"})


def test_a_thread_renews_the_grant_until_the_service_says_that_it_has_ended() -> None:
    service, told = Renewals(lock_lost), threading.Event()
    client = tocsin.Client("https://app.example", "a-very-secret-key", transport=httpx.MockTransport(service))
    with pytest.raises(tocsin.LockLost, match="revoked"), client.lock("x", ttl=timedelta(seconds=2), on_lost=told.set) as lock:
        assert service.seen.wait(30) and not lock.lost
        service.ended = True
        assert told.wait(30) and lock.lost


def test_no_thread_outlives_the_block() -> None:
    client = tocsin.Client("https://app.example", "a-very-secret-key", transport=httpx.MockTransport(Renewals(lock_lost)))
    with client.lock("only-here", on_lost=lambda: None):
        found = [thread for thread in threading.enumerate() if thread.name == "tocsin lock only-here"]
        assert len(found) == 2
    for thread in found:
        thread.join(10)
        assert not thread.is_alive()


def test_a_forked_child_neither_renews_nor_releases_the_lock_of_its_parent() -> None:
    with BlockingTocsin() as kit, kit.client.lock("nightly") as lock:
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of pytest may run in the child
            try:
                lost, left = lock.lost, lock.remaining()
                try:
                    lock.check()
                    raised = ""
                except tocsin.LockLost as error:
                    raised = error.why
                try:
                    lock.__exit__(SystemExit, SystemExit(), None)
                    released = kit.client.call("GET", "locks/nightly")["state"]
                except BaseException as error:
                    released = repr(error)
                os.write(tell, f"{lost} {left} {released} {raised}".encode())
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.read(told, 1000).decode() == "True 0.0 held it belongs to the process that this one was forked from"
        lock.check()
        assert kit.client.call("GET", "locks/nightly")["state"] == "held"


def test_a_lock_whose_threads_cannot_start_is_released(monkeypatch: pytest.MonkeyPatch) -> None:
    start, started = threading.Thread.start, list[threading.Thread]()

    def start_one(thread: threading.Thread) -> None:
        if thread.name == "tocsin lock full":
            started.append(thread)
            if len(started) == 2:
                raise RuntimeError("can't start new thread")
        start(thread)

    with BlockingTocsin() as kit:
        lock = kit.client.lock("full", on_lost=lambda: None)
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match="new thread"):
            patch.setattr(threading.Thread, "start", start_one)
            lock.__enter__()
        assert kit.client.call("GET", "locks/full")["state"] == "free"
        with lock:
            assert lock.token and len(started) == 2


def test_on_lost_of_a_block_that_has_ended_is_not_called_for_the_next_one() -> None:
    told = list[str]()
    with BlockingTocsin() as kit:
        lock = kit.client.lock("nightly", on_lost=lambda: told.append("lost"))
        for _ in range(3):
            with lock:
                found = [thread for thread in threading.enumerate() if thread.name == "tocsin lock nightly"]
                kit.advance(seconds=1)
            for thread in found:
                thread.join(10)
                assert not thread.is_alive()
        assert told == []


async def test_a_forked_child_neither_renews_nor_releases_the_asynchronous_lock_of_its_parent() -> None:
    async with Tocsin() as kit, kit.client.lock("nightly") as lock:
        told, tell = os.pipe()
        child = os.fork()
        if child == 0:  # nothing of pytest may run in the child, and its event loop does not turn
            try:
                lost, left = lock.lost, lock.remaining()
                try:
                    lock.__aexit__(None, None, None).send(None)
                    raised = "it waits for an answer"
                except tocsin.LockLost as error:
                    raised = error.why
                os.write(tell, f"{lost} {left} {raised}".encode())
            finally:
                os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        assert os.read(told, 1000).decode() == "True 0.0 it belongs to the process that this one was forked from"
        lock.check()
        assert (await kit.client.call("GET", "locks/nightly"))["state"] == "held"


async def test_the_block_ends_with_lock_lost_from_its_cancellation_and_the_lock_may_be_entered_again() -> None:
    class StoppedMachine(SettableClock):
        stood = 0.0

        def monotonic(self) -> float:
            return super().monotonic() + self.stood

    clock, told = StoppedMachine(), list[str]()
    transport = httpx.MockTransport(Renewals(lock_lost))
    client = tocsin.AsyncClient("https://app.example", "a-very-secret-key", transport=transport, clock=clock)
    lock = client.lock("x", ttl=timedelta(seconds=2), on_lost=lambda: told.append("lost"))
    for times in (1, 2):
        with pytest.raises(tocsin.LockLost, match="validity is over") as lost:
            async with lock:
                clock.stood += 3  # no task has run meanwhile
                with pytest.raises(tocsin.LockLost):
                    lock.check()
                assert lock.lost and lock.remaining() == 0 and told == ["lost"] * times
                await asyncio.sleep(60)
        assert isinstance(lost.value.__cause__, TimeoutError) and told == ["lost"] * times
        with pytest.raises(RuntimeError, match="not held"):
            assert lock.lost


async def test_the_asynchronous_lock_is_renewed_while_time_passes() -> None:
    async with Tocsin() as kit:
        async with kit.client.lock("nightly", holder="a") as lock:
            first = lock.token
            await kit.advance(minutes=5)
            assert not lock.lost and lock.token == first
            with pytest.raises(tocsin.LockHeld):
                async with kit.client.lock("nightly", wait=NO_WAIT):
                    pass
        assert (await kit.client.call("GET", "locks/nightly"))["state"] == "free"


async def test_the_asynchronous_block_is_cancelled_when_the_lock_is_lost() -> None:
    told: list[str] = []
    async with Tocsin() as kit:
        with pytest.raises(tocsin.LockLost, match="stop the work"):
            async with kit.client.lock("nightly", on_lost=lambda: told.append("lost")):
                await kit.client.call("POST", "locks/nightly/revoke", {"note": "it hangs"})
                for _ in range(20):
                    await kit.advance(seconds=1)
                raise AssertionError("it was not cancelled")
        assert told == ["lost"]
        task = asyncio.current_task()
        assert task is not None and not task.cancelling()


async def test_the_asynchronous_lock_is_lost_in_time_though_a_renewal_hangs() -> None:
    clock, hanging = SettableClock(), asyncio.Event()

    async def respond(request: httpx.Request) -> httpx.Response:
        if request.method == "PUT" and "token" in orjson.loads(request.content):
            hanging.set()
            await asyncio.Event().wait()
        return httpx.Response(204) if request.method == "DELETE" else httpx.Response(200, content=HELD.body)

    client = tocsin.AsyncClient("https://app.example", "a-very-secret-key", transport=httpx.MockTransport(respond), clock=clock)
    with pytest.raises(tocsin.LockLost, match="validity is over"):
        async with client.lock("x") as lock:
            await clock.advance(29)
            assert hanging.is_set() and not lock.lost
            await clock.advance(1)
            raise AssertionError("it was not cancelled")


async def test_a_waiter_that_is_cancelled_leaves_the_queue() -> None:
    async with Tocsin() as kit, kit.client.lock("nightly", holder="a"):

        async def wait() -> None:
            async with kit.client.lock("nightly", holder="b"):
                raise AssertionError("two hold the lock")

        waiting = asyncio.create_task(wait())
        while not (await kit.client.call("GET", "locks/nightly"))["waiters"]:
            await kit.advance(milliseconds=10)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert not (await kit.client.call("GET", "locks/nightly"))["waiters"]
