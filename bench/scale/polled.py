"""A queue whose instances take a bounded number of messages at each poll, as the Functions host does."""

from __future__ import annotations

from collections import Counter, deque
from math import ceil
from typing import Any, Final

from shared.whatif.twin.trigger import QueueTrigger

from ..flex.platform import Instance, QueueGroup

BATCH: Final = QueueTrigger.BATCH
THRESHOLD: Final = QueueTrigger.THRESHOLD


class PolledQueue(QueueGroup):
    """A group in which messages wait until an instance with room polls. operations: messages that were sent, taken and deleted, by second.

    The group of `bench flex` gives a message to the next poll, however many it takes: it has few at once.
    """

    def __init__(self, *given: Any, operations: Counter[int], **more: Any) -> None:
        super().__init__(*given, **more)
        self._operations = operations
        self._shown: deque[str] = deque()
        self._polls: set[Instance] = set()
        """Instances whose next poll is planned."""
        self.slots = 0
        """Most messages that one instance served at once."""

    def send(self, text: str, at: int) -> None:
        """See `QueueGroup`."""
        self._operations[self._line.now // 1000] += 1
        super().send(text, at)

    def finished(self, instance: Instance) -> None:
        """See `QueueGroup`."""
        self._operations[self._line.now // 1000] += 1
        super().finished(instance)

    def _show(self, text: str) -> None:
        self._shown.append(text)
        self._see(self.next_look(self._line.now))
        if len(self._shown) == 1:
            # While messages wait, the polls of all instances are planned.
            for each in self.alive():
                if each not in self._polls:
                    self._plan(each, self._next_poll(each))

    def _plan(self, instance: Instance, at: int) -> None:
        self._polls.add(instance)
        self._line.at(at, self._poll_now, instance)

    def _poll_now(self, instance: Instance) -> None:
        self._polls.discard(instance)
        self.alive()
        if instance.gone <= self._line.now:
            return
        for _ in range(BATCH if instance.running <= THRESHOLD else 0):
            if not self._shown:
                break
            instance.found = instance.busy_until = self._line.now
            self._operations[self._line.now // 1000] += 1
            self._serve(instance, self._shown.popleft())
        self.slots = max(self.slots, instance.running)
        if self._shown:
            self._plan(instance, self._line.now + self.platform.ms("first_poll"))

    def _look(self) -> None:
        living = self.alive()
        if not self._shown:
            return
        self.seen = self._line.now
        wanted = max(1, ceil(self.length / self.platform.per_instance))
        self.most = max(self.most, wanted)
        for _ in range(wanted - len(living)):
            self.start()
        self._see(self.next_look(self._line.now))

    def taken_up(self, made: Instance) -> None:
        """See `Group`."""
        if made not in self._polls:
            self._plan(made, self._line.now)
