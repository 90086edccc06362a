"""Finds the owners of partitions; imported with the first delivery to a fleet."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from ..core.clock import Clock
from ..engine.async_runner import AsyncRunner

if TYPE_CHECKING:
    from ..delivery.fleet_owners.model import PartitionOwner
    from ..leases.service.owner_lookup import OwnerLookup


class LazyOwners:
    """See `FindOwner`."""

    def __init__(self, runner: AsyncRunner, clock: Clock) -> None:
        self._runner, self._clock = runner, clock

    @cached_property
    def _lookup(self) -> OwnerLookup:
        from ..leases.service.owner_lookup import OwnerLookup

        return OwnerLookup(self._runner, self._clock)

    async def find(self, tenant: str, fleet: str, key: str) -> PartitionOwner:
        """See `FindOwner`."""
        return await self._lookup.find(tenant, fleet, key)

    def forget(self, tenant: str, owner: PartitionOwner) -> None:
        """See `FindOwner`."""
        self._lookup.forget(tenant, owner)
