"""The whole application on storage in memory, a clock that stands still, and a receiver in place of every channel.

Nothing here waits for real time: `World.do` turns the clock just far enough for a call to end, `World.run` plays the host (queue triggers,
scan timer) for a span of the clock's time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast

from shared.app.application import Application
from shared.core.clock import Clock, Millis, SettableClock
from shared.core.ids import SeededIds
from shared.core.process_identity import ProcessIdentity
from shared.core.settings import Settings
from shared.delivery.channels.fake import FakeReceiver
from shared.delivery.channels.model import CHANNEL_TYPES
from shared.delivery.channels.ports import Sender
from shared.extras.parts import PARTS, build_routes
from shared.scheduler.keys import Address
from shared.storage import Storage, memory_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_TABLES, EVENTS, QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS, TENANTS
from shared.storage.ports import Message, Row
from shared.web.local_client import LocalClient, LocalReply
from tests.pages import read_pages

ADMIN = "local-admin-key"
DEMO = "local-demo-key"
START: Millis = 1_800_000_000_000
"""2027-01-15T08:00:00Z, the start of a minute."""
SCAN = 15.0
ROUTES = build_routes()

type Dump = dict[str, Any]


def make_settings(**change: Any) -> Settings:
    given = {
        "storage": "UseDevelopmentStorage=true",
        "admin_key": ADMIN,
        "signing_key": "local-signing-key",
        "local": True,
        "egress_allow": "localhost, 127.0.0.0/8",
        "receiver": "http://localhost:7072/",
        # Tests of express delivery turn it on; all others see what happens between the request and the delivery.
        "express_events": 0,
        # So do those of wakes.
        "wakes": "off",
    }
    return Settings(**(given | change))


async def drive[T](clock: SettableClock, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, moving the clock from sleeper to sleeper while it is not done."""
    task = asyncio.ensure_future(work)
    while not task.done():
        for _ in range(30):
            await asyncio.sleep(0)
            if task.done():
                break
        else:
            step = clock.next_wake()
            if step is not None:
                await clock.advance(step, settle=3)
    return task.result()


class World:
    """An application and its callers."""

    def __init__(self, *, clock: Clock | None = None, **settings: Any) -> None:
        """`clock`: another one, for a world that others than `do` and `run` drive."""
        self.clock = cast(SettableClock, clock or SettableClock(START))
        self.storage: Storage = memory_storage(self.clock)
        self.receiver = FakeReceiver(self.clock)
        self.settings = make_settings(**settings)
        self.app: Application
        self.process: ProcessIdentity | None = None
        """Identity of the process that `open` plays."""
        self._opened = 0
        self.problems: list[BaseException] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._scanned = 0.0
        self.demo = self.client(DEMO)
        self.admin = self.client(ADMIN)
        self.nobody = self.client(None)

    @property
    def tables(self) -> MemoryTables:
        return cast(MemoryTables, self.storage.tables)

    @property
    def queues(self) -> MemoryQueues:
        return cast(MemoryQueues, self.storage.queues)

    @property
    def now(self) -> Millis:
        return self.clock.now()

    def client(self, key: str | None) -> Client:
        return Client(self, key)

    async def open(self) -> World:
        senders = cast(Mapping[str, Sender], dict.fromkeys(CHANNEL_TYPES, self.receiver))
        self._opened += 1
        self.app = await Application.open(
            self.settings,
            parts=PARTS,
            clock=self.clock,
            ids=SeededIds(6 + self._opened),
            storage=self.storage,
            senders=senders,
            process=self.process,
        )
        return self

    async def close(self) -> None:
        # An invocation that has just been made begins, so that it can be cancelled.
        await asyncio.sleep(0)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.app.close()

    async def get_app(self) -> Application:
        return self.app

    async def do[T](self, work: Coroutine[Any, Any, T]) -> T:
        return await drive(self.clock, work)

    async def run(self, seconds: float, step: float = 0.25) -> None:
        """Act as the host for this many seconds: serve the queues, and tick every 15 s. Raises the errors of invocations."""
        end = self.clock.monotonic() + seconds
        while True:
            if self.clock.monotonic() - self._scanned >= SCAN:
                self._scanned = self.clock.monotonic()
                self._start(self.app.timers.run_once("scheduler_scan"))
            for queue in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST):
                for message in await self.queues.receive(queue):
                    self._start(self._serve(queue, message))
            left = end - self.clock.monotonic()
            if left <= 1e-9:
                break
            await self.clock.advance(min(step, left), settle=15)
        if self.problems:
            raise self.problems[0]

    async def _serve(self, queue: str, message: Message) -> None:
        if await self.app.leave_to_newer(queue, message):
            pass
        elif queue == QUEUE_INGEST:
            await self.app.scheduler.intake.serve(message)
        else:
            await self.app.scheduler.firing.serve(message.text)
        await self.queues.delete(queue, message)

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        async def watched() -> None:
            try:
                await work
            except Exception as error:
                self.problems.append(error)

        task = asyncio.ensure_future(watched())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def dump(self) -> Dump:
        """Everything stored, rows and messages, for comparison; without the audit trail and the days on which keys were used."""
        rows = {
            (table, pk, row.rk): (row.etag if "scopes" not in row.props else "", {**row.props, "used": ""})
            for table in ALL_TABLES
            for pk, partition in self.tables._tables.get(table, {}).items()
            for row in partition.rows.values()
            if not pk.startswith("audit:")
        }
        messages = {
            (name, sent.id): (sent.text, sent.visible) for name, queue in self.queues._queues.items() for sent in queue.messages.values()
        }
        return {**rows, **messages}

    def rows(self, table: str, pk: str = "") -> list[Row]:
        return [
            Row(found, row.rk, dict(row.props), row.etag, row.timestamp, row.timestamp)
            for found, partition in self.tables._tables[table].items()
            if not pk or found == pk
            for row in partition.rows.values()
        ]

    def events(self) -> list[Row]:
        """Rows of events, gates left out."""
        return [row for row in self.rows(EVENTS) if row.rk.startswith("e")]

    async def put_props(self, tenant: str, event_id: str, **props: Any) -> None:
        """Change an event's row behind everybody's back: to bring it into a state that is hard to reach otherwise."""
        from shared.storage.ports import ANY, Merge

        address = await self.app.scheduler.lookup.address(tenant, event_id)
        assert isinstance(address, Address)
        row = await self.app.scheduler.lookup.event(tenant, event_id)
        assert row is not None
        await self.tables.write(EVENTS, row.pk, (Merge(row.rk, props, ANY),))

    async def tenant(self, name: str = "acme", scopes: list[str] | None = None, **settings: Any) -> Client:
        """A new tenant with a channel `default`; a client with a key of it."""
        assert (await self.admin.put(f"/api/v1/tenants/{name}", settings)).status == 201
        channel = {"type": "http", "url": "http://localhost:7072/x"}
        assert (await self.admin.put(f"/api/v1/tenants/{name}/channels/default", channel)).status == 201
        return await self.key(name, scopes or ["events"])

    async def key(self, tenant: str, scopes: list[str], **more: Any) -> Client:
        made = await self.admin.post(f"/api/v1/tenants/{tenant}/keys", {"scopes": scopes, **more})
        assert made.status == 201
        return self.client(made.json()["key"])

    def without_caches(self, dump: Dump) -> Dump:
        return {key: value for key, value in dump.items() if key[0] != TENANTS}


type Look = Callable[[str, str, LocalReply], None]


class Client(LocalClient):
    """A caller with a key, whose calls move the clock as far as they need. Each answer is shown to `looks`."""

    looks: list[Look] = []  # noqa: RUF012  set once, by the API tests: every answer must be as the document says

    def __init__(self, world: World, key: str | None) -> None:
        super().__init__(ROUTES, world.get_app, key=key)
        self.world, self.key = world, key

    async def call(self, method: str, url: str, body: Any = None, headers: Mapping[str, str] | None = None) -> LocalReply:
        reply = await self.world.do(super().call(method, url, body, headers))
        for look in self.looks:
            look(method, url, reply)
        return reply

    def without_time(self) -> LocalClient:
        """Return a client with the same key whose calls leave the clock alone."""
        return LocalClient(ROUTES, self.world.get_app, key=self.key)

    async def create(self, **event: Any) -> dict[str, Any]:
        """A new event, by default in an hour."""
        answer = await self.post("/api/v1/events", {"payload": {"n": 1}} | ({} if "due" in event else {"delay": "PT1H"}) | event)
        assert answer.status == 201, answer
        found: dict[str, Any] = answer.json()
        return found

    async def event(self, event_id: str) -> dict[str, Any]:
        answer = await self.get(f"/api/v1/events/{event_id}")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def pages(self, url: str) -> list[list[dict[str, Any]]]:
        """Return all pages of a list."""
        return await read_pages(self.get, url)

    async def all(self, url: str) -> list[dict[str, Any]]:
        return [item for page in await self.pages(url) for item in page]


type Fixture = Awaitable[World]
