"""Reads the owner of a partition for deliveries: one request for the fleet, and two for a partition.

The owner's row is read after the partition's: a row of another incarnation, or none, then proves that the owner has ended.
"""

from __future__ import annotations

from typing import NamedTuple

from ...core.clock import Millis
from ...core.partition_hash import partition_of_key
from ...delivery.fleet_owners.model import PartitionOwner
from ...engine.effects import Steps, get, load
from ...storage.names import FLEETS
from ...storage.ports import Row
from .. import unreadable_rows
from ..rows import (
    FLEET,
    INTENTS,
    ActiveIntents,
    Fleet,
    Intent,
    Partition,
    Server,
    active_intents,
    parse_fleet,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from .rules import owner_of


class FleetState(NamedTuple):
    """A fleet as stored, with its manual controls and maintenance drains. fleet: None if there is none of this name."""

    fleet: Fleet | None
    intents: tuple[Intent, ...]


class OwnerRows(NamedTuple):
    """A partition's row and then its owner's. age: seconds since the owner's last write, in storage's time."""

    partition: Partition | None
    server: Server | None
    age: float = 0.0


def read_fleet_state(key: str) -> Steps[FleetState]:
    """Read a fleet and its intents: one request. Raises `Rejected` if the fleet's row cannot be read."""
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    found = [unreadable_rows.parse_required(row, lambda row: parse_fleet(row.props)) for row in rows if row.rk == FLEET]
    return FleetState(found[0] if found else None, tuple(unreadable_rows.parse_intents(rows)[0]))


def read_owner(key: str, number: int) -> Steps[OwnerRows]:
    """Read a partition and its owner: two requests, one without an owner. A row that cannot be read counts as missing."""
    partition = _first(unreadable_rows.parse_rows(_listed((yield from get(FLEETS, key, partition_key(number)))), parse_partition)[0])
    if partition is None or not partition.owner:
        return OwnerRows(partition, None)
    row = yield from get(FLEETS, key, server_key(partition.owner))
    server = _first(unreadable_rows.parse_rows(_listed(row), parse_server)[0])
    return OwnerRows(partition, server, (row.read_at - row.timestamp) / 1000 if row is not None else 0.0)


def partition_in_force(state: FleetState, key: str) -> int:
    """Return the partition of an ordering key by the count of the fleet's newest generation; 0 without a fleet."""
    return partition_of_key(key, state.fleet.partitions) if state.fleet is not None else 0


def owner_from(fleet: str, state: FleetState, number: int, rows: OwnerRows, now: Millis) -> PartitionOwner:
    """Return the owner that the rows show at wall time `now`."""
    intents = active_intents(state.intents, now) if state.intents else _NO_INTENTS
    return owner_of(fleet, state.fleet, number, rows.partition, rows.server, rows.age, intents)


_NO_INTENTS = ActiveIntents()


def _listed(row: Row | None) -> list[Row]:
    return [row] if row is not None else []


def _first[T](found: list[tuple[Row, T]]) -> T | None:
    return found[0][1] if found else None
