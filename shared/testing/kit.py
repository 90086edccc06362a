"""The kit: the real application on storage in memory, a clock that stands still, and a receiver in place of the network."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Self, cast

import httpx
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from ..app.application import Application
from ..app.routes import build_routes
from ..client.concurrent import AsyncClient
from ..core.clock import Millis, to_datetime, to_millis
from ..core.ids import SeededIds
from ..core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, Settings
from ..delivery.channels.fake import DELIVERED, FakeReceiver
from ..delivery.channels.ports import Delivery, Sender, Target, Verdict
from ..delivery.egress_guard import Egress
from ..storage import memory_storage
from ..storage.memory import MemoryQueues, MemoryTables
from ..web import templates
from ..web.routes import Routes
from ..web.serve import ApiRequest, ApiResponse, serve
from .handling import App, Handler, Handlers, HandlingClock, waiting
from .host import Host
from .receiver import Received, Receiver

TENANT = "demo"
KEY = "local-demo-key"
CHANNEL = "default"
ADDRESS = "http://tocsin.test"
START = datetime(2027, 1, 15, 8, tzinfo=UTC)


class _Settings(Settings):
    """The settings given, whatever the environment says."""

    @classmethod
    def settings_customise_sources(
        cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *_: Any, **__: Any
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


class Tocsin:
    """A whole Tocsin in this process, for an application's tests.

    ::

        async with Tocsin(deliver_to=app, url="http://shop.test/hooks") as tocsin:
            await tocsin.client.schedule({"order": 17}, delay=timedelta(days=30))
            await tocsin.advance(days=30)

    `deliver_to`: your ASGI or WSGI app, or a function of one `httpx.Request` that returns a status, an `httpx.Response` or None. It gets
    the requests that production sends, signed with `secret`. Without it deliveries end at `receiver`, which takes all.
    `url`: where they go.
    `start`: what the clock says at first.
    `raise_exceptions`: what your code raises leaves `advance`; else it is answered with 500, as a server would, and tried again.
    `in_threads`: a function runs in a thread, and may block.
    Other arguments are settings of the service (`tocsin.settings.Settings`).

    The clock stands still while your code works, and moves only in `advance`, `advance_to` and, by milliseconds, in calls of the client.
    """

    def __init__(
        self,
        *,
        deliver_to: Handler | App | None = None,
        url: str = "http://receiver.test/",
        start: datetime = START,
        raise_exceptions: bool = True,
        in_threads: bool = False,
        **settings: Any,
    ) -> None:
        self._handler, self._raise, self._in_threads = deliver_to, raise_exceptions, in_threads
        self.clock = HandlingClock(to_millis(start))
        """What the service lives by. Code under test may sleep by it too."""
        host = httpx.URL(url).host
        given: dict[str, Any] = {
            "storage": "UseDevelopmentStorage=true",
            "admin_key": LOCAL_ADMIN_KEY,
            "signing_key": LOCAL_SIGNING_KEY,
            "local": True,
            "egress_allow": f"localhost, 127.0.0.0/8, {host}",
            "receiver": url,
        }
        self._settings = _Settings(**(given | settings))
        self._storage = memory_storage(self.clock)
        self._taken = FakeReceiver(self.clock)
        self.receiver = Receiver(self._taken)
        """Remembers every attempt, and answers as scripted: `receiver.script(id, Verdict("retry", 503), ...)`."""
        self._handlers: Handlers | None = None
        self._routes = build_routes()
        self._transport = _Inside(self)
        self.client = self.client_with(KEY)
        """A client of tenant `demo`, talking to the service in this process."""
        self.admin = self.client_with(LOCAL_ADMIN_KEY)
        """The same for the bootstrap admin key; see `AsyncClient.call`."""

    async def __aenter__(self) -> Self:
        senders = cast(Mapping[str, Sender], dict.fromkeys(("http", "queue", "eventgrid", "kafka"), self._taken))
        self.app = await Application.open(self._settings, clock=self.clock, ids=SeededIds(7), storage=self._storage, senders=senders)
        self._host = Host(self.app, self.clock, cast(MemoryTables, self._storage.tables), cast(MemoryQueues, self._storage.queues))
        if self._handler is not None:
            self.deliver_to(self._handler)
        self._target = await self.app.directory.target(TENANT, CHANNEL)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._host.close()
        await self.app.close()

    def deliver_to(self, handler: Handler | App) -> None:
        """From now on deliveries go there; see the class."""
        problems = self._host.problems if self._raise else None
        handlers = Handlers(handler, self.clock, Egress(self._settings.egress_names), problems, in_threads=self._in_threads)
        self._host.others = handlers.settled

        def answer(target: Target, delivery: Delivery) -> Awaitable[Verdict] | Verdict:
            return handlers.deliver(target, delivery) if target.spec.type == "http" else DELIVERED

        self._taken.otherwise = answer

    @property
    def now(self) -> datetime:
        """What the clock says, in UTC."""
        return to_datetime(self.clock.now())

    @property
    def secret(self) -> str:
        """The webhook secret of the channel `default`."""
        assert self._target is not None
        return self._target.secrets[0]

    def client_with(self, key: str, *, tenant: str | None = None) -> AsyncClient:
        """A client with another key."""
        return AsyncClient(ADDRESS, key, tenant=tenant, transport=self._transport, clock=_Driven(self))

    async def channel(self, name: str, url: str) -> str:
        """Make a channel of tenant `demo`; its webhook secret."""
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
        """Let so much time pass: everything due happens, in order, each at its own instant. The attempts made meanwhile, by their end."""
        span = by + timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds, milliseconds=milliseconds)
        if span < timedelta():
            raise ValueError("time only goes forward")
        before = len(self.receiver.received)
        await self._host.run(self.clock.monotonic() + span.total_seconds())
        return self.receiver.received[before:]

    async def advance_to(self, moment: datetime) -> list[Received]:
        """Let time pass until `moment`, an aware datetime; see `advance`."""
        return await self.advance(max(timedelta(), moment - self.now))

    async def answer(self, request: httpx.Request) -> ApiResponse:
        """The service's answer to a request whose body was read, for transports."""
        return await self._moving(_answer(self._routes, self.app, request))

    async def wait(self, seconds: float) -> None:
        """Return once the clock has gone on by `seconds`, moving it if nobody else does."""
        await self._moving(self.clock.sleep(seconds))

    async def _moving[T](self, work: Coroutine[Any, Any, T]) -> T:
        with waiting() as inside:
            # In a handler the host is at it already: whoever moves the clock there moves it for this too.
            return await (self._host.spawn(work) if inside else self._host.drive(work))


class _Driven:
    """The kit's clock for its clients: their pauses move it, where nobody else does."""

    def __init__(self, kit: Tocsin) -> None:
        self._kit = kit

    def now(self) -> Millis:
        return self._kit.clock.now()

    def monotonic(self) -> float:
        return self._kit.clock.monotonic()

    async def sleep(self, seconds: float) -> None:
        await self._kit.wait(seconds)


class _Inside(httpx.AsyncBaseTransport):
    """From the client to the routes, without a network."""

    def __init__(self, kit: Tocsin) -> None:
        self._kit = kit

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        status, headers, content = await self._kit.answer(request)
        return httpx.Response(status, headers=headers, content=content)


async def _answer(routes: Routes, app: Application, request: httpx.Request) -> ApiResponse:
    async def get_app() -> Application:
        return app

    path = request.url.raw_path.decode().partition("?")[0].removeprefix("/api/")
    headers = {name.lower(): value for name, value in request.headers.items()}
    for route in routes:
        if route.method == request.method and (params := templates.match(route.template, path)) is not None:
            return await serve(route, get_app, ApiRequest(request.method, str(request.url), headers, {}, params, request.content))
    # As the host answers what no route fits.
    return ApiResponse(404, {}, b"")
