"""The twin's queues, and what the Functions host does with them that the app never does."""

from __future__ import annotations

import heapq

from shared.storage.memory import MemoryQueues
from shared.storage.ports import Message


class HostQueues(MemoryQueues):
    """`MemoryQueues` with the host's verbs."""

    def release(self, queue: str, message: Message, seconds: float) -> None:
        """Make a message in work visible again after `seconds`."""
        found = self._queue(queue)
        sent = found.messages.get(message.id)
        if sent is not None and sent.receipt == message.receipt:
            sent.visible = self._clock.now() + int(seconds * 1000)
            heapq.heappush(found.due, (sent.visible, next(self._numbers), sent.id))

    def held(self, queue: str) -> int:
        """Messages that are there, taken or not."""
        return len(self._queue(queue).messages)

    def waiting(self, queue: str) -> int:
        """Messages that no process has taken, visible or not."""
        return sum(not sent.dequeue_count for sent in self._queue(queue).messages.values())
