"""Copies of tenants, keys, channels and schedules, so that the account that takes over knows its tenants.

`storage.several` copies each change right after it was made; this module repairs what was missed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import batched

from ...engine.queries import load_rows
from ...storage.names import SCHEDULES, TENANTS
from ...storage.ports import Applied, Delete, Insert, Op, Replace, Row, RowQuery, Tables
from ...storage.several.tables import follow_row
from ...tenants import rows as tenant_rows
from ..keys import INDEX_PARTITIONS

LAST = "~"
"""Sorts after every row key of these tables."""
GROUP = 50


async def copy_tenants(tables: Tables, source: str, copy: str) -> Counter[str]:
    """Copy tenants and schedules from one side to the other; return counts of rows. Raises `StorageError`.

    source, copy: prefixes of tables.
    """
    counts: Counter[str] = Counter()
    before, after = await _partition(tables, source, copy, TENANTS, tenant_rows.PK_TENANTS, counts)
    for tenant in sorted({*before, *after}):
        had, has = await _partition(tables, source, copy, TENANTS, tenant_rows.of_tenant(tenant), counts)
        for digest in sorted(_digests(had) | _digests(has)):
            counts["followed"] += await follow_row((tables, source + TENANTS), (tables, copy + TENANTS), tenant_rows.of_key(digest), digest)
    for partition in INDEX_PARTITIONS:
        await _partition(tables, source, copy, SCHEDULES, partition, counts)
    return counts


def _digests(rows: Mapping[str, Row]) -> set[str]:
    """Return the keys that listing rows name."""
    return {str(row.props["digest"]) for key, row in rows.items() if key.startswith(tenant_rows.PREFIX_KEY) and "digest" in row.props}


async def _partition(
    tables: Tables, source: str, copy: str, table: str, pk: str, counts: Counter[str]
) -> tuple[dict[str, Row], dict[str, Row]]:
    """Copy the rows of a partition that differ; return the rows that the copy had before, and those of the source."""
    # The copy is read first and written on those ETags: a change that comes in between is copied by its own writer.
    had = {row.rk: row for row in await load_rows(tables, RowQuery(copy + table, pk, "", LAST))}
    has = {row.rk: row for row in await load_rows(tables, RowQuery(source + table, pk, "", LAST))}
    ops: list[Op] = [
        Replace(rk, row.props, had[rk].etag) if rk in had else Insert(rk, row.props)
        for rk, row in has.items()
        if rk not in had or had[rk].props != row.props
    ]
    ops += [Delete(rk, row.etag) for rk, row in had.items() if rk not in has]
    for some in batched(ops, GROUP):
        if not isinstance(await tables.write(copy + table, pk, some), Applied):
            for op in some:
                await follow_row((tables, source + table), (tables, copy + table), pk, op.rk)
    counts["followed"] += len(ops)
    return had, has
