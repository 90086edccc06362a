"""Rules for the scans of servers: the pause between scans, and the parts left out while storage fails. Pure functions."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final, Literal

from ..core.pressure import MEMORY
from .profiles import Profile
from .rules import ServerObservation

SCANNERS: Final = 2
"""Servers that scan all others every H. Their number is constant so that the cost does not depend on the fleet's size: with the fallback,
each heartbeat row is read at most three times per H."""
FALLBACK_SCANNERS: Final = 8
"""Other servers up to which all of them together scan once per H, and the most heartbeat intervals between two of these scans."""
OVERDUE_BEATS: Final = 1.3
"""Heartbeat intervals after which a row is overdue, by the storage service's clock, and servers that scan seldom read it again."""


def scan_interval(server: str, live: Iterable[str], profile: Profile) -> float:
    """Return the seconds between a server's scans: H for the scanners, the live servers with the lowest names.

    The others together scan once per H, or less often if there are very many: their reads would otherwise be most of a fleet's cost.
    """
    ranked = sorted(live)
    if server not in ranked or ranked.index(server) < SCANNERS:
        return profile.beat
    others = len(ranked) - SCANNERS
    return profile.beat * others * min(max(1.0, others / FALLBACK_SCANNERS), FALLBACK_SCANNERS)


def suspects(
    server: str, looking: Collection[str], ages: Mapping[str, float], sights: Mapping[str, ServerObservation], profile: Profile, now: float
) -> set[str]:
    """Return the servers whose rows are read again when their observations are T old.

    looking: servers that scan. ages: seconds since each row was written, by the storage service's clock. sights: observations of servers
    that are not dead, including itself. now: steady seconds. A scanner reads all of them: a live row shows another heartbeat by then. Other
    servers scan so seldom that all observations are T old before their next scan. They read overdue rows, and those of the scanners, which
    no other server may be watching.
    """
    others = sights.keys() - {server}
    if scan_interval(server, looking, profile) <= profile.beat:
        return others
    old = {
        name for name in others if ages.get(name, 0.0) > OVERDUE_BEATS * profile.beat or now >= sights[name].first.ripens(profile.takeover)
    }
    return old | (others & set(sorted(looking)[:SCANNERS]))


PRESSURE_BEATS: Final = 12.0
"""Heartbeat intervals over which a server smooths the share of requests that storage refuses, if that is longer than `MEMORY`."""
LOOK_WITHIN: Final = 0.55
"""Share of T within which a scanner scans again, however busy storage is. With its jitter, it then still sees each server's next heartbeat
before it would give standby assignments for that server."""


def pressure_memory(profile: Profile) -> float:
    """Return the seconds over which a server smooths the share of refused requests."""
    return max(MEMORY, PRESSURE_BEATS * profile.beat)


def stretched_scan(every: float, stretch: float, profile: Profile) -> float:
    """Return the seconds between scans while storage refuses requests. every: without pressure. stretch: the factor, 1 or more.

    A scanner scans within `LOOK_WITHIN` of T; any other server waits at most twice as long as without pressure.
    """
    return max(every, min(every * stretch, max(LOOK_WITHIN * profile.takeover, 2 * every)))


type ScanDuty = Literal["scan", "balance", "claim"]


def duties_to_skip(failures: int) -> frozenset[ScanDuty]:
    """Return the duties to skip after `failures` failed requests in a row: scans first, then balancing, then claims; never heartbeats."""
    order: tuple[ScanDuty, ...] = ("scan", "balance", "claim")
    return frozenset(order[: max(0, min(failures, len(order)))])
