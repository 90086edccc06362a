"""What a channel can take now, and who may use a shared limit: pure functions. Times in seconds unless they are `Millis`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, NamedTuple

from ...core.clock import Millis
from .circuit_breaker import Breaker

FIRST_WINDOW = 4
"""Deliveries at once to a channel that nothing is known of. Each answer makes the window wider by one, so it doubles with each round."""
SLOW = 1.0
"""A delivery that takes longer leaves the slots of prompt ones to others; a channel whose deliveries do on average is slow."""
AHEAD = 3.0
"""Only what can be started within this time is claimed: the rest can still be cancelled, and keeps no owner."""
PATIENCE = 10.0
"""What is claimed and cannot be started within this time is given back. More than `AHEAD`, for each time costs a transaction."""
SETTLED = 2.0
"""For how long deliveries must have stood in line before any are given back: a window that is still growing says little."""
SILENT = 0.5
"""A receiver that nothing was heard of, for so long after the first delivery, is taken for one that does not answer."""
CROWDED = 0.5
"""When a new delivery would wait longer than this for its turn, a channel gets no more than its share of the process's owners."""
OWNERS_SHARE = 4
"""One channel's share of the owners a process can have while it is crowded: one in four. All crowded ones together: one in two."""
SOONEST, LATEST = 1.0, 60.0
"""Bounds of the time after which a shard that found no room comes back."""
PAUSED_SOONEST: Millis = 30_000
PAUSED_LATEST: Millis = 300_000
"""How often the shards of a paused channel are looked at: the longer it is paused the less. Resuming calls them back at once."""
FORGET = 60.0
"""After so long without a delivery nothing is known of a channel any more."""


type Reason = Literal["paused", "breaker-open", "breaker-half-open"]


class Block(NamedTuple):
    """Why nothing is delivered to a channel."""

    reason: Reason
    until: Millis | None = None
    """When that may change by itself, where that is known: an open breaker lets a probe through then."""


def block(paused: bool, state: Breaker) -> Block | None:
    """What keeps all deliveries to a channel, or None."""
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
    """A channel in one process, at one instant."""

    window: int
    """Deliveries it may have in flight: its own window, or less where its concurrency is limited."""
    in_flight: int
    pending: int
    """Claimed, and not started."""
    mean: float
    """How long deliveries take, those in flight included, in seconds."""
    rate: float | None = None
    """Its limit of deliveries a second."""
    shut: float = 0.0
    """Seconds until its limits let the next one through, as far as is known."""
    silent: bool = False
    """Nothing has been heard of it for `SILENT`, nor ever before."""


def capacity(load: LaneLoad) -> float:
    """Deliveries a second that the channel can take."""
    by_window = load.window / max(load.mean, 1e-6)
    return by_window if load.rate is None else min(by_window, load.rate)


def room(load: LaneLoad, ahead: float = AHEAD) -> int:
    """How many more events may be claimed: what can be started within `ahead`, and always one when nothing else would tell more.

    Below zero: so many that are claimed cannot be started in that time.
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
    """How long a delivery that comes now would wait for its turn behind `waiting` others."""
    return max(load.shut, waiting / max(capacity(load), 1e-6))


def widened(window: int, most: int) -> int:
    """The window after an answer."""
    return min(most, window + 1)


def narrowed(window: int) -> int:
    """The window after a delivery that was not answered at all."""
    return max(1, window // 2)


def look_again(paused_at: Millis, now: Millis) -> Millis:
    """When a shard looks at its paused channel again."""
    return now + min(PAUSED_LATEST, max(PAUSED_SOONEST, (now - paused_at) // 4))


class SlotShare(NamedTuple):
    """One instance's part of a shared concurrency, until `until` in the store's own time."""

    held: int
    wanted: int
    until: Millis


LEASE: Millis = 15_000
"""How long a part counts without being renewed: a dead instance's slots come back after that."""


def share(parts: Mapping[str, SlotShare], me: str, limit: int, busy: int, wanted: int, now: Millis) -> dict[str, SlotShare]:
    """The parts after `me` has asked for `wanted` slots (at least the `busy` ones it uses) of `limit`. `now`: the store's time.

    Nobody gets more than what is free. While more is wanted than there is, who asks again comes down to an even share, but never below
    what it uses: others then find it free.
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


class ChannelHold(NamedTuple):
    """What keeps an owner from claiming events of one channel: a pause, a breaker, a limit, a slow receiver (docs/flow-control.md)."""

    until: Millis
    """When to look again."""
    room: int = 0
    """Of those that are due, so many may be claimed all the same, the earliest first."""
    fresh_first: bool = False
    """Not the earliest, but those that have not failed yet: a probe is to say how the channel is, not how one bad event is."""
    paused: bool = False
    """It ends when somebody says so, not by itself."""


FREE: Mapping[str, ChannelHold] = {}
"""Nothing is held."""
