"""Full shards of one instant are shared by the processes that poll their queue; otherwise the one that polls first would serve them all.

A process that has enough of them holds the message of a further one for a moment, and sends it again for another process. That is a new
message, so it does not count as a failure of the old one. If the process ends in between, the index asks for the shard, as it does after
any lost message; if both messages arrive, the gate has one owner.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from ...core.errors import StorageError
from ..protocol.dispatch import ShardMessage, send
from ..rules import held_within, leaves_to_others, seems_alone
from ..shard_services import ShardServices
from ..timings import BURST_TOGETHER, BURST_WATCHED_FOR


class Bursts:
    """The full shards that one process serves, and the messages that it has passed on. Belongs to one event loop."""

    def __init__(self, services: ShardServices) -> None:
        self._runner, self._clock, self._ids, self._counters = services.runner, services.clock, services.ids, services.counters
        self._name = ""
        """Name of this process in the messages that it passes on."""
        self._wakes: Counter[int] = Counter()
        """Full shards in work, by wake-up."""
        self._passed = self._returned = 0
        """Messages that this process has passed on since `_since`, and those that came back to it."""
        self._since = 0.0
        """Monotonic time at which the first of them was passed on."""
        self._others = False
        """Another process has passed on a message since then."""

    async def leave(self, message: ShardMessage) -> bool:
        """Pass the message of a full shard on if this process has enough of them. Return False if it is to serve the shard."""
        self._note(message)
        if not self._leaves(message):
            return False
        await self._clock.sleep(self._ids.chance() * held_within(message.wake - self._clock.now()))
        if not self._leaves(message):
            return False
        self._name = self._name or self._ids.name()
        if not self._passed:
            self._since = self._clock.monotonic()
        self._passed += 1
        try:
            passed_on = replace(message, passed=message.passed + 1, sender=self._name, load=self._wakes.total())
            sent = await self._runner.run(send(passed_on, self._clock.now()))
        except StorageError:
            sent = False
        self._counters["shards_passed_on"] += sent
        # A message whose answer is lost may be there twice: whoever gets the second finds the shard taken.
        return sent

    @contextmanager
    def serving(self, message: ShardMessage) -> Iterator[None]:
        """Count a full shard while it is in work."""
        self._wakes[message.wake] += 1
        try:
            yield
        finally:
            self._wakes[message.wake] -= 1
            if not self._wakes[message.wake]:
                del self._wakes[message.wake]

    def _leaves(self, message: ShardMessage) -> bool:
        beside = sum(count for wake, count in self._wakes.items() if abs(wake - message.wake) < BURST_TOGETHER)
        alone = bool(self._passed) and not self._others and seems_alone(self._passed, self._returned, self._watched)
        early = message.wake - self._clock.now()
        return leaves_to_others(beside, self._wakes.total(), message.passed, message.load, early, alone=alone)

    @property
    def _watched(self) -> float:
        """Seconds since the first message was passed on."""
        return self._clock.monotonic() - self._since

    def _note(self, message: ShardMessage) -> None:
        """Learn from a message whether other processes take what this one leaves."""
        if self._passed and self._watched > BURST_WATCHED_FOR:
            self._passed, self._returned, self._others = 0, 0, False
        if message.passed:
            own = message.sender == self._name
            self._returned += own
            self._others = self._others or not own
