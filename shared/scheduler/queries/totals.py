"""Running totals per tenant: counts, lateness and dead events of all finished shards since the tenant began. They only grow.

Each finished shard leaves a copy of its ledger row as news, in the same transaction. Folding adds news to the totals, exactly once:

    read the totals ─► what they name is removed ─► read news ─► totals + news, naming it, on the ETag read ─► remove it

Whoever is late is refused by the ETag; whoever dies in between leaves news that the totals name, and the next one removes it first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import orjson

from ...core.errors import OutcomeUnknown
from ...engine.queries import load_rows
from ...storage.names import LEDGER, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Props, Row, Tables
from ..keys import NEWS
from ..protocol.gate import COUNTS
from . import ledger

PK_TOTALS = "totals"
"""Partition of `TocsinSweeps` with one row per tenant."""
GROUP = 98
"""News folded at a time: their names fit one property, their removal one transaction."""
ROUNDS = 100
"""Groups folded in one call; what is left waits for the next."""


@dataclass(slots=True)
class Total:
    """A tenant's totals."""

    counts: Counter[str] = field(default_factory=Counter)
    """By the names of `COUNTS`."""
    channels: dict[str, ledger.Figures] = field(default_factory=dict)

    def add(self, entry: Props) -> None:
        """Add a finished shard, as its ledger row tells it. A channel keeps its name here once it has one, so that no figure ever falls."""
        self.counts.update({name: int(entry[name]) for name in COUNTS})
        for channel, found in ledger.unpack(str(entry["late"])).items():
            ledger.gather(self.channels, channel, found)

    @property
    def gap(self) -> int:
        """Events accepted by finished shards that have come to no end: 0, or something is wrong."""
        ends = ("delivered", "dead", "lapsed", "cancelled", "moved")
        return self.counts["accepted"] - sum(self.counts[name] for name in ends)


class Totals:
    """Folds news and reads totals. One per process; holds nothing between calls."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def fold(self, tenant: str) -> int:
        """Add the tenant's news to its totals; how many shards that were. Raises `StorageError`; can be called again at any time."""
        folded = 0
        clean = ""
        if not (await self._tables.query(LEDGER, tenant, first=NEWS, limit=1)).rows:
            return 0
        for _ in range(ROUNDS):
            row = await self._tables.get(SWEEPS, PK_TOTALS, tenant)
            if row is not None and row.etag != clean:
                # What the totals hold must be gone before they may forget that they hold it.
                if not await self._removed(tenant, _named(row)):
                    continue
                clean = row.etag
            # Read after the totals, never before.
            news = (await self._tables.query(LEDGER, tenant, first=NEWS, limit=GROUP)).rows
            if not news:
                break
            etag = await self._add(tenant, row, news)
            if etag:
                folded += len(news)
                clean = etag if await self._remove(tenant, [each.rk for each in news]) else ""
        return folded

    async def all(self) -> dict[str, Total]:
        """Every tenant's totals."""
        return {row.rk: total_of(row) for row in await load_rows(self._tables, SWEEPS, PK_TOTALS, "", "~")}

    async def forget(self, tenants: Iterable[str]) -> int:
        """Remove the totals of tenants other than `tenants`; how many those were."""
        gone = sorted({row.rk for row in await load_rows(self._tables, SWEEPS, PK_TOTALS, "", "~")} - set(tenants))
        for tenant in gone:
            await self._tables.write(SWEEPS, PK_TOTALS, (Delete(tenant, ANY),))
        return len(gone)

    async def _add(self, tenant: str, row: Row | None, news: list[Row]) -> str:
        """The ETag of the totals with the news in them; '' when they are not, or nobody knows: the totals name what they hold."""
        total = total_of(row)
        for each in news:
            total.add(each.props)
        props: Props = {name: total.counts[name] for name in COUNTS}
        props["late"] = ledger.pack(total.channels)
        props["folded"] = orjson.dumps([each.rk for each in news]).decode()
        op: Op = Insert(tenant, props) if row is None else Merge(tenant, props, row.etag)
        try:
            answer = await self._tables.write(SWEEPS, PK_TOTALS, (op,))
        except OutcomeUnknown:
            return ""
        return answer.etags[0] if isinstance(answer, Applied) else ""

    async def _removed(self, tenant: str, keys: list[str]) -> bool:
        """Whether none of these news is there; removes those that are, of which the next look makes sure."""
        found = await load_rows(self._tables, LEDGER, tenant, min(keys), max(keys) + "\0", select=("shard",))
        left = {row.rk for row in found}.intersection(keys)
        return not left or await self._remove(tenant, sorted(left))

    async def _remove(self, tenant: str, keys: list[str]) -> bool:
        """Remove news, or find it removed; False when nobody knows."""
        try:
            if not isinstance(await self._tables.write(LEDGER, tenant, tuple(Delete(key, ANY) for key in keys)), Applied):
                # Somebody else is at it: whichever are there still.
                for key in keys:
                    await self._tables.write(LEDGER, tenant, (Delete(key, ANY),))
        except OutcomeUnknown:
            return False
        return True


def _named(row: Row | None) -> list[str]:
    found: list[str] = orjson.loads(str(row.props["folded"])) if row is not None else []
    return found


def total_of(row: Row | None) -> Total:
    """The totals in their row; nothing yet without one."""
    if row is None:
        return Total()
    counts = Counter({name: int(row.props[name]) for name in COUNTS})
    return Total(counts, ledger.unpack(str(row.props["late"])))
