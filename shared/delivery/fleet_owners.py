"""Deliveries of fleet channels: to whichever server owns the partition of an event's ordering key now.

`FindOwner` is the port that finds the owner (`leases.service.owner_lookup`). `decide` says purely whether to deliver, to wait for another
owner, or to fail. `OwnerRouting` remembers for one process what it decides by, so that events wait without a slot, and a dead server
delays only its own events. Times are milliseconds.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, Protocol

from ..core import backoff
from ..core.clock import Clock, Millis

type PartitionHold = Literal["", "absent", "leaving", "silent"]
"""The reason why a partition's events wait; '' for none. absent: no server can take them now. leaving: its owner is about to hand it off.
silent: its owner has not answered the last deliveries."""

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
MOST_REMEMBERED = 10_000
"""Held partitions, and servers without answers, that are remembered: as many of each, the latest ones."""
UNSEEN: Millis = 10_000
"""Milliseconds without a look after which a hold counts from the next look."""


class PartitionOwner(NamedTuple):
    """The owner of one partition. server, endpoint: '' unless the server may own the partition now and has published an endpoint."""

    fleet: str
    generation: int
    """The fleet's newest generation, by whose partition count the key was mapped."""
    partition: int
    epoch: int = 0
    server: str = ""
    incarnation: str = ""
    endpoint: str = ""
    hold: PartitionHold = ""
    failover: Millis = 0
    """Milliseconds for which a server without a connection may still be the owner, or its successor not yet known: V + T."""
    why: str = ""
    """The reason of the hold, as the end of a sentence that begins with the partition."""

    @property
    def text(self) -> str:
        """The reason of the hold as a sentence: `partition 17 of fleet search has no owner`."""
        return f"partition {self.partition} of fleet {self.fleet} {self.why}"


class FindOwner(Protocol):
    """Finds owners. One per process; keeps answers for a moment."""

    async def find(self, tenant: str, fleet: str, key: str) -> PartitionOwner:
        """Return the owner of the key's partition. Raises `StorageError`."""

    def forget(self, tenant: str, owner: PartitionOwner) -> None:
        """Read this partition's owner again when it is asked for next."""


class NoFleets:
    """Finds no owner: for a scheduler without fleets."""

    async def find(self, tenant: str, fleet: str, key: str) -> PartitionOwner:
        """See `FindOwner`."""
        return PartitionOwner(fleet, 0, 0, hold="absent", why="cannot be looked up here")

    def forget(self, tenant: str, owner: PartitionOwner) -> None:
        """See `FindOwner`."""


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


class Routed(NamedTuple):
    """A partition's owner, and the decision about the event."""

    owner: PartitionOwner
    decision: OwnerDecision


class _HeldSince(NamedTuple):
    since: Millis
    seen: Millis


class _Unanswered(NamedTuple):
    failures: int
    until: Millis = 0
    """Time of the next probe, once the server counts as silent."""


class OwnerRouting:
    """The routing of one process. Belongs to one event loop."""

    def __init__(self, find: FindOwner, clock: Clock) -> None:
        self._find, self._clock = find, clock
        self._held: dict[tuple[str, str, int], _HeldSince] = {}
        self._unanswered: dict[tuple[str, str, str], _Unanswered] = {}

    async def route(self, tenant: str, fleet: str, key: str, punctual: Millis, *, starts: bool = False) -> Routed:
        """Return the owner and the decision. punctual: when the event should start. starts: a delivery starts now if it is allowed to.

        Raises `StorageError`.
        """
        owner = await self._find.find(tenant, fleet, key)
        now = self._clock.now()
        owner = self._with_silence(tenant, owner, now, starts)
        place = (tenant, fleet, owner.partition)
        if not owner.hold:
            self._held.pop(place, None)
            return Routed(owner, decide(owner, now, punctual, now))
        before = self._held.pop(place, None)
        since = before.since if before is not None and now - before.seen <= UNSEEN else now
        _make_room(self._held)
        self._held[place] = _HeldSince(since, now)
        return Routed(owner, decide(owner, since, punctual, now))

    def _with_silence(self, tenant: str, owner: PartitionOwner, now: Millis, starts: bool) -> PartitionOwner:
        server = (tenant, owner.fleet, owner.incarnation)
        found = self._unanswered.get(server)
        if owner.hold or found is None or found.failures < UNANSWERED:
            return owner
        if now < found.until:
            return owner._replace(hold="silent", why=f"waits: its owner {owner.server} has not answered")
        if starts:
            # This delivery is the probe. The other events wait for its answer.
            self._unanswered[server] = found._replace(until=now + SERVER_PAUSE)
        return owner

    def ended(self, tenant: str, owner: PartitionOwner, *, answered: bool) -> None:
        """Note the end of a delivery. answered: the server is alive, whatever its answer was."""
        server = (tenant, owner.fleet, owner.incarnation)
        before = self._unanswered.pop(server, _Unanswered(0))
        if not answered:
            _make_room(self._unanswered)
            self._unanswered[server] = _Unanswered(before.failures + 1, self._clock.now() + SERVER_PAUSE)

    def stale(self, tenant: str, owner: PartitionOwner) -> None:
        """Note that the server does not own the partition under this epoch."""
        self._find.forget(tenant, owner)


def _make_room[K, V](kept: dict[K, V]) -> None:
    while len(kept) >= MOST_REMEMBERED:
        del kept[next(iter(kept))]
