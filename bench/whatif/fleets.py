"""A fleet that loses servers in order, and then a fault domain at once, for real and as the twin predicts it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass
from typing import Final

from shared.core.clock import Millis, steady, to_text
from shared.leases.node.keeper import LeaseKeeper
from shared.whatif.changes import parse_changes
from shared.whatif.play import play
from shared.whatif.snapshot import Snapshot

from ..fleets.real import FreezableLine, call
from ..tools.stage import TENANT, devhost, emulator
from .events import export

FLEET: Final = "store"
PER_SERVER: Final = 4
"""Partitions for each server."""
DOMAINS: Final = 3
LEAVE: Final = 2
"""Servers that leave in order."""
LEAVE_AFTER, OUTAGE_AFTER, OUTAGE_LASTS, ENDS_AFTER = 10.0, 40.0, 40.0, 110.0
"""Seconds after the export: the changes, and the end."""
STARTS_WITHIN: Final = 90.0
LOOK: Final = 0.2
"""Seconds between two looks at the owners, as in the twin."""
STOPPED_DOMAIN: Final = "0"


@dataclass(slots=True)
class RealFleetOutcome:
    """The export before the changes, and what was measured: value and unit, by name."""

    snapshot: Snapshot
    measured: dict[str, tuple[float, str]]


class Owners:
    """Observes the owner of each partition. A machine that stands still owns none."""

    def __init__(self, partitions: int, keepers: dict[str, tuple[LeaseKeeper, FreezableLine]]) -> None:
        self._partitions, self._keepers = partitions, keepers
        self.owners: dict[int, str] = {}
        self.since: dict[int, float] = {}
        self.moves, self.unowned, self.longest = 0, 0.0, 0.0
        self.measures = False

    def look(self) -> None:
        """Note the owners of now."""
        now = time.monotonic()
        serving = {
            partition: name
            for name, (keeper, line) in self._keepers.items()
            if steady() >= line.frozen_until
            for partition in keeper.owned()
        }
        for partition, owner in serving.items():
            self.moves += self.measures and self.owners.get(partition, owner) != owner
            self.owners[partition] = owner
            self._end(partition, now)
        for partition in range(self._partitions):
            if partition not in serving:
                self.since.setdefault(partition, now)

    def _end(self, partition: int, now: float) -> None:
        since = self.since.pop(partition, None)
        if since is not None and self.measures:
            self.unowned += now - since
            self.longest = max(self.longest, now - since)

    def end(self) -> int:
        """End the measurement. Return the number of partitions without an owner."""
        self.look()
        left = len(self.since)
        for partition in list(self.since):
            self._end(partition, time.monotonic())
        return left


async def real(servers: int) -> RealFleetOutcome:
    """Run the fleet. Raises TimeoutError if it does not start."""
    keepers: dict[str, tuple[LeaseKeeper, FreezableLine]] = {}
    partitions = PER_SERVER * servers
    owners = Owners(partitions, keepers)
    with emulator() as azurite:
        async with devhost(azurite.connection_string) as host:
            await call(host, "PUT", f"fleets/{FLEET}", {"partitions": partitions, "servers": {"minimum": servers // 2}})
            for number in range(servers):
                name, line = f"n{number:02d}", FreezableLine(azurite.connection_string, Counter())
                keeper = LeaseKeeper(FLEET, name, line, tenant=TENANT, domain=str(number % DOMAINS))  # type: ignore[arg-type]
                keepers[name] = keeper.start(), line
                await asyncio.sleep(random.Random(number).uniform(0.1, 0.5))
            try:
                await _settled(keepers, partitions)
                begin = time.time()
                snapshot = await asyncio.to_thread(export, host, round(begin * 1000), round((begin + ENDS_AFTER) * 1000))
                owners.measures = True
                await _play(keepers, owners, begin)
            finally:
                stops = [threading.Thread(target=keeper.stop) for keeper, _ in keepers.values()]
                for thread in stops:
                    thread.start()
                for thread in stops:
                    await asyncio.to_thread(thread.join, 60)
    return RealFleetOutcome(
        snapshot,
        {
            "moves": (owners.moves, ""),
            "longest without an owner": (owners.longest, "s"),
            "without an owner, summed": (owners.unowned, "s"),
        },
    )


async def _settled(keepers: dict[str, tuple[LeaseKeeper, FreezableLine]], partitions: int) -> None:
    ends = time.monotonic() + STARTS_WITHIN
    while True:
        shares = [len(keeper.owned()) for keeper, _ in keepers.values()]
        if sum(shares) == partitions and max(shares) - min(shares) <= 1:
            return
        if time.monotonic() > ends:
            raise TimeoutError(f"not settled after {STARTS_WITHIN:.0f} s: {shares}")
        await asyncio.sleep(0.5)


async def _play(keepers: dict[str, tuple[LeaseKeeper, FreezableLine]], owners: Owners, begin: float) -> None:
    """Make the changes at their times, and look meanwhile."""
    leaving, stopped = False, False
    while (now := time.time() - begin) < ENDS_AFTER:
        if not leaving and now >= LEAVE_AFTER:
            leaving = True
            for name in sorted(keepers)[-LEAVE:]:
                threading.Thread(target=keepers[name][0].stop, daemon=True).start()
        if not stopped and now >= OUTAGE_AFTER:
            stopped = True
            for number, name in enumerate(sorted(keepers)):
                if str(number % DOMAINS) == STOPPED_DOMAIN:
                    keepers[name][1].frozen_until = steady() + OUTAGE_LASTS
        owners.look()
        await asyncio.sleep(LOOK)
    owners.end()


def predict(real: RealFleetOutcome) -> dict[str, float]:
    """Return the twin's prediction for the same fleet."""
    snapshot = real.snapshot

    def at(seconds: float) -> Millis:
        return snapshot.first + round(1000 * seconds)

    given = {
        "remove-servers": [f"{LEAVE}@{to_text(at(LEAVE_AFTER))}"],
        "outage": [f"{STOPPED_DOMAIN}@{to_text(at(OUTAGE_AFTER))}/{OUTAGE_LASTS:.0f}s"],
    }
    found = play(snapshot, parse_changes(given, snapshot)).fleets[FLEET]
    return {
        "moves": found.moves,
        "longest without an owner": found.longest_unowned,
        "without an owner, summed": found.unowned,
    }
