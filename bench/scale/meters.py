"""The amounts of each second, beside the limits that Azure publishes for storage."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from shared.scheduler.keys import HOME, index_partitions
from shared.whatif.twin.storage import StorageLimits

LIMITS: Final = StorageLimits()
INDEX_PARTITIONS: Final = len(index_partitions(HOME))
"""Partitions of the index in each account."""
TOGETHER: Final = 99
"""Events of a transaction; the hundredth row is the shard's gate."""


def parts(events: int) -> int:
    """Return the transactions that write all events of a shard."""
    return ceil(events / TOGETHER)


@dataclass(slots=True)
class Meters:
    """Entities and messages by second, and all transactions."""

    entities: Counter[int] = field(default_factory=Counter)
    index: Counter[int] = field(default_factory=Counter)
    """Rows of the index among these entities."""
    queue: Counter[int] = field(default_factory=Counter)
    """Messages sent, taken and deleted."""
    transactions: int = 0
    shards: Counter[tuple[int, int]] = field(default_factory=Counter)
    """Entities of each shard in each second."""
    window: range | None = None
    """The seconds that count for the limits; None: all."""

    def rows(self, at: int, shard: int, rows: int) -> None:
        """Count rows of a shard that are read or written. at: milliseconds."""
        second = at // 1000
        self.entities[second] += rows
        self.shards[shard, second] += rows

    def file(self, at: int, rows: int, transactions: int) -> None:
        """Count rows of the index that are read or written."""
        self.transactions += transactions
        self.entities[at // 1000] += rows
        self.index[at // 1000] += rows

    @property
    def accounts(self) -> int:
        """The accounts that serve the busiest second."""
        return max(1, ceil(self._most(self.entities) / LIMITS.account))

    def used(self) -> dict[str, float]:
        """Return the use of each limit in its busiest second, as a share. The share of an account is that of
        a single one, also where there are several."""
        shard = max((rows for (_, second), rows in self.shards.items() if self._counts(second)), default=0)
        return {
            "one account": self._most(self.entities) / LIMITS.account,
            "a shard's partition": shard / LIMITS.partition,
            "an index partition": self._most(self.index) / (INDEX_PARTITIONS * self.accounts * LIMITS.partition),
            "the queue": self._most(self.queue) / LIMITS.queue,
        }

    def _counts(self, second: int) -> bool:
        return self.window is None or second in self.window

    def _most(self, counted: Counter[int]) -> int:
        return max((count for second, count in counted.items() if self._counts(second)), default=0)
