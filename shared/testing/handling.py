"""Deliveries into the user's own code: pass the signed request that production would send to an app or a function.

The clock stands still while such code runs, unless the code itself waits for the clock. `HandlingClock` and `waiting_for_clock` count
these waits.
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
from ..core.long_work import HEADER_ANSWER, LATER
from ..delivery.channels import rules
from ..delivery.channels.http import Post, post_of
from ..delivery.channels.ports import OutgoingDelivery, Target, Verdict
from ..delivery.egress_guard import Egress

type DeliveryHandler = Callable[[httpx.Request], httpx.Response | int | Awaitable[httpx.Response | int | None] | None]
"""A user's function: it takes the request and returns a response, a status, or None for 204."""


type WebApp = Callable[[Any, Any, Any], Awaitable[None]] | Callable[[Any, Any], Iterable[bytes]]
"""An ASGI application (FastAPI, Starlette, Quart) or a WSGI one (Flask, Django)."""


@dataclass(eq=False, slots=True)
class _Handling:
    """One delivery that the user's code processes. `asleep`: number of its waits for the clock."""

    task: asyncio.Task[Any] | None = None
    asleep: int = 0


HANDLER_POLL = 0.002
"""Seconds of real time between two checks of a running handler."""
HANDLER_TIMEOUT = 30.0
"""Seconds of real time after which a running handler counts as hung."""

_HANDLING: ContextVar[_Handling | None] = ContextVar("tocsin_handling", default=None)


@contextmanager
def waiting_for_clock() -> Iterator[bool]:
    """Mark code that waits for the clock. Yields True inside a user's handler."""
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
    """A settable clock that knows when a handler sleeps."""

    async def sleep(self, seconds: float) -> None:
        with waiting_for_clock():
            await super().sleep(seconds)


class HandlerRunner:
    """Passes deliveries to the user's code."""

    def __init__(
        self,
        handler: DeliveryHandler | WebApp,
        clock: SettableClock,
        egress: Egress,
        problems: list[BaseException] | None,
        *,
        in_threads: bool = False,
    ) -> None:
        """`problems`: list that collects exceptions of the user's code; None to answer them with 500 only."""
        self._handler, self._clock, self._egress, self._problems = handler, clock, egress, problems
        self._kind, self._in_threads = _kind_of(handler), in_threads
        self._current: set[_Handling] = set()
        self._waited = 0.0

    async def deliver(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        """Deliver once, and return the verdict that production would reach."""
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
        headers = response.headers
        never = headers.get(rules.NEVER_HEADER, "").strip().lower() == rules.NEVER
        now, asked = self._clock.now(), headers.get("retry-after")
        verdict = rules.judge(response.status_code, asked, now, delivery.owner, final=post.final, never=never, own_target=post.own_target)
        later = response.status_code == 202 and headers.get(HEADER_ANSWER, "").strip().lower() == LATER
        return verdict._replace(later=True) if later and delivery.completion is not None else verdict

    async def _handle(self, post: Post) -> httpx.Response:
        sent: dict[str, Any] = {"content": post.body, "headers": dict(post.headers)}
        handler = cast(Any, self._handler)
        # An app's exceptions must reach `problems` instead of becoming a 500 of its framework.
        if self._kind == "asgi":
            async with httpx.AsyncClient(transport=httpx.ASGITransport(handler, raise_app_exceptions=True)) as client:
                return await client.request(post.method, post.url, **sent)
        if self._kind == "wsgi":
            return await asyncio.to_thread(_post_wsgi, handler, post.method, post.url, sent)
        request = httpx.Request(post.method, post.url, **sent)
        answer = await asyncio.to_thread(handler, request) if self._in_threads else handler(request)
        if inspect.isawaitable(answer):
            answer = await answer
        return answer if isinstance(answer, httpx.Response) else httpx.Response(204 if answer is None else answer)

    async def wait_briefly(self) -> bool:
        """Wait `HANDLER_POLL` seconds of real time for running handlers. Returns False if there are none.

        Raises TimeoutError if they run for more than `HANDLER_TIMEOUT` seconds.
        """
        tasks = [each.task for each in self._current if each.task is not None and not each.asleep]
        if not tasks:
            return False
        if self._waited > HANDLER_TIMEOUT:
            detail = "the handler of a delivery has not answered; the clock stands still while it runs"
            raise TimeoutError(f"{detail} ({HANDLER_TIMEOUT:g} s of real time)")
        self._waited += HANDLER_POLL
        await asyncio.wait(tasks, timeout=HANDLER_POLL, return_when=asyncio.FIRST_COMPLETED)
        return True


def _post_wsgi(app: Any, method: str, url: str, sent: Mapping[str, Any]) -> httpx.Response:
    with httpx.Client(transport=httpx.WSGITransport(app, raise_app_exceptions=True)) as client:
        return client.request(method, url, **sent)


def _kind_of(handler: Any) -> Literal["function", "wsgi", "asgi"]:
    """Return the kind of handler by its number of arguments: request; environment and start_response; scope, receive and send."""
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
