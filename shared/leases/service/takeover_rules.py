"""Decide what the takeover sweep must do for a fleet. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from zlib import crc32

from ...core.clock import Millis
from ..balance import is_uneven
from ..loads import server_loads
from ..profiles import Profile
from ..rows import PARTITIONS, Intent, Server
from ..timings import FENCE_MARGIN, IDLE_AFTER, IDLE_EVERY, REOPEN_AFTER
from .snapshot import FleetSummary, Versioned


def may_fence(profile: Profile, age: float) -> bool:
    """Return True if a server may be fenced. age: seconds since its row was written, by the storage service's clock."""
    return age >= profile.takeover + FENCE_MARGIN


def fingerprint(summary: FleetSummary) -> str:
    """Return a hash that changes with every input of a plan, except the partitions' owners and loads."""
    members = [(s.value.name, s.value.incarnation, s.value.state, s.value.capacity) for _, s in sorted(summary.servers.items())]
    unreadable = [rk for rk in summary.unreadable if not rk.startswith(PARTITIONS[0])]
    text = repr((summary.fleet.partitions, summary.fleet.generation, summary.fleet.changes, members, *unreadable))
    return blake2b(text.encode(), digest_size=12).hexdigest()


def expired_intents(summary: FleetSummary, now: Millis, epochs: Mapping[int, int] | None = None) -> list[Intent]:
    """Return the expired intents. If `epochs` of the partitions are given, completed bumps are included."""
    return [
        intent
        for intent in summary.intents
        if (intent.expires and intent.expires <= now)
        or (epochs is not None and intent.verb == "bump" and epochs.get(intent.partition, intent.epoch) != intent.epoch)
    ]


def outdated_requests(summary: FleetSummary, now: Millis) -> list[Versioned[Server]]:
    """Return living servers that are asked to drain or exit by an intent that is over."""
    drained = summary.in_force(now).drained
    return [
        each for name, each in sorted(summary.servers.items()) if each.value.state != "dead" and each.value.tell and name not in drained
    ]


def is_left_closed(summary: FleetSummary) -> bool:
    """Return True if an interrupted change has left the fleet closed, so that no server can register."""
    return summary.fleet.closed and summary.age >= REOPEN_AFTER


def is_idle(summary: FleetSummary) -> bool:
    """Return True if no server has lived for `IDLE_AFTER`, and nothing waits to be continued: the sweeps may visit the fleet seldom."""
    if summary.living or summary.intents or summary.unreadable or summary.fleet.closed or summary.fleet.former:
        return False
    return min(summary.age, *(each.age for each in summary.servers.values()), IDLE_AFTER) >= IDLE_AFTER


def is_load_uneven(summary: FleetSummary, now: Millis) -> bool:
    """Return True if the loads that servers publish make a plan due."""
    drained = summary.in_force(now).drained
    loads = server_loads(summary.fleet, [server for server in summary.living if server.state == "live" and server.name not in drained])
    return loads is not None and is_uneven(loads)


def skipped_fleets(idle: Iterable[str], period: float, now: Millis, sure: int = 1) -> set[str]:
    """Return the idle fleets that this run of a sweep leaves out. Each is visited once in `IDLE_EVERY` runs.

    period: seconds between runs. now: wall time; a run that is a little early or late counts as the run of its time. sure: only each run of
    this number is certain to take place; idle fleets are visited in those, also if such a run is late by almost a period because its
    process has just started. Divides `IDLE_EVERY`.
    """
    turn, since = divmod(now + period * 500, period * 1000 * sure)
    between = sure > 1 and since >= period * 1500
    return {key for key in idle if between or (crc32(key.encode()) + int(turn)) % (IDLE_EVERY // sure)}
