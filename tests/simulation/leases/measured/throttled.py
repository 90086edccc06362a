"""A fleet whose storage refuses requests for some minutes: the partitions that lose their server, and what happens afterwards.

One server crashes meanwhile and comes back, so that the others have something to take over and to hand back. The benchmark and a test use
it, with the keepers' reaction to refusals and without.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from unittest.mock import patch

from shared.core import pressure
from shared.fleets.watch.state import WATCHED, parse_watch_state
from shared.leases.profiles import Profile
from shared.leases.rows import SERVERS
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS, SWEEPS

from .fleet import AZURE, KEY, Measured

QUIET = 200.0
"""Seconds until a fleet that has just come up is quiet, and over which its usual load is counted."""
CRASHED = 60.0
"""Seconds of throttling after which a server crashes."""
AFTERWARDS = 180.0
"""Seconds after the throttling that are watched."""
BIN = 5.0
"""Seconds over which requests are counted to find the busiest moment."""
LOST = ("lost: expired", "lost: fenced")
"""Counters of partitions that a running server lost because its heartbeats failed."""


@dataclass(frozen=True, slots=True)
class Throttling:
    """The storage service while it throttles. refuse: share of all requests that it refuses. capacity: rows a second that it serves, as a
    share of what the quiet fleet asks for; it refuses what is more. 0 for neither."""

    refuse: float = 0.0
    capacity: float = 0.0


@dataclass(frozen=True, slots=True)
class Throttled:
    """The outcome. lost: partitions that a running server lost because its heartbeats failed; one that is lost twice counts twice. away:
    seconds without a server, all partitions together. longest: seconds that the partitions of the crashed server had none, at most.
    refused: share of the requests. busiest: requests a second after the throttling, over those of the quiet fleet. unserved: partitions
    without a server when it ends. lost_afterwards: partitions that are lost after it has ended. reporting: servers whose rows say, when
    it ends, that storage refuses requests. alarms: kinds that are raised then."""

    lost: int
    away: float
    longest: float
    refused: float
    busiest: float
    unserved: int
    lost_afterwards: int
    reporting: int
    alarms: tuple[str, ...]


@contextmanager
def unslowed() -> Iterator[None]:
    """Let keepers scan and plan as often as ever, whatever storage refuses."""
    with patch.object(pressure, "MAX_FACTOR", 1.0):
        yield


def play(profile: Profile, servers: int, partitions: int, throttling: Throttling, seconds: float, seed: object) -> Throttled:
    """Throttle storage for `seconds`, after the fleet has become quiet."""
    fleet = Measured(profile, servers, partitions, seed=seed)
    try:
        return _play(fleet, throttling, seconds)
    finally:
        fleet.close()


def _play(fleet: Measured, throttling: Throttling, seconds: float) -> Throttled:
    counts = fleet.world.counts
    fleet.start_all()
    fleet.run(QUIET)
    asked = counts["requests"]
    rows = fleet.cost(QUIET)
    usual = (rows["rows_read"] + rows["rows_written"]) / QUIET
    quiet = (counts["requests"] - asked) / QUIET
    known, asked, refused, lost = len(fleet.watch.gaps), counts["requests"], _refused(fleet), _lost(fleet)
    fleet.world.weather = replace(AZURE, refuse=throttling.refuse, capacity=throttling.capacity * usual)
    fleet.run(CRASHED)
    crashed = fleet.names[len(fleet.names) // 2]
    orphans, at = set(fleet.nodes[crashed].view.epochs), fleet.now
    fleet.nodes[crashed].crash()
    fleet.run((seconds - CRASHED) / 2)
    fleet.start(crashed)
    fleet.run((seconds - CRASHED) / 2)
    unserved, lost_meanwhile = fleet.partitions - sum(fleet.shares().values()), _lost(fleet)
    rows_then = fleet.world.store.copy(FLEETS, KEY)
    reporting = sum(row.props.get("refused", 0) > 0 for key, row in rows_then.items() if key.startswith(SERVERS[0]))
    alarms = parse_watch_state(run_through(fleet.world.store.get(SWEEPS, WATCHED, KEY))).value.alarms
    share = (_refused(fleet) - refused) / (counts["requests"] - asked)
    fleet.world.weather = AZURE
    busiest = 0.0
    for _ in range(round(AFTERWARDS / BIN)):
        asked = counts["requests"]
        fleet.run(BIN)
        busiest = max(busiest, (counts["requests"] - asked) / BIN)
    gaps = fleet.watch.gaps[known:]
    # The first gap of each partition of the crashed server is its take-over.
    takeovers: dict[int, float] = {}
    for partition, gap, end in gaps:
        if partition in orphans and end > at:
            takeovers.setdefault(partition, gap)
    return Throttled(
        lost=lost_meanwhile - lost,
        away=sum(gap for _, gap, _ in gaps),
        longest=max(takeovers.values(), default=0.0),
        refused=share,
        busiest=busiest / quiet,
        unserved=unserved,
        lost_afterwards=_lost(fleet) - lost_meanwhile,
        reporting=reporting,
        alarms=tuple(sorted(alarms)),
    )


def _lost(fleet: Measured) -> int:
    return sum(fleet.world.counts[name] for name in LOST)


def _refused(fleet: Measured) -> int:
    counts = fleet.world.counts
    return counts["fault: refused"] + counts["fault: throttled"]
