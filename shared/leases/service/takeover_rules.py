"""shared.leases.service.takeover_rules."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Final

from ...core.clock import Millis
from ..profiles import Profile
from ..rows import PARTITIONS, Intent, Server
from .snapshot import FleetSummary, Versioned

MARGIN: Final = 5.0
"""Seconds beyond T that the app waits before it fences: its age of a row is a difference of times that storage has cut to seconds, and
which two machines of it may have told."""


TICK: Final = 15.0
"""Seconds between looks of the timer that fences."""


LEFT_CLOSED: Final = 60.0
"""Seconds after which whoever closed a fleet, to change or to end it, has been cut short."""


READ_PARTITIONS_EVERY: Final[Millis] = 240_000
"""Partition rows are read at least so often."""


def may_fence(profile: Profile, age: float) -> bool:
    """Whether a server whose row is `age` seconds old, by storage's own time, may be fenced."""
    return age >= profile.takeover + MARGIN


def fingerprint(seen: FleetSummary) -> str:
    """Changes with everything that a plan rests on, but for partitions' owners and loads."""
    members = [(s.value.name, s.value.incarnation, s.value.state, s.value.capacity) for _, s in sorted(seen.servers.items())]
    odd = [rk for rk in seen.unreadable if not rk.startswith(PARTITIONS[0])]
    text = repr((seen.fleet.partitions, seen.fleet.generation, seen.fleet.changes, members, *odd))
    return blake2b(text.encode(), digest_size=12).hexdigest()


def expired_intents(seen: FleetSummary, now: Millis, epochs: Mapping[int, int] | None = None) -> list[Intent]:
    """Words that have expired, and, where `epochs` of the partitions are given, bumps that have happened."""
    return [
        intent
        for intent in seen.intents
        if (intent.expires and intent.expires <= now)
        or (epochs is not None and intent.verb == "bump" and epochs.get(intent.partition, intent.epoch) != intent.epoch)
    ]


def outdated_requests(seen: FleetSummary, now: Millis) -> list[Versioned[Server]]:
    """Living servers that have been told to drain or to exit by words that are over."""
    drained = seen.in_force(now).drained
    return [each for name, each in sorted(seen.servers.items()) if each.value.state != "dead" and each.value.tell and name not in drained]


def is_left_closed(seen: FleetSummary) -> bool:
    """Whether nobody can register because somebody closed the fleet and did not go on."""
    return seen.fleet.closed and seen.age >= LEFT_CLOSED
