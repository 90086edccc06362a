"""Decisions of flow control: what a channel can take now, and how a shared limit is divided. Pure. Times in seconds unless `Millis`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ...core.clock import Millis
from ..circuit_breaker import Breaker

FIRST_WINDOW = 4
"""Deliveries at once to an unknown channel. Each answer widens the window by one, so it doubles with each round."""
SLOW = 1.0
"""Duration from which a delivery leaves the slots of prompt ones; a channel with a longer mean is slow."""
AHEAD = 3.0
"""Only events that can start within this time are claimed: the others can still be cancelled, and occupy no owner."""
PATIENCE = 10.0
"""Claimed events that cannot start within this time are given back. More than `AHEAD`, because giving back costs a transaction."""
SETTLED = 2.0
"""Time that deliveries must have waited in line before any are given back: a window that still grows says little."""
SILENT = 0.5
"""A receiver without any answer this long after the first delivery counts as not answering."""
CROWDED = 0.5
"""Wait of a new delivery for its turn, in seconds, above which a channel gets only its share of the process's owners."""
OWNERS_SHARE = 4
"""One channel's share of the process's owners while it is crowded: one in four. All crowded channels together: one in two."""
SOONEST, LATEST = 1.0, 60.0
"""Bounds of the time after which a shard without room comes back."""
OVERDUE = 5.0
"""Lateness with which a shard that has not come back loses its place: another process may serve it."""
PAUSED_SOONEST: Millis = 30_000
PAUSED_LATEST: Millis = 300_000
"""Bounds of the time after which a paused channel's shards look again: the longer the pause, the longer. Resuming wakes them at once."""
FORGET = 60.0
"""Time without a delivery after which earlier observations of a channel no longer count."""
LEASE: Millis = 15_000
"""Time for which a share counts without being renewed; after that, a dead instance's slots are free."""

type HoldReason = Literal["paused", "breaker-open", "breaker-half-open"]


class Block(NamedTuple):
    """The reason why nothing is delivered to a channel."""

    reason: HoldReason
    until: Millis | None = None
    """Time at which this may change by itself, if known: an open breaker then lets a probe through."""


def block(paused: bool, state: Breaker) -> Block | None:
    """Return the reason that blocks all deliveries to a channel, or None."""
    if paused:
        return Block("paused")
    match state.state:
        case "open":
            return Block("breaker-open", state.until)
        case "half-open":
            return Block("breaker-half-open")
        case _:
            return None


class LaneLoad(NamedTuple):
    """A channel in one process at one instant."""

    window: int
    """Deliveries that it may have in flight: its own window, or less if its concurrency is limited."""
    in_flight: int
    pending: int
    """Claimed events that have not started."""
    mean: float
    """Mean duration of deliveries in seconds, including those in flight."""
    rate: float | None = None
    """Its limit of deliveries per second."""
    shut: float = 0.0
    """Seconds until its limits let the next delivery through, as far as known."""
    silent: bool = False
    """True if the receiver has never answered, for at least `SILENT` seconds."""
    widest: int = 0
    """The number to which the window grows while all deliveries are answered; not above `window` if it does not grow."""


def capacity(load: LaneLoad) -> float:
    """Return the deliveries per second that the channel can take."""
    by_window = load.window / max(load.mean, 1e-6)
    return by_window if load.rate is None else min(by_window, load.rate)


def room(load: LaneLoad, ahead: float = AHEAD) -> int:
    """Return how many more events may be claimed: those that can start within `ahead`, and at least one if nothing is in flight.

    A negative result is the number of claimed events that cannot start in that time.
    """
    if load.shut > ahead:
        return -load.pending
    startable = float(max(0, load.window - load.in_flight))
    if not load.silent:
        startable += ahead * load.window / max(load.mean, 1e-6)
    if load.rate is not None:
        startable = min(startable, ahead * load.rate)
    least = 1 if load.in_flight == 0 else 0
    return max(math.floor(min(startable, 1e9)), least) - load.pending


def turn(load: LaneLoad, waiting: int) -> float:
    """Return the seconds that a new delivery would wait for its turn behind `waiting` others."""
    return max(load.shut, waiting / max(capacity(load), 1e-6))


def drained(load: LaneLoad, count: int) -> float:
    """Return the seconds after which the channel has taken `count` deliveries. A window that grows doubles with each round of answers."""
    growing = min(count, max(0, load.widest - load.window))
    rounds = math.log2(1 + growing / load.window) + (count - growing) / max(load.window, load.widest)
    took = load.mean * rounds
    return took if load.rate is None else max(took, count / max(load.rate, 1e-6))


def far(load: LaneLoad) -> int:
    """Return a number of deliveries behind which a shard waits for `LATEST` in any case."""
    return math.ceil(2 * LATEST * capacity(load._replace(window=max(load.window, load.widest))))


def widened(window: int, most: int) -> int:
    """Return the window after an answer."""
    return min(most, window + 1)


def narrowed(window: int) -> int:
    """Return the window after a delivery without any answer."""
    return max(1, window // 2)


def look_again(paused_at: Millis, now: Millis) -> Millis:
    """Return the time at which a shard looks at its paused channel again."""
    return now + min(PAUSED_LATEST, max(PAUSED_SOONEST, (now - paused_at) // 4))


class SlotShare(NamedTuple):
    """One instance's share of a concurrency limit, until `until` in the store's own time."""

    held: int
    wanted: int
    until: Millis


def share(parts: Mapping[str, SlotShare], me: str, limit: int, busy: int, wanted: int, now: Millis) -> dict[str, SlotShare]:
    """Return the shares after `me` has asked for `wanted` slots of `limit` (at least the `busy` ones that it uses). now: the store's time.

    An instance gets at most what is free. While the total demand exceeds the limit, each instance that asks again goes down to an even
    share, but never below what it uses; others then find the difference free.
    """
    others = {name: part for name, part in parts.items() if name != me and part.until > now}
    if wanted <= 0 and busy <= 0:
        return others
    wanted = max(wanted, busy)
    free = limit - sum(part.held for part in others.values())
    claims = {name: part.wanted for name, part in others.items() if part.wanted > 0} | {me: wanted}
    even, left = divmod(limit, len(claims))
    fair = limit if sum(claims.values()) <= limit else max(1, even + (sorted(claims).index(me) < left))
    held = max(busy, min(wanted, fair, max(0, free)))
    return {**others, me: SlotShare(held, wanted, now + LEASE)}


class ClaimHold(NamedTuple):
    """The reason why an owner must not claim events of one channel: a pause, a breaker, a limit, a slow receiver."""

    until: Millis
    """Time at which to look again."""
    room: int = 0
    """Number of due events that may be claimed all the same, the earliest first."""
    fresh_first: bool = False
    """Claim events that have not failed yet first: a probe must test the channel and not one bad event."""
    paused: bool = False
    """It ends only when a user resumes the channel."""
    full: bool = False
    """The channel has as many deliveries as it can take."""
    blocked: bool = False
    """The channel is paused, or its circuit breaker is not closed (`block`)."""


FREE: Mapping[str, ClaimHold] = {}
"""No channel is held."""
