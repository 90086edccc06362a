"""Send the parts of a file: several in parallel, settled in the file's order, so that progress is one position in the file."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Final

from ...client.batches import BatchRoom, send_lines
from ...client.concurrent import AsyncClient
from ...client.errors import BatchStopped
from ...client.exchange import RetrySettings
from ...client.model import BatchLine
from ...core.errors import TocsinError
from ..exits import Exit
from ..failures import CommandFailed, to_command_failure
from .reading import FilePart

IMPORT_RETRIES: Final = RetrySettings(retries=20, longest=10.0, most=60.0)
"""Retries wait until the tenant's limits allow more: an import runs as fast as they permit."""
_RESUME = "Finished lines are recorded. Run the same command again to resume."


class Importer(AsyncClient):
    """A client that sends the parts of a file."""

    def __init__(self, *given: Any, **options: Any) -> None:
        """Takes the arguments of `AsyncClient`."""
        super().__init__(*given, **options)
        # The parts of one import share it, so that the app is asked once.
        self._room = BatchRoom()

    async def send_part(self, part: FilePart) -> tuple[BatchLine, ...]:
        """Send a part and return the results of its events, in their order; `index` is the line's number. Raises `CommandFailed`."""
        if not part.events:
            return ()
        try:
            found = await self._run(send_lines(part.events, retry_settings=IMPORT_RETRIES, chance=random.random, room=self._room))
        except BatchStopped as stopped:
            raise _stopped_failure(stopped) from stopped
        for line in found.results:
            if line.status == 429 or line.status >= 500:
                detail = (line.problem or {}).get("detail", line.status)
                title = f"The app accepts no more events for now: {detail}"
                raise CommandFailed(title, where=f"line {line.index}", advice=_RESUME, status=Exit.REFUSED)
        return found.results


def _stopped_failure(stopped: BatchStopped) -> CommandFailed:
    cause = stopped.__cause__
    failed = to_command_failure(cause) if isinstance(cause, TocsinError) else CommandFailed(str(stopped))
    failed.advice = f"{failed.advice} {_RESUME}".strip()
    return failed


async def send_all(
    importer: Importer,
    parts: Iterator[FilePart],
    settle: Callable[[FilePart, tuple[BatchLine, ...]], None],
    *,
    note_sending: Callable[[FilePart, bool], None],
    in_flight: int,
) -> None:
    """Send all parts, and settle each once it and all parts before it are done. Raises the errors of `send_part` and of `settle`.

    note_sending: is called with True before a part is sent, and with False if nothing of it can have reached the app.
    """
    slots = asyncio.Semaphore(in_flight)
    waiting: deque[tuple[FilePart, asyncio.Task[tuple[BatchLine, ...]]]] = deque()

    async def send_one(part: FilePart) -> tuple[BatchLine, ...]:
        async with slots:
            note_sending(part, True)
            try:
                return await importer.send_part(part)
            except CommandFailed as failed:
                stopped = failed.__cause__
                if isinstance(stopped, BatchStopped) and not stopped.done and not stopped.unknown:
                    note_sending(part, False)
                raise

    async def settle_first() -> None:
        part, task = waiting[0]
        result = await task
        waiting.popleft()
        settle(part, result)

    try:
        for part in parts:
            waiting.append((part, asyncio.create_task(send_one(part))))
            # Reading the file does not await: let the tasks that can send do so now.
            await asyncio.sleep(0)
            # Twice as many parts wait as are in flight, so that one slow answer does not leave the other slots idle.
            while waiting and (len(waiting) >= 2 * in_flight or waiting[0][1].done()):
                await settle_first()
        while waiting:
            await settle_first()
    finally:
        for _, task in waiting:
            task.cancel()
        await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)
