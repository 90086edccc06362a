"""The whole application over a mirrored pair of accounts in memory; either can be taken away at any moment."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.app.application import Application
from shared.core.errors import StorageError, Unavailable
from shared.scheduler.timings import CARRIED_FROM_TRY
from shared.storage import spread_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import EVENTS, QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS
from shared.storage.ports import Row
from tests.faults import Faults, Perform, Request
from tests.unit.scheduler.harness import SCAN, World, make_settings

MIRROR = "AccountName=devstoreaccount1;AccountKey=a2V5;TableEndpoint=http://127.0.0.1:1/b;QueueEndpoint=http://127.0.0.1:2/b"

QUEUES = (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST)


class MortalTables(Faults):
    """Tables of an account that can go away, for good or for a while. `fails(table, ops)`: a single call that does not get through."""

    away = False
    hangs = False
    """No answer comes at all."""
    waiting = 0
    """Calls that have waited for one."""
    fails: Any = None

    async def plan(self, request: Request, perform: Perform) -> Any:
        if self.hangs:
            self.waiting += 1
            await asyncio.get_running_loop().create_future()
        if self.away or (self.fails is not None and self.fails(request.table, request.ops)):
            raise Unavailable("the account is away")
        return await perform()

    def states(self) -> dict[str, str]:
        """Event id -> state, of all rows that are not pointers."""
        return {
            str(row.props["id"]): str(row.props["state"])
            for partition in self._tables[EVENTS].values()
            for row in partition.rows.values()
            if row.rk.startswith("e") and row.props["state"] != "moved"
        }


class MortalQueues(MemoryQueues):
    """Queues that go with their account. hold: messages can be put, and do not come."""

    away = False
    hold = False

    async def send(self, queue: str, text: str, *, visible_in: float = 0.0) -> None:
        if self.away and not self.hold:
            raise Unavailable("the account is away")
        await super().send(queue, text, visible_in=visible_in)


class PairWorld(World):
    """A world over two accounts."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(mirror=MIRROR, **settings)
        self.first, self.second = MortalTables(MemoryTables(self.clock)), MortalTables(MemoryTables(self.clock))
        self.first_queues, self.second_queues = MortalQueues(self.clock), MortalQueues(self.clock)
        self.storage = spread_storage([self.first], self.first_queues, self.clock, second=(self.second, self.second_queues))

    async def get_app(self) -> Application:
        return await self.app.serving()

    async def app_of_first(self) -> Application:
        """The application on the first account, whichever side serves."""
        return self.app

    async def start_again(self, **change: Any) -> None:
        """A new process, with other settings: `mirror_detached` for the first account alone, else with whatever `second` is now."""
        await self.app.close()
        mirror = {} if change.get("mirror_detached") else {"mirror": MIRROR}
        self.settings = make_settings(**mirror, **change)
        second = None if change.get("mirror_detached") else (self.second, self.second_queues)
        self.storage = spread_storage([self.first], self.first_queues, self.clock, second=second, detached=second is None)
        await self.open()

    def lose_first(self) -> None:
        """The first account is gone."""
        self.first.away = self.first_queues.away = True

    def find_first(self) -> None:
        """It is back, with its data."""
        self.first.away = self.first_queues.away = False

    async def run(self, seconds: float, step: float = 0.25) -> None:
        """Act as the host of both accounts for this many seconds. Errors while an account is away are ignored, as hosts do."""
        end = self.clock.monotonic() + seconds
        while True:
            if self.clock.monotonic() - self._scanned >= SCAN:
                self._scanned = self.clock.monotonic()
                app = await self.do(self.app.serving())
                self._start(app.timers.run_once("scheduler_scan"))
                if int(self._scanned / SCAN) % 4 == 0:
                    self._start(app.timers.run_once("stale_scan"))
            for app, queues in ((self.app, self.first_queues), (self.app.other, self.second_queues)):
                for queue in QUEUES if app is not None and not queues.away else ():
                    assert app is not None
                    for message in await queues.receive(queue):
                        self._start(self._hand(app, queues, queue, message))
            left = end - self.clock.monotonic()
            if left <= 1e-9:
                break
            await self.clock.advance(min(step, left), settle=15)
        others = [problem for problem in self.problems if not isinstance(problem, StorageError) and "failed" not in str(problem)]
        if others:
            raise others[0]
        self.problems.clear()

    async def _hand(self, app: Application, queues: MortalQueues, queue: str, message: Any) -> None:
        if queue == QUEUE_INGEST:
            taker = app if message.dequeue_count >= CARRIED_FROM_TRY else await self.app.serving()
            await taker.scheduler.intake.serve(message, own=taker is app)
        else:
            await app.scheduler.firing.serve(message.text)
        await queues.delete(queue, message)

    @staticmethod
    def rows_of(tables: MemoryTables, table: str) -> list[Row]:
        """All rows of a table of one account."""
        return [
            Row(pk, row.rk, dict(row.props), row.etag, row.timestamp, row.timestamp)
            for pk, partition in tables._tables[table].items()
            for row in partition.rows.values()
        ]

    def events_of(self, tables: MemoryTables) -> list[Row]:
        """Rows of events of one account."""
        return [row for row in self.rows_of(tables, EVENTS) if row.rk.startswith("e")]

    async def storage_status(self) -> dict[str, Any]:
        """Return the answer to `GET /storage`."""
        answer = await self.admin.get("/api/v1/storage")
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        return found

    async def fail_over(self) -> None:
        """Lose the first and let the second take over."""
        self.lose_first()
        answer = await self.admin.post("/api/v1/storage/failover", {})
        assert answer.status == 202, answer
        await self.run(47)
        assert (await self.storage_status())["mirror"]["state"] == "serving"

    def deliveries(self) -> dict[str, int]:
        """Event id -> how often it was delivered."""
        counts: dict[str, int] = {}
        for received in self.receiver.received:
            counts[received.delivery.id] = counts.get(received.delivery.id, 0) + 1
        return counts
