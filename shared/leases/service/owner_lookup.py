"""Finds the owners of partitions for deliveries: the reads of `leases.owners`, kept for a moment.

An event costs at most three requests to storage, and none if its fleet and partition were read within `OWNER_FRESH`. However many events
there are, a process makes at most one request for each fleet and two for each of its partitions in that time, or in `UNOWNED_FRESH` for a
partition without an owner.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import Clock
from ...delivery.fleet_owners import PartitionOwner
from ...engine.async_runner import AsyncRunner
from ...tenants.cache import Cached
from ..owners import FleetState, OwnerRows, owner_from, partition_in_force, read_fleet_state, read_owner
from ..rows import fleet_key

OWNER_FRESH = 2.0
"""Seconds for which what was read is used. An outdated owner costs a stale answer, after which its rows are read again."""
UNOWNED_FRESH = 1.0
"""Seconds for which a partition without an owner is so for deliveries: they wait for the next owner."""
FLEETS_KEPT = 1_000
PARTITIONS_KEPT = 20_000
"""Fleets and partitions that are kept in memory."""


class _Read(NamedTuple):
    """The rows of a partition and its owner. at: monotonic time at which their read ended: all that waited for it use it."""

    rows: OwnerRows
    at: float


class OwnerLookup:
    """See `FindOwner`. One per process; belongs to one event loop. runner: of the account with the fleets."""

    def __init__(self, runner: AsyncRunner, clock: Clock, *, fresh: float = OWNER_FRESH) -> None:
        self._clock = clock

        async def fleet(key: str) -> FleetState:
            return await runner.run(read_fleet_state(key))

        async def partition(place: tuple[str, int]) -> _Read:
            return _Read(await runner.run(read_owner(*place)), clock.monotonic())

        self._fleets = Cached[str, FleetState](fleet, clock, ttl=fresh, missing_ttl=fresh, size=FLEETS_KEPT)
        self._partitions = Cached[tuple[str, int], _Read](partition, clock, ttl=fresh, missing_ttl=fresh, size=PARTITIONS_KEPT)

    async def find(self, tenant: str, fleet: str, key: str) -> PartitionOwner:
        """See `FindOwner`."""
        place = fleet_key(tenant, fleet)
        state = await self._fleets.get(place)
        assert state is not None  # the load returns one
        number = partition_in_force(state, key)
        if state.fleet is None:
            return owner_from(fleet, state, number, OwnerRows(None, None), self._clock.now())
        read = await self._partitions.get((place, number))
        assert read is not None  # the load returns one
        owner = owner_from(fleet, state, number, read.rows, self._clock.now())
        if owner.hold != "absent" or self._clock.monotonic() - read.at < UNOWNED_FRESH:
            return owner
        self._partitions.drop((place, number))
        read = await self._partitions.get((place, number))
        assert read is not None
        return owner_from(fleet, state, number, read.rows, self._clock.now())

    def forget(self, tenant: str, owner: PartitionOwner) -> None:
        """See `FindOwner`."""
        place = fleet_key(tenant, owner.fleet)
        self._fleets.drop(place)
        self._partitions.drop((place, owner.partition))
