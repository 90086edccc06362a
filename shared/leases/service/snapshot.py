"""What the app sees of a fleet at one look: its rows, with their ages in the storage service's own time.

A glance leaves the partition rows out, which are most of a fleet: while all is well nobody needs them.
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
    Fleet,
    Intent,
    Intents,
    Partition,
    Server,
    in_force,
    parse_fleet,
    parse_partition,
    parse_server,
)


class Versioned[T](NamedTuple):
    """A row's meaning, its ETag, and the seconds since it was last written, as the storage service counts them."""

    value: T
    etag: str
    age: float


def row_age(row: Row) -> float:
    """Seconds from the row's last write to the answer that showed it, both in the storage service's time. Whole seconds may be missing,
    never too many: the answer's time is cut to a second."""
    return max(0, row.read_at - row.timestamp) / 1000


@dataclass(frozen=True, slots=True)
class FleetSummary:
    """A fleet without its partitions. etag, age: of its own row, seconds. intents: expired ones too. unreadable: keys of the rows that
    cannot be read, in a survey the partitions' too (`reading`)."""

    key: str
    fleet: Fleet
    etag: str
    age: float
    intents: tuple[Intent, ...]
    servers: dict[str, Versioned[Server]]
    unreadable: tuple[str, ...] = ()

    def in_force(self, now: Millis) -> Intents:
        """The intents that have not expired at wall time `now`."""
        return in_force(self.intents, now)

    @property
    def living(self) -> list[Server]:
        """Servers that are not dead, by name."""
        return [each.value for _, each in sorted(self.servers.items()) if each.value.state != "dead"]


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """A glance, and the partitions, which were read before the servers (`rules.ended`)."""

    summary: FleetSummary
    partitions: dict[int, Versioned[Partition]]

    def facts(self, now: Millis) -> PlannerInput:
        """What the planner needs, with the intents in force at wall time `now`."""
        partitions = {number: each.value for number, each in self.partitions.items()}
        servers = {name: each.value for name, each in self.summary.servers.items()}
        return PlannerInput(self.summary.fleet, self.summary.in_force(now), partitions, servers, unreadable=self.summary.unreadable)

    @property
    def kept(self) -> set[int]:
        """Partitions that nobody can tell the state of: they stay as they are."""
        return unreadable_rows.kept(self.summary.unreadable, ((number, each.value.owner) for number, each in self.partitions.items()))


def read_summary(key: str) -> Steps[FleetSummary | None]:
    """Two reads of a page each, as a rule. None when there is no such fleet."""
    rows = yield from load(FLEETS, key, FLEET, INTENTS[1])
    servers = yield from load(FLEETS, key, *SERVERS)
    return _glance(key, rows, servers)


def read_snapshot(key: str) -> Steps[FleetSnapshot | None]:
    """Everything: a page for each thousand partitions more. None when there is no such fleet."""
    rows = yield from load(FLEETS, key, FLEET, PARTITIONS[1])
    servers = yield from load(FLEETS, key, *SERVERS)
    found = _glance(key, rows, servers)
    if found is None:
        return None
    partitions, odd = unreadable_rows.sift((row for row in rows if PARTITIONS[0] <= row.rk < PARTITIONS[1]), parse_partition)
    found = replace(found, unreadable=(*found.unreadable, *odd))
    return FleetSnapshot(found, {partition.number: Versioned(partition, row.etag, row_age(row)) for row, partition in partitions})


def parse_summary(key: str, rows: Iterable[Row]) -> FleetSummary | None:
    """The fleet's own row and its intents, of `rows`; without servers."""
    return _glance(key, rows, ())


def _glance(key: str, rows: Iterable[Row], servers: Iterable[Row]) -> FleetSummary | None:
    rows = list(rows)
    fleet = next((row for row in rows if row.rk == FLEET), None)
    if fleet is None:
        return None
    intents, odd = unreadable_rows.words(rows)
    found, odder = unreadable_rows.sift(servers, parse_server)
    known = {server.name: Versioned(server, row.etag, row_age(row)) for row, server in found}
    return FleetSummary(key, parse_fleet(fleet.props), fleet.etag, row_age(fleet), tuple(intents), known, (*odd, *odder))
