"""The owner of a partition as deliveries see it, and the port that finds it."""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from ...core.clock import Millis

type PartitionHold = Literal["", "absent", "leaving", "silent"]
"""The reason why a partition's events wait; '' for none. absent: no server can take them now. leaving: its owner is about to hand it off.
silent: its owner has not answered the last deliveries."""


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
