"""The test kit for code without async. Its event loop runs only while a call is in progress."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, Self

import httpx

from ..client.blocking import Client
from ..core.settings import LOCAL_ADMIN_KEY
from ..local.demo import KEY
from .handling import DeliveryHandler, WebApp
from .kit import ADDRESS, START, Tocsin
from .receiver import Received, Receiver


class BlockingTocsin:
    """`Tocsin` without async, with a `Client`. It takes the same arguments; a function given as `deliver_to` runs in a thread.

    ::

        with BlockingTocsin(deliver_to=app, url="http://shop.test/hooks") as tocsin:
            tocsin.client.schedule({"order": 17}, delay=timedelta(days=30))
            tocsin.advance(days=30)
    """

    def __init__(
        self,
        *,
        deliver_to: DeliveryHandler | WebApp | None = None,
        url: str = "http://receiver.test/",
        start: datetime = START,
        raise_exceptions: bool = True,
        **settings: Any,
    ) -> None:
        self._kit = Tocsin(deliver_to=deliver_to, url=url, start=start, raise_exceptions=raise_exceptions, in_threads=True, **settings)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        self._running = threading.Lock()
        self.client = self.client_with(KEY)
        self.admin = self.client_with(LOCAL_ADMIN_KEY)

    def __enter__(self) -> Self:
        self._run(self._kit.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        with self._runner:
            self._run(self._kit.__aexit__())

    @property
    def receiver(self) -> Receiver:
        """See `Tocsin.receiver`."""
        return self._kit.receiver

    @property
    def now(self) -> datetime:
        """The time of the service's clock, in UTC."""
        return self._kit.now

    @property
    def secret(self) -> str:
        """The webhook secret of the channel `default`."""
        return self._kit.secret

    def deliver_to(self, handler: DeliveryHandler | WebApp) -> None:
        """Send deliveries to this handler from now on; see `Tocsin`."""
        self._kit.deliver_to(handler)

    def client_with(self, key: str, *, tenant: str | None = None) -> Client:
        """Return a client with another key."""
        return Client(ADDRESS, key, tenant=tenant, transport=_BlockingTransport(self), sleep=self._sleep, clock=self._kit.clock.monotonic)

    def channel(self, name: str, url: str) -> str:
        """Create a channel of tenant `demo`, and return its webhook secret."""
        return self._run(self._kit.channel(name, url))

    def advance(
        self,
        by: timedelta = timedelta(),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> list[Received]:
        """Let this much time pass; see `Tocsin.advance`."""
        span = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        return self._run(self._kit.advance(span))

    def advance_to(self, moment: datetime) -> list[Received]:
        """Let time pass until `moment`, a datetime with a time zone."""
        return self._run(self._kit.advance_to(moment))

    def _sleep(self, seconds: float) -> None:
        self._run(self._kit.wait(seconds))

    def _run[T](self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._runner.get_loop()
        if self._running.acquire(blocking=False):
            try:
                return self._runner.run(work)
            finally:
                self._running.release()
        # Another thread runs the loop. If this is a handler's thread, that one waits for the handler. If this thread renews a lock, the
        # loop may stop before the work is done, and goes on here.
        future = asyncio.run_coroutine_threadsafe(work, loop)
        while not future.done():
            if self._running.acquire(timeout=0.05):
                try:
                    self._runner.run(_wait_for(future))
                finally:
                    self._running.release()
        return future.result()


async def _wait_for(future: concurrent.futures.Future[Any]) -> None:
    await asyncio.wait([asyncio.wrap_future(future)])


class _BlockingTransport(httpx.BaseTransport):
    """Passes requests from any thread to the service in the kit's event loop."""

    def __init__(self, kit: BlockingTocsin) -> None:
        self._kit = kit

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        status, headers, content = self._kit._run(self._kit._kit.answer(request))
        return httpx.Response(status, headers=headers, content=content)
