"""The port through which maintenance sees and moves the partitions of nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol


class Leases(Protocol):
    """The part of a fleet's leases that maintenance needs."""

    async def held(self, key: str, nodes: Iterable[str]) -> Mapping[str, int]:
        """Return the number of partitions of nodes. Nodes without any may be left out. Raises `StorageError`."""

    async def leave(self, key: str, nodes: Mapping[str, bool], events: Mapping[str, Sequence[str]] | None = None) -> None:
        """Make partitions leave the nodes that map to True, and allow them back on those that map to False. Raises `StorageError`.

        events: the Scheduled Events of each node.
        """
