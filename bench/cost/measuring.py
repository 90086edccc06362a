"""Runs the app under a load for a time, and returns the amounts that Azure bills."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT, Azurite
from devhost.host.settings import load_host
from devhost.host.timers import TimerSchedule
from shared.app.timers import SCHEDULES, SOON_FUNCTION
from shared.scheduler.queue_functions import QUEUE_FUNCTIONS
from shared.storage.names import QUEUE_SWEEPS

from ..tools.stage import KEY, Host, Receiving, devhost, receiving
from . import deployed, observed
from .instances import Limit, limited, limits
from .rules import MONTH, Operations, RareTimer, Record

SHARE: Final = "OTEL_TRACES_SAMPLER_ARG"
"""The setting with the share of requests that are traced. A measurement traces all, because a share of few requests varies by chance."""
MASTER_KEY: Final = "local-master-key"
LISTENERS: Final = {name: queue for name, queue, _ in QUEUE_FUNCTIONS} | {SOON_FUNCTION: QUEUE_SWEEPS}
ALIGNED: Final = 15.0
"""Windows begin half-way between two ticks of the timers, so that windows of whole minutes have whole numbers of them."""

type ShowProgress = Callable[[str, float, float], None]


@dataclass(slots=True)
class Stage:
    """The app on its instances, its storage, its receiver, and the records of all of them."""

    host: Host
    azurite: Azurite
    receiver: Receiving
    telemetry: observed.Telemetry
    storage: observed.StorageLog
    invocations: Path
    memory_mb: int
    limit: Limit
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def call(self, method: str, path: str, body: Any = None, expect: tuple[int, ...] = (200, 201, 202, 204)) -> Any:
        """Call the API below /api/v1. Raises RuntimeError for another status."""
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body)
        async with self.host.session.request(method, f"{self.host.url}/api/v1{path}", data=data, headers=headers) as answer:
            text = await answer.text()
            if answer.status not in expect:
                raise RuntimeError(f"{method} {path}: {answer.status} {text[:300]}")
            return json.loads(text) if text else None

    async def delivered(self) -> int:
        """Return the number of deliveries so far."""
        return int((await self.receiver.ask("count"))["count"])


@asynccontextmanager
async def stage(memory_mb: int) -> AsyncIterator[Stage]:
    """Start everything; the processes of the app have an instance's size."""
    batch = load_host(ROOT).queues.batch_size
    with tempfile.TemporaryDirectory() as folder:
        requests, invocations = Path(folder, "requests.log"), Path(folder, "invocations.jsonl")
        invocations.touch()  # noqa: ASYNC240  nothing else is going on
        with Azurite(memory=True, requests=requests) as azurite:
            async with receiving() as receiver, observed.telemetry() as telemetry, limits(memory_mb) as limit:
                settings = {
                    **deployed.settings(),
                    SHARE: "1",
                    "SPLIT": "1",
                    "DEVHOST_INVOCATIONS": str(invocations),
                    "DEVHOST_MASTER_KEY": MASTER_KEY,
                    "APPLICATIONINSIGHTS_CONNECTION_STRING": telemetry.connection,
                    "APPLICATIONINSIGHTS_STATSBEAT_DISABLED_ALL": "true",
                }
                async with devhost(azurite.connection_string, receiver.url, settings) as host, limited(host.pid, limit):
                    log = observed.StorageLog(requests, batch)
                    found = Stage(host, azurite, receiver, telemetry, log, invocations, memory_mb, limit)
                    try:
                        yield found
                    finally:
                        for task in found.tasks:
                            task.cancel()
                        await asyncio.gather(*found.tasks, return_exceptions=True)


async def pass_time(seconds: float, what: str, show: ShowProgress, begun: float = 0.0, total: float | None = None) -> None:
    """Sleep, and show the progress."""
    started = time.monotonic()
    while (gone := time.monotonic() - started) < seconds:
        show(what, begun + gone, total or seconds)
        await asyncio.sleep(min(1.0, seconds - gone))


async def measure(found: Stage, warm: float, seconds: float, what: str, show: ShowProgress) -> Record:
    """Wait until the load is steady, then measure for whole minutes."""
    total = warm + seconds
    await pass_time(warm, what, show, 0.0, total)
    await asyncio.sleep((ALIGNED / 2 - time.time()) % ALIGNED)
    window = Window(found)
    await window.begin()
    await pass_time(seconds, what, show, warm, total)
    await window.end()
    rare = [each for name in SCHEDULES if (each := await _rare(found, name, seconds, window.operations)) is not None]
    return window.record(rare)


class Window:
    """The time of a measurement, in which everything is counted."""

    def __init__(self, found: Stage) -> None:
        self._stage = found
        self.operations = Operations()

    async def begin(self) -> None:
        """Count from now on."""
        self._delivered = await self._stage.delivered()
        self._bytes = self._stage.telemetry.bytes.copy()
        self._at, self._mark = time.time(), self._stage.storage.mark()

    async def end(self) -> None:
        """Count until now."""
        self._until = time.time()
        self.operations = self._stage.storage.between(self._mark, self._stage.storage.mark())
        self._delivered = await self._stage.delivered() - self._delivered
        # Log lines and spans leave every five seconds.
        share = float(deployed.settings().get(SHARE, "1"))
        self._bytes = self._stage.telemetry.stored(self._bytes, self._until - self._at, share)

    def record(self, rare: list[RareTimer]) -> Record:
        """Return the record of the window."""
        until = time.time()
        begun = observed.invocations(self._stage.invocations)
        # Also invocations from before the window: their listeners may still run.
        seen = [each for each in begun if each.start < self._until]
        return Record(
            window=(self._at, self._until),
            # An invocation that still runs has run until the end of the window.
            invocations=[replace(each, end=min(each.end, until)) for each in seen],
            operations=self.operations,
            log_bytes=dict(self._bytes),
            events=self._delivered,
            listeners=LISTENERS,
            timers=list(SCHEDULES),
            rare=rare,
        )


async def _rare(found: Stage, timer: str, window: float, around: Operations) -> RareTimer | None:
    """Run a timer whose period is longer than the window, and return its seconds and its operations; None for other timers."""
    schedule = TimerSchedule(SCHEDULES[timer])
    first = schedule.next(datetime.now(UTC))
    period = (schedule.next(first) - first).total_seconds()
    if period <= window:
        return None
    mark, started = found.storage.mark(), time.time()
    headers = {"x-functions-key": MASTER_KEY}
    async with found.host.session.post(f"{found.host.url}/admin/functions/{timer}", headers=headers) as answer:
        if answer.status != 202:
            raise RuntimeError(f"{timer} could not be run: {answer.status}")
    made, seconds = found.storage.between(mark, found.storage.mark()), time.time() - started
    # The operations of other functions in this time are subtracted.
    table = max(0.0, made.table - around.table / window * seconds)
    queue = max(0.0, made.queue - around.queue / window * seconds)
    ran = [each for each in observed.invocations(found.invocations) if each.function == timer and each.start >= started - 1]
    return RareTimer(timer, ran[-1].end - ran[-1].start if ran else seconds, table, queue, MONTH / period)
