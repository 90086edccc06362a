"""A fleet's rows as the app reads them, with their ages by the storage service's clock.

`FleetSummary` leaves out the partition rows, which are most of a fleet's rows and seldom needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from ...core.clock import Millis
from ...engine.effects import Steps, load
from ...storage.names import FLEETS
from ...storage.ports import Row
from .. import unreadable_rows
from ..planner_input import PlannerInput
from ..rows import (
    FLEET,
    INTENTS,
    PARTITIONS,
    SERVERS,
    ActiveIntents,
    Fleet,
    Intent,
    Partition,
    Server,
    active_intents,
    parse_fleet,
    parse_partition,
    parse_server,
)


class Versioned[T](NamedTuple):
    """A parsed row with its ETag. age: seconds since the row was last written, by the storage service's clock."""

    value: T
    etag: str
    age: float


def row_age(row: Row) -> float:
    """Return the seconds from the row's last write until it was read, by the storage service's clock.

    The result may be up to a second too small, never too large: the time of the read is cut to seconds.
    """
    return max(0, row.read_at - row.timestamp) / 1000


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """A fleet without its partitions.

    etag, age: of the fleet's own row; seconds. intents: including expired ones. unreadable: keys of rows that cannot be read; in a
    `FleetSnapshot` this includes partitions.
    """

    key: str
    fleet: Fleet
    etag: str
    age: float
    intents: tuple[Intent, ...]
    servers: dict[str, Versioned[Server]]
    unreadable: tuple[str, ...] = ()

    def in_force(self, now: Millis) -> ActiveIntents:
        """Return the intents that have not expired at wall time `now`."""
        return active_intents(self.intents, now)

    @property
    def living(self) -> list[Server]:
        """Return the servers that are not dead, by name."""
        return [each.value for _, each in sorted(self.servers.items()) if each.value.state != "dead"]


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A fleet with its partitions. The partitions were read before the servers (see `rules.ended`)."""

    summary: FleetSummary
    partitions: dict[int, Versioned[Partition]]

    def planner_input(self, now: Millis) -> PlannerInput:
        """Return the planner's input, with the intents in force at wall time `now`."""
        partitions = {number: each.value for number, each in self.partitions.items()}
        servers = {name: each.value for name, each in self.summary.servers.items()}
        summary = self.summary
        return PlannerInput(summary.fleet, summary.in_force(now), partitions, servers, unreadable=summary.unreadable, now=now)

    @property
    def kept(self) -> set[int]:
        """Return the partitions with unknown state. They must stay as they are."""
        return unreadable_rows.undecidable_partitions(
            self.summary.unreadable, ((number, each.value.owner) for number, each in self.partitions.items())
        )


def read_summary(key: str) -> Steps[FleetSummary | None]:
    """Read a fleet without its partitions, usually in two requests. None if there is no such fleet."""
    found = parse_summary(key, (yield from load(FLEETS, key, FLEET, INTENTS[1])))
    servers = yield from load(FLEETS, key, *SERVERS)
    return with_servers(found, servers) if found is not None else None


def read_snapshot(key: str) -> Steps[FleetSnapshot | None]:
    """Read a whole fleet; each thousand partitions are one more request. None if there is no such fleet."""
    rows = yield from load(FLEETS, key, FLEET, PARTITIONS[1])
    servers = yield from load(FLEETS, key, *SERVERS)
    found = parse_summary(key, rows)
    if found is None:
        return None
    found = with_servers(found, servers)
    partitions, odd = unreadable_rows.parse_rows((row for row in rows if PARTITIONS[0] <= row.rk < PARTITIONS[1]), parse_partition)
    found = replace(found, unreadable=(*found.unreadable, *odd))
    return FleetSnapshot(found, {partition.number: Versioned(partition, row.etag, row_age(row)) for row, partition in partitions})


def parse_summary(key: str, rows: Iterable[Row]) -> FleetSummary | None:
    """Parse the fleet's own row and its intents. The result has no servers."""
    rows = list(rows)
    fleet = next((row for row in rows if row.rk == FLEET), None)
    if fleet is None:
        return None
    intents, odd = unreadable_rows.parse_intents(rows)
    return FleetSummary(key, parse_fleet(fleet.props), fleet.etag, row_age(fleet), tuple(intents), {}, tuple(odd))


def with_servers(summary: FleetSummary, rows: Iterable[Row]) -> FleetSummary:
    """Add the servers' rows, which were read after the others."""
    found, odd = unreadable_rows.parse_rows(rows, parse_server)
    servers = {server.name: Versioned(server, row.etag, row_age(row)) for row, server in found}
    return replace(summary, servers=servers, unreadable=(*summary.unreadable, *odd))
