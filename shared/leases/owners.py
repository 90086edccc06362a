"""The owners of partitions, for deliveries of fleet channels.

A server publishes the scheme, host and port of its address. Pure functions decide which server takes the deliveries of a partition now, and
steps without I/O read the rows for that (`service.owner_lookup` runs them in the app).

The fleet's newest generation decides: from the moment at which a resize is stored, keys map by the new count, and events wait until the
new partition is open and owned. Safety does not depend on what is decided here: the receiver checks its own lease.

Reads the owner of a partition for deliveries: one request for the fleet, and two for a partition.

The owner's row is read after the partition's: a row of another incarnation, or none, then proves that the owner has ended.
"""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv6Address
from typing import Final, NamedTuple

from ..core.clock import Millis
from ..core.partition_hash import partition_of_key
from ..delivery.fleet_owners import PartitionOwner
from ..engine.effects import Steps, get, load
from ..storage.names import FLEETS
from ..storage.ports import Row
from . import unreadable_rows
from .rows import (
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
from .rules import has_ended, placement_refusal

_ENDPOINT: Final = re.compile(r"https?://(?:[A-Za-z0-9._-]{1,253}|\[([0-9A-Fa-f:.]{2,45})\])(?::([0-9]{1,5}))?")
EXAMPLE: Final = "https://10.2.0.7:8443"


def endpoint_fault(text: str) -> str | None:
    """Return why the text is no endpoint; None if it is one. The app also asks its egress rules."""
    found = _ENDPOINT.fullmatch(text)
    if found is None or (found[2] is not None and not 1 <= int(found[2]) <= 65535):
        return f"must be scheme, host and port alone, such as {EXAMPLE}"
    if found[1] is not None:
        try:
            IPv6Address(found[1])
        except AddressValueError:
            return "must have an IPv6 address in its brackets"
    return None


AGE_ERROR: Final = 1.0
"""Seconds by which the age of a row can be measured too long: storage cuts times to seconds."""


def owner_of(
    fleet: str, stored: Fleet | None, number: int, partition: Partition | None, server: Server | None, age: float, intents: ActiveIntents
) -> PartitionOwner:
    """Return the owner of partition `number` as deliveries see it. stored: None if there is no such fleet.

    server: the row of the partition's owner, read after the partition's. age: seconds since its last write, in storage's time.
    """
    if stored is None:
        return PartitionOwner(fleet, 0, number, hold="absent", why="cannot be served: the tenant has no fleet of this name")
    none = PartitionOwner(fleet, stored.generation, number, partition.epoch if partition is not None else 0, hold="absent")
    if number in intents.offline:
        return none._replace(why="is offline by a manual control")
    if partition is None or partition.closed or partition.generation != stored.generation:
        return none._replace(why="has no owner: the fleet is being resized" if stored.former or partition else "has no owner")
    if not partition.owner:
        return none._replace(why="has no owner")
    if server is None or has_ended(partition.incarnation, server) or server.kept or server.http.evicted:
        return none._replace(why=f"has no owner: {partition.owner} has ended")
    validity = _validity(stored, server)
    if age > validity + AGE_ERROR:
        return none._replace(why=f"has no owner: {server.name} has sent no heartbeat for {age:.0f} s")
    if not server.endpoint:
        return none._replace(why=f"cannot be delivered to: its owner {server.name} has published no endpoint")
    owner = PartitionOwner(fleet, stored.generation, number, partition.epoch, server.name, partition.incarnation, server.endpoint)
    owner = owner._replace(failover=round(1000 * (validity + stored.profile.takeover)))
    refusal = placement_refusal(number, server, intents)
    if refusal == "maintenance":
        return owner._replace(hold="leaving", why=f"waits: its owner {server.name} prepares for maintenance")
    if refusal is not None or number in server.drop or (number, partition.epoch) in intents.bumps:
        return owner._replace(hold="leaving", why=f"waits: {server.name} hands it off")
    return owner


def _validity(fleet: Fleet, server: Server) -> float:
    """Return V of the server in seconds: a server that speaks HTTP keeps the one of its registration."""
    return float(server.http.terms.partition(":")[2]) if server.http.terms else fleet.profile.validity


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
