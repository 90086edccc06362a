"""The whole service in this process, on real time: application, functions, senders that report each attempt, and HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from typing import Any, Final, Self

from ..app.application import Application
from ..app.warming import warm
from ..core.answered_hosts import AnsweredHosts, is_loopback
from ..core.clock import Clock, SystemClock
from ..core.errors import Problem
from ..core.process_identity import ProcessIdentity
from ..core.settings import LOCAL_ADMIN_KEY, LOCAL_SIGNING_KEY, GivenSettings, Settings
from ..delivery.channels import open_senders
from ..delivery.channels.model import HttpChannel
from ..delivery.channels.ports import OutgoingDelivery, Sender, Target, Verdict
from ..extras.parts import PARTS, SENDERS
from ..storage import Storage
from ..storage.ports import Message
from ..tenants.rules import prefix_of
from ..tenants.store import seed_demo
from . import demo
from .functions import LocalFunctions, ObservedQueues
from .http_server import MAX_BODY, RECEIVER, LocalServer, listen
from .invocations import LocalApi, invoke
from .receiver import ReceivedDeliveries
from .stores import StoreChoice, open_store

log = logging.getLogger(__name__)


type OnAttempt = Callable[[Target, OutgoingDelivery, Verdict], object]
"""Called with each attempt that has ended."""


class WatchedSenders(dict[str, Sender]):
    """Senders by channel type. Each is made at its first use, like the senders of `open_senders`."""

    def __init__(self, senders: Mapping[str, Sender], on_attempt: OnAttempt) -> None:
        super().__init__()
        self._senders, self._on_attempt = senders, on_attempt
        # An empty mapping would count as none.
        _ = self["http"]

    def __missing__(self, channel_type: str) -> Sender:
        made = self[channel_type] = _WatchedSender(self._senders[channel_type], self._on_attempt)
        return made


class _WatchedSender:
    def __init__(self, sender: Sender, on_attempt: OnAttempt) -> None:
        self._sender, self._on_attempt = sender, on_attempt

    async def send(self, target: Target, delivery: OutgoingDelivery) -> Verdict:
        verdict = await self._sender.send(target, delivery)
        self._on_attempt(target, delivery, verdict)
        return verdict

    async def close(self) -> None:
        await self._sender.close()


GRACE: Final = 1.0
"""Seconds that running messages get at the end. They are few, because a person waits for the end."""
HERE: Final = "localhost, 127.0.0.0/8, ::1/128"
"""Hosts of this machine, which channels may reach in addition to public ones."""


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of the service. demo: the key of tenant `demo`."""

    admin: str = LOCAL_ADMIN_KEY
    signing: str = LOCAL_SIGNING_KEY
    demo: str = demo.KEY

    @property
    def public(self) -> bool:
        """True if one of them is a public sample value, or looks like one."""
        return any(key.startswith("local-") for key in (self.admin, self.signing, self.demo))


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """The options of a local service. port: 0 chooses a free one. egress: further hosts and networks that channels may reach."""

    host: str = "localhost"
    port: int = 7071
    store: StoreChoice = StoreChoice()  # noqa: RUF009  immutable
    keys: Keys = Keys()
    egress: str = ""


class LocalService:
    """The service: `async with LocalService(options, on_attempt) as service`. `close` ends it in order."""

    def __init__(self, options: LocalOptions, on_attempt: OnAttempt = lambda target, delivery, verdict: None) -> None:
        """on_attempt: called with each attempt at a delivery that has ended. Raises `PortTaken`, `UnsafeSettings`."""
        self._options, self._on_attempt = options, on_attempt
        self._stack = AsyncExitStack()
        self._duties: list[asyncio.Task[None]] = []
        self._sockets = listen(options.host, options.port)
        self.port: int = self._sockets[0].getsockname()[1]
        self.secret = ""
        """The webhook secret of the channel `default`; '' if the service has none."""

    @property
    def url(self) -> str:
        """The address of the service, without a path."""
        host = "localhost" if self._options.host in ("0.0.0.0", "::") else self._options.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @property
    def receiver_url(self) -> str:
        """The address of the receiver, and of its page."""
        return f"{self.url}{RECEIVER}"

    async def __aenter__(self) -> Self:
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End in order: take no more calls and messages, give running ones a moment, release shards, close the storage."""
        await self._stack.aclose()
        for each in self._sockets:
            each.close()

    async def _open(self) -> None:
        options, clock = self._options, SystemClock()
        settings = self._settings()
        storage = open_store(options.store, settings, clock)
        self._stack.push_async_callback(storage.close)
        queues = ObservedQueues(storage.queues)
        storage = replace(storage, queues=queues)
        app = await self._open_app(settings, storage, clock)
        # It closes the storage too; closing that twice does no harm.
        self._stack.push_async_callback(app.close)
        if settings.emulated:
            await self._seed(app)

        async def get_app() -> Application:
            app.glance()
            return app

        async def carry_out(queue: str, message: Message) -> None:
            await invoke(await get_app(), queue, message)

        open_to_others = not is_loopback(options.host)
        hosts = None if open_to_others else AnsweredHosts()
        key = options.keys.demo if open_to_others else ""
        server = LocalServer(self._sockets, LocalApi(get_app), ReceivedDeliveries(), hosts, key)
        self._stack.push_async_callback(server.close)
        functions = LocalFunctions(queues, carry_out, app.timers, clock)
        self._stack.push_async_callback(self._end_duties)
        self._stack.push_async_callback(functions.close, GRACE)
        self._stack.callback(app.leave)
        self._stack.push_async_callback(server.stop_accepting)
        functions.start()
        await server.start()
        for duty in (app.recover(), app.stalls.run(), warm()):
            self._begin(duty)

    def _settings(self) -> Settings:
        """Return the settings. Raises `UnsafeSettings`."""
        options = self._options
        given: dict[str, Any] = {
            **options.store.settings(),
            "admin_key": options.keys.admin,
            "signing_key": options.keys.signing,
            "public_url": self.url,
            "receiver": self.receiver_url,
            "body_limit": MAX_BODY,
            "wakes": "off",
        }
        here = [] if not options.store.emulated else [HERE, *([] if is_loopback(options.host) else [options.host])]
        return GivenSettings(**given, egress_allow=", ".join(filter(None, (*here, options.egress))))

    async def _open_app(self, settings: Settings, storage: Storage, clock: Clock) -> Application:
        await storage.ensure()
        senders = WatchedSenders(open_senders(settings, storage.queues, clock, SENDERS), self._on_attempt)
        return await Application.open(settings, parts=PARTS, clock=clock, storage=storage, senders=senders, process=ProcessIdentity())

    async def _seed(self, app: Application) -> None:
        """Create tenant `demo`, its key, and the channel to the receiver, which moves with the port."""
        directory, own = app.directory, self._options.keys.demo
        await seed_demo(directory, own, self.receiver_url)
        if own != demo.KEY:
            # The folder may have been used with the public key before: revoke that one.
            with contextlib.suppress(Problem):
                await directory.keys.revoke(demo.TENANT, prefix_of(demo.KEY))
        target = await directory.target(demo.TENANT, demo.CHANNEL)
        if target is None:
            return
        spec = target.spec
        if isinstance(spec, HttpChannel) and spec.url != self.receiver_url and spec.url.endswith(RECEIVER) and _is_here(spec.url):
            await directory.channels.put(demo.TENANT, demo.CHANNEL, spec.model_copy(update={"url": self.receiver_url}))
        self.secret = target.secrets[0] if target.secrets else ""

    def _begin(self, duty: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(duty)
        self._duties.append(task)
        task.add_done_callback(_report)

    async def _end_duties(self) -> None:
        for each in self._duties:
            each.cancel()
        await asyncio.gather(*self._duties, return_exceptions=True)


def _is_here(url: str) -> bool:
    """Return True for a URL of this machine that an earlier run may have given the channel."""
    host = url.partition("://")[2].partition("/")[0].rpartition(":")[0]
    return is_loopback(host.strip("[]"))


def _report(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error("A duty of the process ended with an unexpected error", exc_info=error, extra={"action": "duty_failed"})
