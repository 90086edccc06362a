"""Storage that loses acknowledged writes, as a failover to another region with loss of data does: a fleet's rows are as they were before.

The rows keep the ETags that they had then. Servers that sent a heartbeat meanwhile must notice it; the others may act on what was lost
until their validity ends.
"""

from __future__ import annotations

import random
from typing import Any

from shared.engine.validity import DRIFT
from shared.leases.profiles import Profile
from shared.leases.rows import PARTITIONS, parse_partition
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import RowQuery

from .watch import Watch
from .world import World

_ROUNDING = 0.01
"""Seconds beyond a validity after which all must be well."""


class Rollbacks:
    """Plans rollbacks of one fleet's rows. last: time of the last one, as far as its copy is taken."""

    def __init__(self, world: World, watch: Watch, key: str, profile: Profile, dice: random.Random) -> None:
        self._world, self._watch, self._key, self._profile, self._dice = world, watch, key, profile, dice
        self.last = 0.0

    def plan(self, length: float) -> None:
        """One or two, at any instant, to any earlier one."""
        for _ in range(self._dice.choice((1, 1, 2))):
            self._world.at(length * self._dice.random(), self._copy)

    def _copy(self) -> None:
        rows = self._world.store.copy(FLEETS, self._key)
        span = self._dice.choice((self._profile.beat, self._profile.takeover)) * 1.5 * self._dice.random()
        at = self._world.time.seconds + span
        self.last = max(self.last, at)
        self._world.at(at, self._go_back, rows)

    def _go_back(self, rows: dict[str, Any]) -> None:
        store = self._world.store
        store.go_back(FLEETS, self._key, rows)
        self._world.note("storage", "goes back")
        self._world.counts["rollbacks"] += 1
        page = run_through(store.query(RowQuery(FLEETS, self._key, first=PARTITIONS[0], end=PARTITIONS[1])))
        self._watch.rolled_back(map(parse_partition, page.rows), self._profile.validity / (1 - DRIFT) + _ROUNDING)
