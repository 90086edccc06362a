"""Takes the messages that the host has moved to the poison queues, because their function failed five times."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from typing import Final

from ..core.clock import Millis
from ..core.errors import Problem, StorageError
from ..scheduler.queue_functions import POISON_ACTS, Act
from ..scheduler.service import Scheduler
from ..scheduler.timings import POISON_RETRY_DELAY
from ..storage.names import QUEUE_SWEEPS
from ..storage.ports import Message, Queues

log = logging.getLogger(__name__)

ROUNDS: Final = 32
"""Most times that one run asks a queue for messages: 32 at a time."""


class PoisonQueues:
    """Drains the poison queues of an account, or of both accounts of a mirrored pair. One per process and account."""

    def __init__(self, sides: Sequence[tuple[Queues, Scheduler]]) -> None:
        """sides: the queues of each account whose poison queues are drained, with the scheduler that works on it."""
        self._sides = sides

    async def drain(self, now: Millis) -> Counter[str]:
        """Take what is in the queues; return the counts `taken` and `failed`. Raises `StorageError` if no account answers."""
        counts: Counter[str] = Counter()
        unread: list[StorageError] = []
        for queues, scheduler in self._sides:
            try:
                for queue, act in (*POISON_ACTS, (f"{QUEUE_SWEEPS}-poison", _drop)):
                    await self._drain(queues, scheduler, queue, act, counts)
            except StorageError as error:
                log.debug("A poison queue could not be read: %s", error, extra={"action": "poison_unread"})
                unread.append(error)
        if len(unread) == len(self._sides):
            raise unread[0]
        return counts

    async def _drain(self, queues: Queues, scheduler: Scheduler, queue: str, act: Act, counts: Counter[str]) -> None:
        for _ in range(ROUNDS):
            messages = await queues.receive(queue, lease=POISON_RETRY_DELAY)
            for message in messages:
                try:
                    await act(scheduler, message, True)
                    await queues.delete(queue, message)
                    counts["taken"] += 1
                except Exception as error:
                    # It stays, and is visible again for the next run.
                    counts["failed"] += 1
                    expected = isinstance(error, StorageError | Problem)
                    extra = {"action": "poison_kept", "queue": queue}
                    level = logging.WARNING if expected else logging.ERROR
                    log.log(level, "A message of %s could not be handled: %s", queue, error, exc_info=not expected, extra=extra)
            if not messages:
                return


async def _drop(scheduler: Scheduler, message: Message, own: bool) -> None:
    log.debug("A run of the sweep was given up", extra={"action": "sweep_left_out"})
