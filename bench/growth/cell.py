"""One size of one kind: fills a folder with SQLite, and measures a process over it. Both run in processes of their own:

python -m bench.growth.cell fill|measure KIND SIZE FOLDER [quick]     `measure` prints JSON

Storage works in a thread of its own, so the CPU of the event loop's thread is that of the service alone, and the memory of the process has
none of the rows.
"""

from __future__ import annotations

import asyncio
import cProfile
import gc
import json
import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from devhost.loops import chosen_loop, loop_factory
from shared.app.application import Application
from shared.core.clock import Clock, Millis, SystemClock
from shared.core.settings import LOCAL_ADMIN_KEY
from shared.delivery.channels.fake import FakeReceiver
from shared.delivery.channels.model import HttpChannel
from shared.local.invocations import LocalApi
from shared.scheduler.timings import DAY, MINUTE
from shared.storage import Storage
from shared.storage.ports import Queues
from shared.storage.server_time import ServerTimeEstimator
from shared.storage.sqlite.database import Database
from shared.storage.sqlite.queues import FolderQueues
from shared.storage.sqlite.tables import FolderTables
from shared.tenants.model import KeyIn, Tenant
from shared.whatif.twin.trigger import QueueTrigger

from ..tools import machine
from ..tools.stage import KEY, TENANT, application, batch_text, chunks, event_text, flight, requests_of

NOWHERE: Final = "UseDevelopmentStorage=true"
TARGET: Final = HttpChannel(type="http", url="http://127.0.0.1:9/")
APART: Final[Millis] = 600
"""Time between two open events: a hundred a minute, so that the number of their shards grows with them."""
BATCH: Final = 5_000
WIDTH: Final = 64
"""Calls in flight while the folder is filled."""
AHEAD: Final[Millis] = 5_000
"""Time from the storing of a herd until it is due."""
LISTS: Final = {
    "events": ("/api/v1/events?limit=100", KEY),
    "tenants": ("/api/v1/tenants?limit=100", LOCAL_ADMIN_KEY),
    "schedules": ("/api/v1/schedules?limit=100", KEY),
    "channels": (f"/api/v1/tenants/{TENANT}/channels?limit=100", LOCAL_ADMIN_KEY),
}
"""The list of each kind, and the key that may read it."""
STATS: Final = ("/api/v1/stats", KEY)


@dataclass(frozen=True, slots=True)
class Effort:
    """The measured amounts. herd: events that are due at one instant. stream: events that are due over `over` milliseconds."""

    rounds: int = 3
    posts: int = 200
    herd: int = 2_000
    stream: int = 1_000
    over: Millis = 4_000
    lists: int = 20
    sweeps: int = 4
    """An even number: a sweep leaves out partitions of schedules in which the one before it has found nothing."""


QUICK: Final = Effort(rounds=1, posts=50, herd=200, stream=100, over=1_000, lists=5, sweeps=2)


@dataclass(frozen=True, slots=True)
class Spent:
    """The amounts for one request, event or sweep. cpu, storage: microseconds of the service's thread, and of all other threads."""

    cpu: float
    storage: float
    transactions: float


@dataclass(frozen=True, slots=True)
class Cell:
    """The measurement of one size. Lateness in milliseconds, memory in bytes.

    post: a POST of one tenant to one channel. spread: a POST of another tenant, or to another channel, each time. herd: an event of a herd,
    from its storing to its settlement. listed: the first page of the list of this kind; events: that of the tenant's events; stats: its
    `GET /stats`. sweep: the sweep of each minute; hourly: the job that removes what is over.
    post_calls, herd_calls: functions that a POST and an event of a herd call, whatever else the machine does.
    """

    kind: str
    size: int
    post: Spent
    spread: Spent
    herd: Spent
    listed: Spent
    events: Spent
    stats: Spent
    sweep: Spent
    hourly: Spent
    post_calls: float
    herd_calls: float
    p50: float
    p99: float
    memory: int


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Stage]:
    """The service over a folder."""
    clock = SystemClock()
    database, times = Database(folder), ServerTimeEstimator(clock)
    storage = Storage(FolderTables(database, clock, times), FolderQueues(database, clock), server_times=(times,))
    async with application(NOWHERE, clock=clock, storage=storage) as (app, receiver):
        yield Stage(app, receiver, FolderQueues(database, clock), clock)


class Stage:
    """A service with its receiver. queues: those that the host polls, whose requests are not counted."""

    def __init__(self, app: Application, receiver: FakeReceiver, queues: Queues, clock: Clock) -> None:
        self.app, self._receiver, self._clock = app, receiver, clock
        self._pump = QueueTrigger(app.scheduler, queues, clock)
        self._api = LocalApi(self._get_app)
        self._counters: Sequence[Counter[str]] = [each.transactions for each in (app.storage.tables, app.storage.queues)]  # type: ignore[union-attr]

    async def _get_app(self) -> Application:
        return self.app

    async def fill(self, kind: str, size: int) -> None:
        """Store as many of a kind. Tenants have a key, a channel and an open event each."""
        first = self._clock.now() + 10 * DAY
        first -= first % MINUTE
        if kind == "events":
            dues = [first + APART * number for number in range(size)]
            await flight([lambda some=some: self._store(TENANT, some) for some in chunks(dues, BATCH)], 2)  # type: ignore[misc]
            return
        make: Callable[[int], Awaitable[object]] = {"tenants": self._tenant, "schedules": self._schedule, "channels": self._channel}[kind]
        # The first tenant and channel are those of the local default.
        await flight([lambda number=number: make(number) for number in range(kind != "schedules", size)], WIDTH)  # type: ignore[misc]

    async def _store(self, tenant: str, dues: Sequence[Millis]) -> None:
        results = await self.app.scheduler.ingest.batch(tenant, batch_text(dues), lines=True)
        assert all(getattr(result, "new", False) for result in results), results[:1]

    async def _tenant(self, number: int) -> None:
        directory, name = self.app.directory, f"t{number}"
        await directory.put(name, Tenant())
        await directory.keys.plant(name, _key(number), KeyIn(scopes=["events"], note=""))
        await directory.channels.plant(name, "default", TARGET)
        await self._store(name, [self._clock.now() + 10 * DAY])

    async def _schedule(self, number: int) -> None:
        await self.app.scheduler.recurring.put(TENANT, f"s{number}", b'{"every":"P30D","payload":%d}' % number)

    async def _channel(self, number: int) -> None:
        await self.app.directory.channels.plant(TENANT, f"c{number}", TARGET)

    async def measure(self, kind: str, size: int, effort: Effort) -> Cell:
        """Measure all, each after a round that imports what is imported late. Raises `TimeoutError`."""
        async with self._pump:
            posts = [await self._posts(effort.posts, 1) for _ in range(1 + effort.rounds)]
            spread = [await self._posts(effort.posts, size, kind, 1 + number) for number in range(1 + effort.rounds)]
            herds = [await self._fire([self._clock.now() + AHEAD] * effort.herd) for _ in range(1 + effort.rounds)]
            post_calls = await _calls(lambda: self._posts(effort.posts, 1)) / effort.posts
            herd_calls = await _calls(lambda: self._fire([self._clock.now() + AHEAD] * effort.herd)) / effort.herd
            begins = self._clock.now() + AHEAD
            await self._fire([begins + number * effort.over // effort.stream for number in range(effort.stream)])
            late = sorted(each.began - each.delivery.due for each in self._receiver.received)
            listed, events, stats = [await self._reads(effort.lists, *each) for each in (LISTS[kind], LISTS["events"], STATS)]
            timers = self.app.timers
            # The first one runs the hourly job too.
            await timers.sweep()
            sweep = await self._spent(effort.sweeps, timers.sweep)
            hourly = await self._spent(1, lambda: timers.run_once("retention_scan"))
        gc.collect()
        return Cell(
            kind,
            size,
            _typical(posts[1:]),
            _typical(spread[1:]),
            _typical(herds[1:]),
            listed,
            events,
            stats,
            sweep,
            hourly,
            post_calls,
            herd_calls,
            late[len(late) // 2],
            late[len(late) * 99 // 100],
            machine.resident(),
        )

    async def _posts(self, count: int, among: int, kind: str = "", turn: int = 0) -> Spent:
        """Post events one after the other; `among` so many tenants or channels."""
        due = self._clock.now() + 20 * DAY + turn * MINUTE
        numbers = iter(range(turn * count, (turn + 1) * count))

        async def post() -> None:
            number = next(numbers) % among
            channel = f"c{number}" if kind == "channels" and number else ""
            key = _key(number) if kind == "tenants" and number else KEY
            await self._call("POST", "/api/v1/events", event_text(number, due, channel).encode(), key)

        return await self._spent(count, post)

    async def _reads(self, count: int, path: str, key: str) -> Spent:
        await self._call("GET", path, key=key)
        return await self._spent(count, lambda: self._call("GET", path, key=key))

    async def _fire(self, dues: Sequence[Millis]) -> Spent:
        """Store events, and wait until they have come and are settled."""
        self._receiver.received.clear()

        async def fire() -> None:
            await self._store(TENANT, dues)
            ends = self._clock.monotonic() + 120
            while len(self._receiver.received) < len(dues) or self._pump.busy:
                if self._clock.monotonic() > ends or self._pump.errors:
                    raise TimeoutError(f"{len(self._receiver.received)} of {len(dues)} events came; {self._pump.errors[:1]}")
                await self._clock.sleep(0.1)

        return await self._spent(1, fire, len(dues))

    async def _spent(self, times: int, work: Callable[[], Awaitable[object]], amount: int = 1) -> Spent:
        """Do some work several times; return what one of `amount` parts of it has used."""
        gc.collect()
        before, cpu, whole = self._requests(), time.thread_time(), time.process_time()
        for _ in range(times):
            await work()
        own, count = time.thread_time() - cpu, times * amount
        others = time.process_time() - whole - own
        return Spent(own / count * 1e6, others / count * 1e6, (self._requests() - before) / count)

    def _requests(self) -> int:
        return sum(requests_of(each) for each in self._counters)

    async def _call(self, method: str, path: str, body: bytes = b"", key: str = KEY) -> None:
        headers = {"authorization": f"Bearer {key}", "content-type": "application/json"}
        answer = await self._api.answer(method, f"http://localhost{path}", path.partition("?")[0], headers, body)
        assert answer.status in (200, 201), answer.body[:500]


async def _calls(work: Callable[[], Awaitable[object]]) -> float:
    """Return the number of functions that some work calls in the event loop's thread."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        await work()
    finally:
        profile.disable()
    return float(sum(each.callcount for each in profile.getstats()))


def _key(number: int) -> str:
    return f"bench-key-of-tenant-{number}"


def _typical(rounds: Sequence[Spent]) -> Spent:
    """Return the least CPU of the rounds, which other processes disturb, and the median of their transactions."""
    return Spent(
        min(each.cpu for each in rounds), min(each.storage for each in rounds), statistics.median(each.transactions for each in rounds)
    )


async def _run(what: str, kind: str, size: int, folder: Path, effort: Effort) -> None:
    async with opened(folder) as stage:
        if what == "fill":
            await stage.fill(kind, size)
        else:
            print(json.dumps(asdict(await stage.measure(kind, size, effort))))


def main() -> None:
    what, kind, size, folder, *quick = sys.argv[1:]
    work = _run(what, kind, int(size), Path(folder), QUICK if quick else Effort())
    asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))


if __name__ == "__main__":
    main()
