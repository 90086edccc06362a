"""The measured jobs: each is done in a devhost whose worker process is sampled, and its floor without the app."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from shared.core.clock import SystemClock
from shared.storage.azure import wire
from shared.storage.azure.account import VERSION, from_connection_string
from shared.storage.azure.tables import _WRITE, AzureTables
from shared.storage.names import EVENTS
from shared.storage.ports import Applied, Insert, Merge

from ..events.firing import _post, _soon
from ..events.singles import HEADERS, HOUR
from ..tools import machine
from ..tools.stage import Host, Receiving, devhost, emulator, event_text, flight, load, receiving

SAMPLING: Final = Path(__file__).parent / "sampling"
ROUNDS: Final = 3
COUNT: Final = 5_000
SECONDS: Final = 4.0
MERGES: Final = 1_000
WIDTH: Final = 8
"""Merges of one row at once: more of them wait for each other in the emulator."""

type Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Spent:
    """CPU time of one job in microseconds: of the worker process, by layer, and of the devhost's other process.

    floor: what the same costs without the app. floor_is: what that is.
    """

    job: str
    count: int
    layers: dict[str, float]
    host: float
    floor: float
    floor_is: str
    samples: int = field(default=0)

    @property
    def whole(self) -> float:
        """Microseconds of the worker process."""
        return sum(self.layers.values())


class Profiles:
    """Begins and ends the profile of a devhost's worker."""

    def __init__(self, host: Host, folder: Path) -> None:
        [self._worker] = machine.workers(host.pid)
        self._host, self._folder = host.pid, folder
        self._layers: Counter[str] = Counter()
        self._cpu = self._host_cpu = 0.0
        self._before = 0.0

    def begin(self) -> None:
        self._before = machine.cpu_seconds(self._host) - self._of_worker()
        os.kill(self._worker, signal.SIGUSR1)

    async def end(self) -> None:
        """Raises TimeoutError if the worker writes no profile."""
        self._host_cpu += machine.cpu_seconds(self._host) - self._of_worker() - self._before
        os.kill(self._worker, signal.SIGUSR2)
        file = self._folder / f"{self._worker}.json"
        async with asyncio.timeout(10):
            while not file.exists():  # noqa: ASYNC110  written by another process
                await asyncio.sleep(0.01)
        found = json.loads(file.read_text())
        file.unlink()
        self._layers.update(found["layers"])
        self._cpu += found["cpu"]

    def _of_worker(self) -> float:
        return machine.cpu_seconds(self._worker)

    def spent(self, job: str, count: int, floor: float, floor_is: str) -> Spent:
        """Return what `count` jobs have used, divided among the layers by their samples."""
        each = self._cpu / count * 1e6
        samples = self._layers.total()
        layers = {name: each * number / samples for name, number in self._layers.most_common()}
        return Spent(job, count, layers, self._host_cpu / count * 1e6, floor, floor_is, samples)


@contextlib.asynccontextmanager
async def _sampled(connection: str, receiver: str = "http://127.0.0.1:9/") -> AsyncIterator[tuple[Host, Profiles]]:
    with tempfile.TemporaryDirectory() as folder:
        path = os.pathsep.join(filter(None, (str(SAMPLING), os.environ.get("PYTHONPATH"))))
        async with devhost(connection, receiver, {"PYTHONPATH": path, "BENCH_PROFILES": folder}) as host:
            yield host, Profiles(host, Path(folder))


async def post(progress: Progress) -> Spent:
    """A single POST; its floor is a no-op route of the same worker."""
    count, floors = 0, []
    with emulator() as azurite:
        async with _sampled(azurite.connection_string) as (host, profiles):
            due = HOUR * 24 + int(1000 * time.time())
            calls = [("POST", "/api/v1/events", HEADERS, event_text(number, due + number)) for number in range(1000)]
            await load(host, calls, seconds=1.0)
            [worker] = machine.workers(host.pid)
            for turn in range(ROUNDS):
                progress(f"single POSTs, round {turn + 1} of {ROUNDS}")
                before = machine.cpu_seconds(worker)
                found = await load(host, [("GET", "/api/healthz", {}, "")], seconds=SECONDS / 2)
                floors.append((machine.cpu_seconds(worker) - before) / found["count"] * 1e6)
                profiles.begin()
                found = await load(host, calls, seconds=SECONDS)
                await profiles.end()
                count += found["count"]
            return profiles.spent("a POST", count, statistics.median(floors), "a no-op route of the same worker")


async def delivery(progress: Progress) -> Spent:
    """A delivery of a herd, from five seconds before its time until it is settled; its floor are bare requests to the same receiver."""
    count = 0
    async with receiving() as receiver:
        with emulator() as azurite:
            async with _sampled(azurite.connection_string, receiver.url) as (host, profiles):
                for turn in range(ROUNDS):
                    progress(f"deliveries, round {turn + 1} of {ROUNDS}")
                    await receiver.ask("reset")
                    due = _soon(12.0, 1.0)
                    await _post(host, [due] * COUNT)
                    await asyncio.sleep(max(0.0, due / 1000 - 5.0 - time.time()))
                    profiles.begin()
                    await receiver.until(COUNT, 60.0, lambda arrived: None)
                    await asyncio.sleep(1.5)
                    await profiles.end()
                    count += COUNT
        floor = await _bare_posts(receiver)
    return profiles.spent("a delivery", count, floor, "bytes made beforehand, sent on open connections")


async def _bare_posts(receiver: Receiving) -> float:
    target = Host(receiver.url, receiver.port, receiver.pid, None)  # type: ignore[arg-type]
    found = await load(target, [("POST", "/", {"content-type": "application/json"}, event_text(1, 0))], seconds=SECONDS)
    return float(found["cpu"]) / float(found["count"]) * 1e6


async def transaction(progress: Progress) -> Spent:
    """A merge of one row through the product's client of table storage, in this process; its floor are bare requests."""
    with emulator() as azurite:
        account = from_connection_string("table", azurite.connection_string)
        tables = AzureTables.from_connection_string(azurite.connection_string, SystemClock())
        await tables.ensure([EVENTS])
        answer = await tables.write(EVENTS, "profile", [Insert("row", {"state": "scheduled", "body": "x" * 500})])
        assert isinstance(answer, Applied)

        async def merge() -> None:
            found = await tables.write(EVENTS, "profile", [Merge("row", {"state": "cancelled", "by": "0123456789abcdef"}, "*")])
            assert isinstance(found, Applied)

        spent = []
        for turn in range(-1, ROUNDS):
            progress(f"storage transactions, round {turn + 1} of {ROUNDS}")
            spent.append((await flight([merge] * MERGES, WIDTH))[1] / MERGES * 1e6)
        await tables.close()
        path = f"/{wire.entity_path(EVENTS, 'profile', 'row')}"
        headers = {**_WRITE, "If-Match": "*", "x-ms-version": VERSION}
        await account.credential.authorize("PATCH", account.path + path, {}, headers, 0)
        body = wire.encode_row("profile", "row", {"state": "cancelled", "by": "0123456789abcdef"}).decode()
        port = int(account.base.rpartition(":")[2].partition("/")[0])
        target = Host(account.base, port, 0, None)  # type: ignore[arg-type]
        found = await load(target, [("PATCH", account.path + path, headers, body)], seconds=SECONDS)
        assert set(found["statuses"]) == {"204"}, found["statuses"]
    return Spent(
        "a transaction",
        MERGES * ROUNDS,
        {"storage": statistics.median(spent[1:])},
        0.0,
        float(found["cpu"]) / found["count"] * 1e6,
        "bare requests",
    )


JOBS: Final[dict[str, Callable[[Progress], Awaitable[Spent]]]] = {"post": post, "delivery": delivery, "transaction": transaction}
