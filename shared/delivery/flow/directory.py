"""The parts of the directory of tenants and channels that flow control needs."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from .. import circuit_breaker
from ..channels.ports import Target


class DeliveryLimits(Protocol):
    """A tenant's limits on deliveries; None means no limit."""

    @property
    def deliveries_per_second(self) -> float | None: ...
    @property
    def concurrency(self) -> int | None: ...


class NoLimits(NamedTuple):
    """The limits of a tenant that has none."""

    deliveries_per_second: float | None = None
    concurrency: int | None = None


NO_LIMITS = NoLimits()


class TenantSettings(Protocol):
    """The settings of a tenant."""

    @property
    def limits(self) -> DeliveryLimits: ...


class ChannelStates(Protocol):
    """Changes of the stored state of channels."""

    async def hold(self, target: Target, reason: str) -> bool:
        """Pause the channel because its receiver is gone. False if it is paused, was deleted, or has changed since `target` was read."""

    async def turn(self, target: Target, change: circuit_breaker.BreakerChange) -> circuit_breaker.Breaker | None:
        """Change the circuit breaker. Return its new state, or None when `change` found nothing to do."""


class ChannelDirectory(Protocol):
    """Reads of tenants and channels."""

    @property
    def channels(self) -> ChannelStates: ...

    async def tenant(self, name: str) -> TenantSettings | None:
        """Return the tenant's settings, at most 5 s old. Raises `StorageError`."""

    async def target(self, tenant: str, channel: str) -> Target | None:
        """Return the channel with its secrets and state, at most 1 s old. Raises `StorageError`."""

    async def target_now(self, tenant: str, channel: str) -> Target | None:
        """Return the channel as it is stored now. Raises `StorageError`."""
