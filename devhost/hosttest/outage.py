"""The check of an outage: storage refuses connections for a while, and comes back with all that it had."""

import asyncio
import contextlib
import shutil
import time
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import aiohttp

from devhost.azurite import Azurite
from devhost.hosttest.checks import NotChecked, Target, readyz, until
from devhost.hosttest.driver import HostDriver
from devhost.hosttest.restarts import spread

AWAY: Final = 40.0
"""Seconds without storage: more than the Functions host takes to end because of it."""
CALL_PATIENCE: Final = 20.0
LOOK_EVERY: Final = 1.0
NO_ANSWER: Final = "no answer"
READY_AGAIN: Final = 180.0
"""Seconds after which `/readyz` is 200 again."""


class OwnStorage:
    """An emulator that keeps its data until the end of the test, so that it can be stopped and started again."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = Azurite(location=folder)
        self.connection_string = self._running.connection_string

    def __enter__(self) -> Self:
        self._running.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self._running.stop()
        shutil.rmtree(self._folder)

    async def stop(self) -> None:
        """Stop it; connections are refused from now on."""
        await asyncio.to_thread(self._running.stop)

    async def start(self) -> None:
        """Start it again, on the same ports."""
        former = self._running
        self._running = Azurite(location=self._folder, blob=former.blob, queue=former.queue, table=former.table)
        await self._running.start_async()


async def storage_outage(target: Target, host: HostDriver, storage: OwnStorage | None) -> str:
    """Storage is away while events are due. Nothing that was accepted is lost or early, and `/readyz` says what is wrong."""
    if storage is None:
        raise NotChecked("leave HOST_STORAGE out: only an emulator of the test's own can be stopped")
    if not host.restarts:
        raise NotChecked("set HOST_START: a host that ends without its storage must be started anew")
    answers: Counter[str] = Counter()

    async def during() -> str:
        await storage.stop()
        keeping = asyncio.create_task(host.keep())
        try:
            ends_at = time.monotonic() + AWAY
            while time.monotonic() < ends_at:
                answers[await _readyz(target)] += 1
                await asyncio.sleep(LOOK_EVERY)
            await storage.start()
            began = time.monotonic()

            async def ready() -> bool:
                return await _readyz(target) == "200 ready"

            await until(ready, "/readyz to be 200 again", READY_AGAIN)
            took = time.monotonic() - began
        finally:
            keeping.cancel()
            await asyncio.gather(keeping, return_exceptions=True)
        return f"away for {AWAY:g} s, /readyz {dict(answers)}, ready {took:.0f} s later, the host ended {host.ends} times"

    line = await spread(target, during)
    wrong = {said: count for said, count in answers.items() if said not in ("503 not-ready", NO_ANSWER)}
    # The document of a second before may be answered once.
    assert sum(wrong.values()) <= 1 and set(wrong) <= {"200 ready"}, f"/readyz while storage is away: {dict(answers)}"
    assert answers["503 not-ready"], f"/readyz never said that storage is away: {dict(answers)}"
    return line


async def _readyz(target: Target) -> str:
    """Return the status and the state or the problem's code of `/readyz`."""
    # ValueError: a host that starts answers without a document.
    with contextlib.suppress(aiohttp.ClientError, TimeoutError, ValueError):
        async with asyncio.timeout(CALL_PATIENCE):
            status, document = await readyz(target)
            if document is not None:
                return f"{status} {document.get('type', '').rpartition('/')[2] or document.get('status')}"
    return NO_ANSWER
