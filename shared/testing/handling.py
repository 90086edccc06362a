"""Deliveries into the user's own code: the request that production would send, signed, handed to an app or a function.

While such code works the clock stands still, unless the code itself waits for the clock: `HandlingClock` and `waiting` keep account.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, cast

import httpx

from ..client import receiving
from ..core.clock import SettableClock
from ..delivery.channels import rules
from ..delivery.channels.http import Post, post_of
from ..delivery.channels.ports import Delivery, Target, Verdict
from ..delivery.egress_guard import Egress

type Handler = Callable[[httpx.Request], httpx.Response | int | Awaitable[httpx.Response | int | None] | None]
"""A user's function: takes the request, answers with a response, a status, or None for 204."""


type App = Callable[[Any, Any, Any], Awaitable[None]] | Callable[[Any, Any], Iterable[bytes]]
"""An ASGI application (FastAPI, Starlette, Quart) or a WSGI one (Flask, Django)."""


@dataclass(eq=False, slots=True)
class _Handling:
    """One delivery in the user's hands. `asleep`: how many waits for the clock it is in."""

    task: asyncio.Task[Any] | None = None
    asleep: int = 0


MOMENT = 0.002
"""Seconds of real time between two looks at a handler that is at work."""
PATIENCE = 30.0
"""Seconds of real time after which a handler at work is taken to hang."""

_HANDLING: ContextVar[_Handling | None] = ContextVar("tocsin_handling", default=None)


@contextmanager
def waiting() -> Iterator[bool]:
    """Around what only the clock can end; True inside of a user's handler."""
    handling = _HANDLING.get()
    if handling is None:
        yield False
        return
    handling.asleep += 1
    try:
        yield True
    finally:
        handling.asleep -= 1


class HandlingClock(SettableClock):
    """A settable clock that knows when a handler sleeps by it."""

    async def sleep(self, seconds: float) -> None:
        with waiting():
            await super().sleep(seconds)


class Handlers:
    """Hands deliveries to a user's code."""

    def __init__(
        self,
        handler: Handler | App,
        clock: SettableClock,
        egress: Egress,
        problems: list[BaseException] | None,
        *,
        in_threads: bool = False,
    ) -> None:
        """`problems`: where what the user's code raises is put, for all to see; None: it is answered with 500 and that is all."""
        self._handler, self._clock, self._egress, self._problems = handler, clock, egress, problems
        self._kind, self._in_threads = _kind_of(handler), in_threads
        self._current: set[_Handling] = set()
        self._waited = 0.0

    async def deliver(self, target: Target, delivery: Delivery) -> Verdict:
        """One delivery, judged as production judges it."""
        try:
            post = post_of(target, delivery, self._egress)
        except ValueError as wrong:
            return Verdict("final", None, str(wrong))
        handling = _Handling()
        token = _HANDLING.set(handling), receiving.CLOCK.set(self._clock)
        try:
            handling.task = asyncio.ensure_future(self._handle(post))
        finally:
            _HANDLING.reset(token[0])
            receiving.CLOCK.reset(token[1])
        self._current.add(handling)
        limit = asyncio.ensure_future(self._clock.sleep(post.timeout))
        try:
            await asyncio.wait((handling.task, limit), return_when=asyncio.FIRST_COMPLETED)
        finally:
            limit.cancel()
            handling.task.cancel()
            self._current.discard(handling)
            self._waited = 0.0
        if not handling.task.done():
            return Verdict("retry", None, f"no answer within {post.timeout:g} s")
        error = handling.task.exception()
        if error is not None and self._problems is not None:
            self._problems.append(error)
        response = handling.task.result() if error is None else httpx.Response(500)
        return rules.judge(response.status_code, response.headers.get("retry-after"), self._clock.now())

    async def _handle(self, post: Post) -> httpx.Response:
        sent: dict[str, Any] = {"content": post.body, "headers": dict(post.headers)}
        handler = cast(Any, self._handler)
        # What an app raises is told by `problems`, not lost in a 500 of its framework's.
        if self._kind == "asgi":
            async with httpx.AsyncClient(transport=httpx.ASGITransport(handler, raise_app_exceptions=True)) as client:
                return await client.post(post.url, **sent)
        if self._kind == "wsgi":
            return await asyncio.to_thread(_post_wsgi, handler, post.url, sent)
        request = httpx.Request("POST", post.url, **sent)
        answer = await asyncio.to_thread(handler, request) if self._in_threads else handler(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(204 if answer is None else answer)

    async def settled(self) -> bool:
        """Wait a moment of real time for handlers that are at work; False when there are none. TimeoutError when they take too long."""
        tasks = [each.task for each in self._current if each.task is not None and not each.asleep]
        if not tasks:
            return False
        if self._waited > PATIENCE:
            raise TimeoutError(f"a handler was given {PATIENCE:g} s of real time and has not answered; the clock stands still for it")
        self._waited += MOMENT
        await asyncio.wait(tasks, timeout=MOMENT, return_when=asyncio.FIRST_COMPLETED)
        return True


def _post_wsgi(app: Any, url: str, sent: Mapping[str, Any]) -> httpx.Response:
    with httpx.Client(transport=httpx.WSGITransport(app, raise_app_exceptions=True)) as client:
        return client.post(url, **sent)


def _kind_of(handler: Any) -> Literal["function", "wsgi", "asgi"]:
    """By the number of arguments: a request; environment and start_response; scope, receive and send."""
    try:
        count = len(inspect.signature(handler).parameters)
    except (TypeError, ValueError):
        count = 0
    match count:
        case 1:
            return "function"
        case 2:
            return "wsgi"
        case 3:
            return "asgi"
    raise TypeError("deliver_to takes an ASGI app, a WSGI app, or a function of one request")
