"""Copies of what is neither event nor id: tenants, keys, channels and schedules, so that the side that takes over knows its tenants.

Right after each change `storage.accounts.PairTables` copies it; this makes up for what was missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import batched

from ..scheduler.keys import INDEX_PARTITIONS
from ..scheduler.protocol.effects import load
from ..storage.names import SCHEDULES, TENANTS
from ..storage.ports import ANY, Delete, Op, Props, Row, Tables, Upsert
from ..tenants import rows as tenant_rows

LAST = "~"
"""Sorts after every row key of these tables."""
GROUP = 50


async def follow(tables: Tables, source: str, copy: str) -> Counter[str]:
    """Make the tenants and schedules of one side those of the other; counts of rows by what was done. Raises `StorageError`.

    source, copy: prefixes of tables.
    """
    counts: Counter[str] = Counter()
    before, after = await _partition(tables, source, copy, TENANTS, tenant_rows.PK_TENANTS, counts)
    for tenant in sorted({*before, *after}):
        had, has = await _partition(tables, source, copy, TENANTS, tenant_rows.of_tenant(tenant), counts)
        for digest in sorted(_digests(had) | _digests(has)):
            await _row(tables, source, copy, TENANTS, tenant_rows.of_key(digest), digest, counts)
    for partition in INDEX_PARTITIONS:
        await _partition(tables, source, copy, SCHEDULES, partition, counts)
    return counts


def _digests(rows: Mapping[str, Props]) -> set[str]:
    """The keys that listing rows tell of."""
    return {str(props["digest"]) for key, props in rows.items() if key.startswith(tenant_rows.PREFIX_KEY) and "digest" in props}


async def _partition(
    tables: Tables, source: str, copy: str, table: str, pk: str, counts: Counter[str]
) -> tuple[dict[str, Props], dict[str, Props]]:
    """Copy what differs in a partition; its rows in the copy before, and in the source."""
    # The copy first: a change that comes in between is copied by whoever makes it.
    had = {row.rk: row.props for row in await load(tables, copy + table, pk, "", LAST)}
    has = {row.rk: row.props for row in await load(tables, source + table, pk, "", LAST)}
    ops: list[Op] = [Upsert(rk, props) for rk, props in has.items() if had.get(rk) != props]
    ops += [Delete(rk, ANY) for rk in had if rk not in has]
    for some in batched(ops, GROUP, strict=False):
        await tables.write(copy + table, pk, some)
    counts["followed"] += len(ops)
    return had, has


async def _row(tables: Tables, source: str, copy: str, table: str, pk: str, rk: str, counts: Counter[str]) -> None:
    had: Row | None = await tables.get(copy + table, pk, rk)
    has: Row | None = await tables.get(source + table, pk, rk)
    if (had.props if had else None) == (has.props if has else None):
        return
    await tables.write(copy + table, pk, (Upsert(rk, has.props) if has is not None else Delete(rk, ANY),))
    counts["followed"] += 1
