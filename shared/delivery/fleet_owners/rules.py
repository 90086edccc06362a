"""Pure decisions about deliveries to the owner of a partition. Times in milliseconds."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from ...core import backoff
from ...core.clock import Millis
from .model import PartitionOwner

OWNER_WAIT: Final[Millis] = 60_000
"""Longest wait for the next owner of a partition. It is longer than a failover with any profile but `seed`, and than a usual hand-off."""
OWNER_LOOK_AGAIN: Final[Millis] = 1_000
"""Time between two looks at a partition whose events wait."""
MOST_STALE: Final = 10
"""Stale answers to one event that cost no attempt; the next one counts as a failed attempt."""
STALE_FIRST: Final[Millis] = 100
STALE_LONGEST: Final[Millis] = 5_000
"""Pause after the first stale answer, and the longest one: it doubles. All ten together take 26 s."""
UNANSWERED: Final = 3
"""Deliveries in a row without an answer after which a server counts as silent."""
SERVER_PAUSE: Final[Millis] = 5_000
"""Time between two deliveries to a silent server: each is a probe."""
UNREACHED_PAUSE: Final[Millis] = 1_000
"""Pause of an event after a delivery that did not reach the owner, while that costs no attempt."""


class OwnerDecision(NamedTuple):
    """The decision about an event. look: time of the next look if it waits. why: the reason of a wait or a failure."""

    action: Literal["deliver", "wait", "fail"]
    look: Millis = 0
    why: str = ""


DELIVER: Final = OwnerDecision("deliver")


def decide(owner: PartitionOwner, since: Millis, punctual: Millis, now: Millis) -> OwnerDecision:
    """Decide about an event that should start at `punctual`. since: time since which the partition is held.

    An owner that is about to leave gets the event at the end of the wait nevertheless: it may be the only server, or be drained for long.
    A silent one does not, and the attempt fails unsent: each would hold a slot of the channel until its time-out, while events of other
    servers wait for slots.
    """
    if not owner.hold:
        return DELIVER
    match owner.hold:
        case "leaving":
            begins = since
        case "silent":
            begins = punctual
        case _:
            begins = max(since, punctual)
    if now < begins + OWNER_WAIT:
        return OwnerDecision("wait", min(now + OWNER_LOOK_AGAIN, begins + OWNER_WAIT), owner.text)
    if owner.hold == "leaving":
        return DELIVER
    return OwnerDecision("fail", why=f"{owner.text}; the delivery has waited {OWNER_WAIT // 1000} s")


def stale_pause(count: int) -> Millis | None:
    """Return the pause after the `count`-th stale answer to an event; None if that one counts as a failed attempt."""
    return None if count > MOST_STALE else round(backoff.exponential(STALE_FIRST, count - 1, STALE_LONGEST, 20))


def unreached_pause(since: Millis, failover: Millis, now: Millis) -> Millis | None:
    """Return the pause after a delivery that did not reach the owner; None if it counts as a failed attempt.

    since: time of the first such delivery of the event. failover: see `PartitionOwner.failover`. A server that has crashed stays the owner
    in storage until its lease has ended and another has taken it: until then a failed attempt would say nothing about the next owner.
    """
    return UNREACHED_PAUSE if now - since < failover else None
