"""The kit for code without async: it runs in an event loop of its own, turned only while a call is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, Self

import httpx

from ..client.blocking import Client
from ..core.settings import LOCAL_ADMIN_KEY
from .handling import App, Handler
from .kit import ADDRESS, KEY, START, Tocsin
from .receiver import Received, Receiver


class BlockingTocsin:
    """`Tocsin` without async, with a `Client`. Takes the same arguments; a function given as `deliver_to` runs in a thread.

    ::

        with BlockingTocsin(deliver_to=app, url="http://shop.test/hooks") as tocsin:
            tocsin.client.schedule({"order": 17}, delay=timedelta(days=30))
            tocsin.advance(days=30)
    """

    def __init__(
        self,
        *,
        deliver_to: Handler | App | None = None,
        url: str = "http://receiver.test/",
        start: datetime = START,
        raise_exceptions: bool = True,
        **settings: Any,
    ) -> None:
        self._kit = Tocsin(deliver_to=deliver_to, url=url, start=start, raise_exceptions=raise_exceptions, in_threads=True, **settings)
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
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
        """What the clock says, in UTC."""
        return self._kit.now

    @property
    def secret(self) -> str:
        """The webhook secret of the channel `default`."""
        return self._kit.secret

    def deliver_to(self, handler: Handler | App) -> None:
        """From now on deliveries go there; see `Tocsin`."""
        self._kit.deliver_to(handler)

    def client_with(self, key: str, *, tenant: str | None = None) -> Client:
        """A client with another key."""
        return Client(ADDRESS, key, tenant=tenant, transport=_Across(self), sleep=self._sleep)

    def channel(self, name: str, url: str) -> str:
        """Make a channel of tenant `demo`; its webhook secret."""
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
        """Let so much time pass; see `Tocsin.advance`."""
        span = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        return self._run(self._kit.advance(span))

    def advance_to(self, moment: datetime) -> list[Received]:
        """Let time pass until `moment`, an aware datetime."""
        return self._run(self._kit.advance_to(moment))

    def _sleep(self, seconds: float) -> None:
        self._run(self._kit.wait(seconds))

    def _run[T](self, work: Coroutine[Any, Any, T]) -> T:
        loop = self._runner.get_loop()
        if loop.is_running():
            # From a handler's thread: whoever turns the loop waits for that handler.
            return asyncio.run_coroutine_threadsafe(work, loop).result()
        return self._runner.run(work)


class _Across(httpx.BaseTransport):
    """From a thread to the service in the kit's loop."""

    def __init__(self, kit: BlockingTocsin) -> None:
        self._kit = kit

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        request.read()
        status, headers, content = self._kit._run(self._kit._kit.answer(request))
        return httpx.Response(status, headers=headers, content=content)
