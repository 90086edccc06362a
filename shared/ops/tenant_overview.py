"""A summary of all tenants for the operator, the worst first.

One summary serves all callers of a process. A read of it costs the index of unfinished shards once, the alarms of all fleets once, and two
requests for each tenant; so it is reused for longer the more tenants there are.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from pydantic import Field

from ..core.clock import Clock, Millis
from ..core.errors import Unavailable
from ..delivery import circuit_breaker
from ..delivery.flow.rules import HoldReason, block
from ..engine.effects import load_rows
from ..fleets.overview import count_needy
from ..scheduler.keys import END_EVENTS, FIRST_EVENT, NEWS, minute_text, shard_tenant
from ..scheduler.protocol.moving import REDRIVEN, parse_redriven, redriven_by_channel
from ..scheduler.shard import ledger
from ..storage.names import EVENTS, LEDGER, TENANTS
from ..storage.ports import Row, RowQuery, Tables, Where
from ..tenants.cache import Cached
from ..tenants.rows import PK_TENANTS, PREFIX_CHANNEL, of_tenant
from ..web.fields.params import Paging
from ..web.fields.types import Maybe, Stamp, Strict
from ..web.paging import after, encode_cursor
from ..web.routes import Answer, Call, RouteGroup
from .metrics.service import Metrics

TTL: Final = 10.0
"""Shortest time in seconds for which a summary is reused."""
TTL_EACH: Final = 0.03
"""Seconds of reuse for each tenant: a thousand tenants are read once in 30 seconds, with 70 storage requests a second."""
LONGEST_TTL: Final = 60.0
"""Longest time in seconds for which a summary is reused: at most `MOST_TENANTS` are read."""
IN_FLIGHT: Final = 32
MOST_TENANTS: Final = 2_000
"""Most tenants whose channels and dead events are read: those with open events first, then by name."""
MOST_SHARDS: Final = 200
"""Most unfinished shards with dead events whose redriven events are counted."""
MOST_PAGES: Final = 3
"""Most pages of a tenant's finished shards with dead events, a thousand each."""
MOST_BLOCKED: Final = 5
"""Most blocked channels of a tenant that are named."""

type Urgency = Literal["urgent", "soon", "later", "none"]
_RANKS: Final[tuple[Urgency, ...]] = ("urgent", "soon", "later", "none")


class BlockedOut(Strict):
    """A channel that delivers nothing."""

    channel: str
    state: HoldReason


class TenantSummary(Strict):
    """The summary of a tenant."""

    tenant: str
    urgency: Urgency = Field(
        description="`urgent`: events are overdue or a fleet is in trouble; `soon`: dead events or a blocked channel; `later`: a fleet"
        " whose needs can wait."
    )
    stuck: int = Field(description="Overdue events whose shard was requested several times without success.")
    overdue: int = Field(description="Open events past their due time whose shard has no owner.")
    dead: int = Field(description="Dead events of the last day that were not redriven.")
    blocked_channels: int = Field(description="Channels that are paused or whose circuit breaker is not closed.")
    blocked: list[BlockedOut] = Field(description=f"The first {MOST_BLOCKED} of them.")
    fleets: int = Field(description="Fleets that need a person.")
    urgent_fleets: int = Field(description="Those of them that need one at once.")
    retrying: int
    open: int


class TenantOverviewOut(Strict):
    """All tenants, those that need a person first, the worst of them first. Only `items` is paged."""

    items: list[TenantSummary]
    next: str | None
    tenants: int
    quiet: int = Field(description="Tenants that need nobody.")
    read_at: Stamp = Field(description="The time at which the figures were read.")
    incomplete: Maybe[bool] = Field(None, description="True if not everything was counted: some figures are not exact. Otherwise left out.")


class TenantReading(NamedTuple):
    """One tenant's rows. blocked: its blocked channels by name. dead: dead events of finished shards; partial: True if there are more."""

    blocked: Mapping[str, HoldReason] = {}
    dead: int = 0
    partial: bool = False


@dataclass(frozen=True, slots=True)
class TenantsAtOnce:
    """All tenants at one instant, the worst first."""

    items: list[TenantSummary]
    read_at: Millis
    incomplete: bool


def urgency_of(*, late: int, urgent_fleets: int, dead: int, blocked: int, fleets: int) -> Urgency:
    """Return how soon a tenant with these figures needs a person."""
    if late or urgent_fleets:
        return "urgent"
    return "soon" if dead or blocked else "later" if fleets else "none"


def worst_first(tenants: Iterable[TenantSummary]) -> list[TenantSummary]:
    """Return the tenants by urgency, then by what has gone wrong: late and dead events, blocked channels, fleets; then by name."""

    def key(each: TenantSummary) -> tuple[int | str, ...]:
        figures = (each.stuck, each.overdue, each.urgent_fleets, each.dead, each.blocked_channels, each.fleets, each.retrying)
        return (_RANKS.index(each.urgency), *(-figure for figure in figures), each.tenant)

    return sorted(tenants, key=key)


class TenantOverview:
    """Reads the summary of all tenants, and reuses it for a time. One per process."""

    def __init__(self, tables: Tables, fleet_tables: Tables, clock: Clock, metrics: Metrics) -> None:
        """fleet_tables: the tables with the fleets."""
        self._tables, self._fleet_tables, self._clock, self._metrics = tables, fleet_tables, clock, metrics
        self._in_flight = asyncio.Semaphore(IN_FLIGHT)
        self._cache: Cached[str, TenantsAtOnce] = Cached(self._read, clock, ttl=TTL, missing_ttl=TTL, size=1, still=self._still)

    async def page(self, limit: int, start: int) -> TenantOverviewOut:
        """Return a page of the tenants after the first `start`. Raises `StorageError`."""
        found = await self._cache.get("all")
        assert found is not None
        more = encode_cursor(_LIST, start + limit) if len(found.items) > start + limit else None
        quiet = sum(each.urgency == "none" for each in found.items)
        return TenantOverviewOut(
            items=found.items[start : start + limit],
            next=more,
            tenants=len(found.items),
            quiet=quiet,
            read_at=found.read_at,
            incomplete=found.incomplete or None,
        )

    async def _still(self, found: TenantsAtOnce, read_at: float) -> float | None:
        """Return the time until which a summary of many tenants is reused."""
        until = read_at + min(LONGEST_TTL, max(TTL, TTL_EACH * len(found.items)))
        return until if until > self._clock.monotonic() else None

    async def _read(self, key: str) -> TenantsAtOnce:
        homes = await load_rows(self._tables, RowQuery(TENANTS, PK_TENANTS, "", "~", select=("deleting", "uid")))
        uids = {row.rk: str(row.props["uid"]) for row in homes if not row.props.get("deleting")}
        seen, (needy, urgent) = await asyncio.gather(self._metrics.open_of(uids), count_needy(self._fleet_tables))
        redriven = await self._redriven(seen.with_dead[:MOST_SHARDS])
        busy_first = sorted(uids, key=lambda name: (not seen.tenants[name].unfinished.total(), name))
        shown = busy_first[:MOST_TENANTS]
        # Read last: a shard that has ended since its index row was read counts there.
        unfinished = set(seen.with_dead)
        read = await asyncio.gather(*(self._rows_of(name, uids[name], seen.now, unfinished) for name in shown))
        of = dict(zip(shown, read, strict=True))
        items = []
        for name in uids:
            figures, rows = seen.tenants[name], of.get(name, TenantReading())
            dead = max(0, figures.unfinished["dead"] - redriven[name]) + rows.dead
            late, blocked = figures.overdue, len(rows.blocked)
            items.append(
                TenantSummary(
                    tenant=name,
                    urgency=urgency_of(late=late, urgent_fleets=urgent[name], dead=dead, blocked=blocked, fleets=needy[name]),
                    stuck=figures.stuck,
                    overdue=late,
                    dead=dead,
                    blocked_channels=blocked,
                    blocked=[BlockedOut(channel=each, state=rows.blocked[each]) for each in sorted(rows.blocked)[:MOST_BLOCKED]],
                    fleets=needy[name],
                    urgent_fleets=urgent[name],
                    retrying=figures.unfinished["retrying"],
                    open=figures.unfinished["scheduled"] + figures.unfinished["retrying"],
                )
            )
        beyond = len(uids) > MOST_TENANTS or len(seen.with_dead) > MOST_SHARDS
        incomplete = bool(seen.unread or seen.partial or beyond or any(each.partial for each in read))
        return TenantsAtOnce(worst_first(items), seen.now, incomplete)

    async def _redriven(self, shards: Iterable[str]) -> Counter[str]:
        """Return the redriven events of unfinished shards by tenant."""

        async def one(shard: str) -> tuple[str, int]:
            async with self._in_flight:
                try:
                    rows = await load_rows(
                        self._tables, RowQuery(EVENTS, shard, FIRST_EVENT, END_EVENTS, select=("state", "target", "channel"))
                    )
                except Unavailable:
                    # The account of a mirrored shard is away.
                    rows = []
            return shard_tenant(shard), redriven_by_channel(rows).total()

        found: Counter[str] = Counter()
        for tenant, count in await asyncio.gather(*map(one, shards)):
            found[tenant] += count
        return found

    async def _rows_of(self, tenant: str, uid: str, now: Millis, unfinished: set[str]) -> TenantReading:
        """Read a tenant's channels and its finished shards of the last day that have dead events. unfinished: shards that are counted
        already."""
        async with self._in_flight:
            end = PREFIX_CHANNEL[:-1] + ";"
            rows = await load_rows(
                self._tables, RowQuery(TENANTS, of_tenant(tenant), PREFIX_CHANNEL, end, select=("uid", "paused", "breaker"))
            )
            ended, partial = await self._with_dead(tenant, now)
        dead = sum(int(row.props["dead"]) - parse_redriven(row.props).total() for row in ended if row.props["shard"] not in unfinished)
        blocks = ((row, block(bool(row.props.get("paused")), circuit_breaker.parse(str(row.props.get("breaker", ""))))) for row in rows)
        blocked = {row.rk.removeprefix(PREFIX_CHANNEL): found.reason for row, found in blocks if found and row.props.get("uid") == uid}
        return TenantReading(blocked, max(0, dead), partial)

    async def _with_dead(self, tenant: str, now: Millis) -> tuple[list[Row], bool]:
        """Return the ledger rows of the last day with dead events, and True if there are more."""
        where, select = (Where("dead", "gt", 0),), ("shard", "dead", REDRIVEN)
        rows: list[Row] = []
        cursor: str | None = None
        for _ in range(MOST_PAGES):
            first = minute_text(now - ledger.DAY)
            page = await self._tables.query(RowQuery(LEDGER, tenant, first=first, end=NEWS, where=where, select=select, cursor=cursor))
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows, False
        return rows, True


_LIST: Final = "tenant-overview"

tenant_overview = RouteGroup[TenantOverview]("tenants", scope="admin")


@tenant_overview.get("v1/tenant-overview", answers={200: TenantOverviewOut})
async def tenants_overview(call: Call[TenantOverview, None, Paging]) -> Answer:
    """List all tenants, those that need a person first.

    The figures are at most 10 s old, with a thousand tenants 30 s. `incomplete` says that some could not be counted.
    """
    return Answer(200, await call.service.page(call.query.limit, after(call, _LIST, int, 0)))
