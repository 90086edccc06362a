"""The loads that a keeper's application reports, and what its row says of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection
from typing import Final

from ..loads import KEPT, PartitionLoad, is_settled, join_loads, load_at, observe, split_loads

_NEVER: Final = float("inf")


class PublishedLoads:
    """Loads by partition. The application's threads report numbers, the heartbeat loop reads the text for the server's row."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._steady = steady
        # A signal handler may run on the same thread in between and call in here.
        self._lock = threading.RLock()
        self._loads: dict[int, PartitionLoad] = {}
        self._until: dict[int, float] = {}
        """Steady seconds until which a load is kept without a new report; infinity for partitions that the server owns and reports."""

    def report(self, partition: int, number: float) -> None:
        """Record that the partition's load is `number` from now on."""
        now = self._steady()
        with self._lock:
            self._loads[partition] = observe(self._loads.get(partition), number, now)
            self._until[partition] = _NEVER

    def inherit(self, text: str, generation: int) -> None:
        """Keep the loads that the row of the server's former incarnation has, as the beginning of the own figures."""
        of, loads = split_loads(text)
        now = self._steady()
        with self._lock:
            for partition, load in loads.items() if of == generation else ():
                if partition not in self._loads:
                    self._loads[partition], self._until[partition] = PartitionLoad(load, load, now), now + KEPT

    def text(self, held: Collection[int], generation: int) -> str:
        """Return the loads of `held`, and of partitions given up less than `KEPT` ago, as the row stores them."""
        now = self._steady()
        with self._lock:
            for partition in self._until.keys() - set(held):
                if self._until[partition] == _NEVER:
                    # The load stays as it was when the server served the partition.
                    load = load_at(self._loads[partition], now)
                    self._until[partition] = now + KEPT if is_settled(self._loads[partition], now) else now
                    self._loads[partition] = PartitionLoad(load, load, now)
            for partition in [partition for partition, until in self._until.items() if until <= now]:
                del self._loads[partition], self._until[partition]
            return join_loads(generation, {number: load_at(load, now) for number, load in self._loads.items() if is_settled(load, now)})

    def clear(self) -> None:
        """Forget everything: the partition count has changed, and the numbers stand for other keys."""
        with self._lock:
            self._loads, self._until = {}, {}
