"""Parts of a file to the service: several in flight, settled in the file's order, so that progress is one place in it."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from ...client.batches import send_lines
from ...client.concurrent import AsyncClient
from ...client.errors import BatchStopped
from ...client.exchange import Patience
from ...client.model import BatchLine
from ...core.errors import TocsinError
from ..exits import Exit
from ..failures import CommandFailed, explained
from .reading import Part

PATIENCE: Final = Patience(retries=20, longest=10.0, most=60.0)
"""Limits of the tenant are waited out: an import goes as fast as it may."""
_GO_ON = "What is done is kept: the same command goes on from there."


class Importer(AsyncClient):
    """A client that sends parts."""

    async def part(self, part: Part) -> tuple[BatchLine, ...]:
        """What became of the part's events, in their order; index is the line's number. Raises `CommandFailed`."""
        if not part.events:
            return ()
        try:
            found = await self._run(send_lines(part.events, patience=PATIENCE, chance=random.random))
        except BatchStopped as stopped:
            raise _stopped(stopped) from stopped
        for line in found.results:
            if line.status == 429 or line.status >= 500:
                detail = (line.problem or {}).get("detail", line.status)
                title = f"The app takes no more for now: {detail}"
                raise CommandFailed(title, where=f"line {line.index}", advice=_GO_ON, status=Exit.REFUSED)
        return found.results


def _stopped(stopped: BatchStopped) -> CommandFailed:
    cause = stopped.__cause__
    failed = explained(cause) if isinstance(cause, TocsinError) else CommandFailed(str(stopped))
    failed.advice = f"{failed.advice} {_GO_ON}".strip()
    return failed


async def send_all(
    importer: Importer, parts: Iterator[Part], settle: Callable[[Part, tuple[BatchLine, ...]], None], *, in_flight: int
) -> None:
    """Send all parts, and settle each once it and all before it are done. Raises what `Importer.part` and `settle` raise."""
    gate = asyncio.Semaphore(in_flight)
    waiting: deque[tuple[Part, asyncio.Task[tuple[BatchLine, ...]]]] = deque()

    async def one(part: Part) -> tuple[BatchLine, ...]:
        async with gate:
            return await importer.part(part)

    async def settle_first() -> None:
        part, task = waiting[0]
        result = await task
        waiting.popleft()
        settle(part, result)

    try:
        for part in parts:
            waiting.append((part, asyncio.create_task(one(part))))
            # Reading does not await: those that are ready to go, go now.
            await asyncio.sleep(0)
            # Twice as many as are in flight: one slow answer does not leave the others idle.
            while waiting and (len(waiting) >= 2 * in_flight or waiting[0][1].done()):
                await settle_first()
        while waiting:
            await settle_first()
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
