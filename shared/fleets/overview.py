"""All fleets of a tenant at a glance: those that need a person, the most urgent first, and the number of the others.

It reads what the inspections of the last minute have stored: three requests for a thousand fleets, and no row of a fleet itself.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field

from ..core.clock import Millis
from ..core.readable import count_of
from ..engine.effects import load_rows
from ..leases.fleet_alarms import Reason, Urgency
from ..leases.rows import INDEX as FLEET_INDEX
from ..maintenance.rows import INDEX as MAINTENANCE_INDEX
from ..maintenance.service.alarms import ALARMS as MAINTENANCE_ALARMS
from ..maintenance.service.alarms import kind_of
from ..maintenance.service.figures import MaintenanceCare, parse_care
from ..storage.names import FLEETS, MAINTENANCE, SWEEPS
from ..storage.ports import Row, RowQuery, Tables
from ..web.fields.params import Flag, Paging
from ..web.fields.types import Maybe, Stamp, Strict
from ..web.paging import after, encode_cursor
from ..web.routes import Answer, Call, RouteGroup
from .watch.alarms import ALARMS as LEASE_ALARMS
from .watch.rules import WatchState
from .watch.state import WATCHED, parse_watch_state

type Source = Literal["leases", "maintenance", "agents", "approvals"]

_RANKS: Final[tuple[Urgency, ...]] = ("urgent", "soon", "later")

REASONS: Final[Mapping[Source, Mapping[str, Reason]]] = {
    "leases": {kind: each.reason for kind, each in LEASE_ALARMS.items()},
    "maintenance": {kind: each.reason for kind, each in MAINTENANCE_ALARMS.items()},
    "agents": {"silent": Reason("soon", "silent agent", "silent agents")},
    "approvals": {"waiting": Reason("soon", "approval waiting", "approvals waiting")},
}
"""The reasons why a fleet may need a person: its alarms, silent agents, and approvals that wait."""


class NeedOut(Strict):
    """One reason why a fleet needs a person."""

    source: Source
    what: str = Field(description="An alarm of leases or of maintenance; `silent` for agents, `waiting` for approvals.")
    count: int = Field(description="Partitions, servers, events, agents: the subjects of the reason.")
    text: str = Field(description="The reason for people, with its count.", examples=["2 partitions without an owner"])
    subjects: list[str] = Field(description="The first subjects, where they are known.")
    since: Stamp | None = Field(description="The time at which an alarm of leases was found first; otherwise null.")


class FleetNeeds(Strict):
    """A fleet that needs a person."""

    fleet: str
    urgency: Urgency
    needs: list[NeedOut]
    agents: int = Field(description="Nodes with an agent.")
    open_events: int = Field(description="Open Scheduled Events.")


class FleetOverview(Strict):
    """The fleets of a tenant that need a person, the most urgent first, and the number of all. Only `items` is paged."""

    items: list[FleetNeeds]
    next: str | None
    fleets: int
    quiet: int = Field(description="Fleets that need nobody.")
    in_maintenance: int = Field(description="Fleets with open Scheduled Events.")
    names: Maybe[list[str]] = Field(None, description="All fleets by name, if the request asks for them.")


class OverviewQuery(Paging):
    """The options of the overview."""

    names: Flag = Field(False, description="The answer lists the names of all fleets.")


@dataclass(frozen=True, slots=True)
class Need:
    """See `NeedOut`."""

    source: Source
    what: str
    count: int
    subjects: tuple[str, ...] = ()
    since: Millis = 0

    @property
    def rank(self) -> int:
        """0 for urgent, 1 for soon, 2 for later."""
        reason = REASONS[self.source].get(kind_of(self.what))
        return _RANKS.index(reason.urgency if reason else "soon")

    @property
    def text(self) -> str:
        """The reason with its count, such as "1 partition without an owner", or its name if this release does not know it."""
        reason = REASONS[self.source].get(kind_of(self.what))
        if reason is None:
            return f"{self.what.replace('-', ' ')} ({self.count:,})"
        return count_of(self.count, reason.one, reason.many) if reason.many else reason.one


def needs_of(watched: WatchState, care: MaintenanceCare) -> list[Need]:
    """Return why a fleet needs a person, the most urgent reason first; nothing for a quiet fleet."""
    found = [Need("leases", kind, each.count, each.subjects, each.since) for kind, each in watched.alarms.items() if not each.cleared]
    found += [Need("maintenance", kind, count) for kind, count in care.alarms.items() if count]
    if care.waiting:
        found.append(Need("approvals", "waiting", care.waiting))
    if care.silent:
        found.append(Need("agents", "silent", care.silent, care.silent_nodes))
    return sorted(found, key=lambda need: (need.rank, need.source, need.what))


def ranked(fleets: Iterable[tuple[str, list[Need]]]) -> list[tuple[str, list[Need]]]:
    """Return the fleets that need a person: the most urgent first, then those with the most reasons, then by name."""
    return sorted(((name, needs) for name, needs in fleets if needs), key=lambda each: (each[1][0].rank, -len(each[1]), each[0]))


class Overview:
    """Reads the overview. One per process, without state."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def page(self, tenant: str, limit: int, start: int, *, names: bool = False) -> FleetOverview:
        """Return a page of the fleets that need a person, after the first `start`. names: list all fleets too. Raises `StorageError`."""
        found, cares = await _read_all(self._tables, f"{tenant}:", f"{tenant};")
        fleets = ranked(found.items())
        items = [
            FleetNeeds(
                fleet=key.partition(":")[2],
                urgency=_RANKS[needs[0].rank],
                needs=[
                    NeedOut(
                        source=each.source,
                        what=each.what,
                        count=each.count,
                        text=each.text,
                        subjects=list(each.subjects),
                        since=each.since or None,
                    )
                    for each in needs
                ],
                agents=cares[key].agents,
                open_events=cares[key].open,
            )
            for key, needs in fleets[start : start + limit]
        ]
        more = encode_cursor(_LIST, start + limit) if len(fleets) > start + limit else None
        busy = sum(1 for each in cares.values() if each.open)
        listed = [key.partition(":")[2] for key in found] if names else None
        quiet = len(found) - len(fleets)
        return FleetOverview(items=items, next=more, fleets=len(found), quiet=quiet, in_maintenance=busy, names=listed)


async def count_needy(tables: Tables) -> tuple[Counter[str], Counter[str]]:
    """Return the fleets that need a person by tenant, and those of them that need one at once. Raises `StorageError`."""
    found, _ = await _read_all(tables, "", "~")
    needy, urgent = Counter[str](), Counter[str]()
    for key, needs in ranked(found.items()):
        tenant = key.partition(":")[0]
        needy[tenant] += 1
        urgent[tenant] += needs[0].rank == 0
    return needy, urgent


async def _read_all(tables: Tables, first: str, end: str) -> tuple[dict[str, list[Need]], dict[str, MaintenanceCare]]:
    """Return what the fleets with `first` <= key < `end` need, and their maintenance."""
    places = ((FLEETS, FLEET_INDEX), (SWEEPS, WATCHED), (MAINTENANCE, MAINTENANCE_INDEX))
    index, watched, care = (
        {row.rk: row for row in rows} for rows in await asyncio.gather(*(load_rows(tables, RowQuery(*at, first, end)) for at in places))
    )
    cares = {key: parse_care(care.get(key)) for key in index}
    return {key: needs_of(_state(watched.get(key)), cares[key]) for key in index}, cares


def _state(row: Row | None) -> WatchState:
    return parse_watch_state(row).value


_LIST: Final = "overview"

overview = RouteGroup[Overview]("fleets", scope="fleets")


@overview.get("v1/fleet-overview", answers={200: FleetOverview})
async def fleet_overview(call: Call[Overview, None, OverviewQuery]) -> Answer:
    """List the fleets that need a person, the most urgent first, and count the others.

    It shows what the sweeps of the last minute have found, without a read of each fleet.
    """
    return Answer(200, await call.service.page(call.tenant, call.query.limit, after(call, _LIST, int, 0), names=call.query.names))
