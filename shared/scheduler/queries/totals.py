"""Running totals per tenant: counts, lateness and dead events of all finished shards since the tenant began. They only grow.

Each finished shard leaves a copy of its ledger row, called *news*, in the same transaction. Folding adds news to the totals exactly once:

    read the totals ─► remove the news they name ─► read news ─► totals + news, naming it, on the ETag read ─► remove it

The ETag refuses a process that is late. A process that ends in between leaves news that the totals name; the next one removes it first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import orjson

from ...core.errors import OutcomeUnknown
from ...engine.effects import load_rows
from ...engine.row_codec import Format, RowCodec
from ...storage.names import LEDGER, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Props, Row, RowQuery, Tables
from ..keys import NEWS
from ..shard import ledger
from ..shard.gate import COUNTS, Counts

PK_TOTALS = "totals"
"""Partition of `TocsinSweeps` with one row per tenant."""
GROUP = 98
"""News folded at once: their names fit one property, their removal fits one transaction."""
ROUNDS = 100
"""Groups folded in one call; the rest waits for the next call."""


@dataclass(slots=True)
class Total:
    """A tenant's totals."""

    counts: Counter[str] = field(default_factory=Counter)
    """By the names of `COUNTS`."""
    channels: dict[str, ledger.DeliveryFigures] = field(default_factory=dict)

    def add(self, entry: Props) -> None:
        """Add a finished shard's ledger row. A channel that has a name here keeps it, so that no figure ever falls."""
        found = ledger.figures_of(entry)
        self.counts.update(found.counts._asdict())
        for channel, figures in found.channels.items():
            ledger.add_channel(self.channels, channel, figures)

    @property
    def gap(self) -> int:
        """Events accepted by finished shards without a final state. Anything but 0 is a bug."""
        ends = ("delivered", "dead", "lapsed", "cancelled", "moved")
        return self.counts["accepted"] - sum(self.counts[name] for name in ends)


class Totals:
    """Folds news and reads totals. One per process; keeps nothing between calls."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def fold(self, tenant: str) -> int:
        """Add the tenant's news to its totals; return the number of shards. Raises `StorageError`; can be repeated at any time."""
        folded = 0
        clean = ""
        if not (await self._tables.query(RowQuery(LEDGER, tenant, first=NEWS, limit=1))).rows:
            return 0
        for _ in range(ROUNDS):
            row = await self._tables.get(SWEEPS, PK_TOTALS, tenant)
            if row is not None and row.etag != clean:
                # The named news must be gone before the totals may forget that they contain it.
                if not await self._removed(tenant, _named(row)):
                    continue
                clean = row.etag
            # Read after the totals, never before.
            news = (await self._tables.query(RowQuery(LEDGER, tenant, first=NEWS, limit=GROUP))).rows
            if not news:
                break
            etag = await self._add(tenant, row, news)
            if etag:
                folded += len(news)
                clean = etag if await self._remove(tenant, [each.rk for each in news]) else ""
        return folded

    async def all(self) -> dict[str, Total]:
        """Return every tenant's totals."""
        return {row.rk: total_of(row) for row in await load_rows(self._tables, RowQuery(SWEEPS, PK_TOTALS, "", "~"))}

    async def forget(self, tenants: Iterable[str]) -> int:
        """Remove the totals of tenants other than `tenants`; return their number."""
        gone = sorted({row.rk for row in await load_rows(self._tables, RowQuery(SWEEPS, PK_TOTALS, "", "~"))} - set(tenants))
        for tenant in gone:
            await self._tables.write(SWEEPS, PK_TOTALS, (Delete(tenant, ANY),))
        return len(gone)

    async def _add(self, tenant: str, row: Row | None, news: list[Row]) -> str:
        """Write totals that include the news; return their ETag, or '' if this failed or is uncertain. The totals name their news."""
        total = total_of(row)
        for each in news:
            total.add(each.props)
        props = _TOTAL.encode(_TotalRow(Counts(*(total.counts[name] for name in COUNTS)), total.channels, [each.rk for each in news]))
        op: Op = Insert(tenant, props) if row is None else Merge(tenant, props, row.etag)
        try:
            answer = await self._tables.write(SWEEPS, PK_TOTALS, (op,))
        except OutcomeUnknown:
            return ""
        return answer.etags[0] if isinstance(answer, Applied) else ""

    async def _removed(self, tenant: str, keys: list[str]) -> bool:
        """Return True if none of these news exists; otherwise remove those that do, which the next round confirms."""
        found = await load_rows(self._tables, RowQuery(LEDGER, tenant, min(keys), max(keys) + "\0", select=("shard",)))
        left = {row.rk for row in found}.intersection(keys)
        return not left or await self._remove(tenant, sorted(left))

    async def _remove(self, tenant: str, keys: list[str]) -> bool:
        """Remove news; return False if the result is uncertain."""
        try:
            if not isinstance(await self._tables.write(LEDGER, tenant, tuple(Delete(key, ANY) for key in keys)), Applied):
                # Another process removes them too: remove those that still exist.
                for key in keys:
                    await self._tables.write(LEDGER, tenant, (Delete(key, ANY),))
        except OutcomeUnknown:
            return False
        return True


class _TotalRow(NamedTuple):
    """The row of a tenant's totals. folded: keys of the news that were added last."""

    counts: Counts
    channels: dict[str, ledger.DeliveryFigures]
    folded: list[str]


_TOTAL: Final = RowCodec(
    _TotalRow,
    formats={
        "counts": RowCodec(Counts),
        "channels": ledger.CHANNELS,
        "folded": Format(lambda keys: orjson.dumps(keys).decode(), lambda text: orjson.loads(str(text))),
    },
    names={"channels": "late"},
)


def _named(row: Row | None) -> list[str]:
    return _TOTAL.decode(row.props).folded if row is not None else []


def total_of(row: Row | None) -> Total:
    """Return the totals of a row; zeros without one."""
    if row is None:
        return Total()
    found = ledger.figures_of(row.props)
    return Total(Counter(found.counts._asdict()), found.channels)
