"""The test kit: the real application on storage in memory, with a clock that tests move and a receiver in place of the network."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

import httpx

from ..app.application import Application
from ..client.concurrent import AsyncClient
from ..core.clock import Millis, to_datetime, to_millis
from ..core.ids import SeededIds
from ..core.settings import LOCAL_ADMIN_KEY, GivenSettings
from ..delivery.channels.fake import DELIVERED, FakeReceiver
from ..delivery.channels.fleet import http_target
from ..delivery.channels.model import CHANNEL_TYPES
from ..delivery.channels.ports import OutgoingDelivery, Sender, Target, Verdict
from ..delivery.egress_guard import Egress
from ..extras.parts import PARTS
from ..local import demo
from ..local.demo import CHANNEL, KEY, TENANT
from ..local.invocations import LocalApi
from ..storage import memory_storage
from ..storage.memory import MemoryQueues, MemoryTables
from ..web.serve import ApiResponse
from .handling import DeliveryHandler, HandlerRunner, HandlingClock, WebApp, waiting_for_clock
from .host import VirtualHost
from .receiver import Received, Receiver

ADDRESS = "http://tocsin.test"
START = datetime(2027, 1, 15, 8, tzinfo=UTC)


class Tocsin:
    """A whole Tocsin in this process, for an application's tests.

    ::

        async with Tocsin(deliver_to=app, url="http://shop.test/hooks") as tocsin:
            await tocsin.client.schedule({"order": 17}, delay=timedelta(days=30))
            await tocsin.advance(days=30)

    `deliver_to`: your ASGI or WSGI app, or a function of one `httpx.Request` that returns a status, an `httpx.Response` or None. It gets
    the requests that production sends, signed with `secret`. Without it, `receiver` accepts all deliveries.
    `url`: the address that deliveries go to.
    `start`: the first time of the clock.
    `raise_exceptions`: exceptions of your code are raised by `advance`; if False, they count as an answer of 500 and are retried.
    `in_threads`: a function runs in a thread, and may block.
    Other arguments are settings of the service (`tocsin.core.settings.Settings`).

    The clock stands still while your code runs. It moves only in `advance`, `advance_to` and, by milliseconds, in calls of the client.
    """

    def __init__(
        self,
        *,
        deliver_to: DeliveryHandler | WebApp | None = None,
        url: str = "http://receiver.test/",
        start: datetime = START,
        raise_exceptions: bool = True,
        in_threads: bool = False,
        **settings: Any,
    ) -> None:
        self._handler, self._raise, self._in_threads = deliver_to, raise_exceptions, in_threads
        self.clock = HandlingClock(to_millis(start))
        """The service's clock. Code under test may use it too."""
        host = httpx.URL(url).host
        given: dict[str, Any] = {
            **demo.SETTINGS,
            "local": True,
            "egress_allow": f"localhost, 127.0.0.0/8, {host}",
            "receiver": url,
            "public_url": ADDRESS,
            # An event that is due at once is delivered by the next `advance` and not by the request that posts it.
            "express_events": 0,
            "wakes": "off",
        }
        self._settings = GivenSettings(**(given | settings))
        self._storage = memory_storage(self.clock)
        self._deliveries = FakeReceiver(self.clock)
        self.receiver = Receiver(self._deliveries)
        """Records every attempt, and answers as scripted: `receiver.script(id, Verdict("retry", 503), ...)`."""
        self._handlers: HandlerRunner | None = None
        self._api = LocalApi(self._application, virtual_time=True)
        self._transport = _KitTransport(self)
        self.client = self.client_with(KEY)
        """A client of tenant `demo` for the service in this process."""
        self.admin = self.client_with(LOCAL_ADMIN_KEY)
        """A client with the bootstrap admin key; see `AsyncClient.call`."""

    async def __aenter__(self) -> Self:
        senders = cast(Mapping[str, Sender], dict.fromkeys(CHANNEL_TYPES, self._deliveries))
        ids = SeededIds(7)
        self.app = await Application.open(self._settings, parts=PARTS, clock=self.clock, ids=ids, storage=self._storage, senders=senders)
        tables, queues = cast(MemoryTables, self._storage.tables), cast(MemoryQueues, self._storage.queues)
        self._host = VirtualHost(self.app, self.clock, tables, queues, self._wait_for_handlers)
        if self._handler is not None:
            self.deliver_to(self._handler)
        self._target = await self.app.directory.target(TENANT, CHANNEL)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._host.close()
        await self.app.close()

    def deliver_to(self, handler: DeliveryHandler | WebApp) -> None:
        """Send deliveries to this handler from now on; see the class."""
        problems = self._host.problems if self._raise else None
        handlers = HandlerRunner(handler, self.clock, Egress(self._settings.egress_names), problems, in_threads=self._in_threads)
        self._handlers = handlers

        def answer(target: Target, delivery: OutgoingDelivery) -> Awaitable[Verdict] | Verdict:
            if target.spec.type == "fleet":
                target = http_target(target, delivery)
            return handlers.deliver(target, delivery) if target.spec.type == "http" else DELIVERED

        self._deliveries.otherwise = answer

    async def _application(self) -> Application:
        return self.app

    async def _wait_for_handlers(self) -> bool:
        return self._handlers is not None and await self._handlers.wait_briefly()

    @property
    def now(self) -> datetime:
        """The time of the service's clock, in UTC."""
        return to_datetime(self.clock.now())

    @property
    def secret(self) -> str:
        """The webhook secret of the channel `default`."""
        assert self._target is not None
        return self._target.secrets[0]

    @property
    def transport(self) -> httpx.AsyncBaseTransport:
        """The way to the service in this process: `await delivery.work.complete_async(transport=kit.transport)`."""
        return self._transport

    def client_with(self, key: str, *, tenant: str | None = None) -> AsyncClient:
        """Return a client with another key."""
        return AsyncClient(ADDRESS, key, tenant=tenant, transport=self._transport, clock=_KitClock(self))

    async def channel(self, name: str, url: str) -> str:
        """Create a channel of tenant `demo`, and return its webhook secret."""
        made = await self.admin.call("PUT", f"tenants/{TENANT}/channels/{name}", {"type": "http", "url": url})
        return str(made["secret"])

    async def advance(
        self,
        by: timedelta = timedelta(),
        *,
        days: float = 0,
        hours: float = 0,
        minutes: float = 0,
        seconds: float = 0,
        milliseconds: float = 0,
    ) -> list[Received]:
        """Let this much time pass and return the attempts that ended meanwhile. Everything due happens in order, each at its instant."""
        span = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if span < timedelta():
            raise ValueError("time only goes forward")
        before = len(self.receiver.received)
        await self._host.run(self.clock.monotonic() + span.total_seconds())
        return self.receiver.received[before:]

    async def advance_to(self, moment: datetime) -> list[Received]:
        """Let time pass until `moment`, a datetime with a time zone; see `advance`."""
        return await self.advance(max(timedelta(), moment - self.now))

    async def answer(self, request: httpx.Request) -> ApiResponse:
        """Return the service's answer to a request, for transports. The request's body must have been read."""
        path = request.url.raw_path.decode().partition("?")[0]
        headers = {name.lower(): value for name, value in request.headers.items()}
        return await self._run_with_clock(self._api.answer(request.method, str(request.url), path, headers, request.content))

    async def wait(self, seconds: float) -> None:
        """Return after `seconds` of the clock. Moves the clock if no other call moves it."""
        await self._run_with_clock(self.clock.sleep(seconds))

    async def _run_with_clock[T](self, work: Coroutine[Any, Any, T]) -> T:
        with waiting_for_clock() as inside:
            # In a handler, the call that started the handler already moves the clock.
            return await (self._host.spawn(work) if inside else self._host.drive(work))


class _KitClock:
    """The kit's clock for its clients. Their pauses move it if no other call moves it."""

    def __init__(self, kit: Tocsin) -> None:
        self._kit = kit

    def now(self) -> Millis:
        return self._kit.clock.now()

    def monotonic(self) -> float:
        return self._kit.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._kit.wait(seconds)

    async def idle(self, seconds: float) -> None:
        """Wait until other calls have moved the clock: tasks in the background must not."""
        await self._kit.clock.sleep(seconds)


class _KitTransport(httpx.AsyncBaseTransport):
    """Passes requests from the client to the routes, without a network."""

    def __init__(self, kit: Tocsin) -> None:
        self._kit = kit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        status, headers, content = await self._kit.answer(request)
        return httpx.Response(status, headers=headers, content=content)
