"""The memory of one process about owners of partitions: events wait without a slot, and a dead server delays only its own events."""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import Clock, Millis
from .model import FindOwner, PartitionOwner
from .rules import SERVER_PAUSE, UNANSWERED, OwnerDecision, decide

MOST_REMEMBERED = 10_000
"""Held partitions, and servers without answers, that are remembered: as many of each, the latest ones."""
UNSEEN: Millis = 10_000
"""Milliseconds without a look after which a hold counts from the next look."""


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
