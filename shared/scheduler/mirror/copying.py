"""Copies of tenants, keys, channels and schedules, so that the account that takes over knows its tenants.

`storage.several` copies each change right after it was made; this module repairs what was missed.

An interrupted move on the first account may have made a place without filing it, so that no index row leads to it. The next move of the
event would use such a place, and find an event with an old time and an old payload. So the place is shut on both sides before the row that
was moving is overwritten: later moves of the event use the next place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from itertools import batched

from ...engine.effects import Steps, get, load, load_rows, write
from ...storage.names import EVENTS, SCHEDULES, TENANTS
from ...storage.ports import Applied, Delete, Insert, Merge, Op, Replace, Row, RowQuery, Tables
from ...storage.several.tables import follow_row
from ...tenants import rows as tenant_rows
from ..keys import END_EVENTS, FIRST_EVENT, GATE, INDEX_PARTITIONS
from ..protocol.mirroring import FIRST, SECOND
from ..protocol.moving import target_shard
from ..shard.gate import NOTHING, parse_gate

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


GOING = ("moving", "moved")


def shut_orphans(shard: str) -> Steps[None]:
    """Shut the places of moves out of `shard` that only the first account knows."""
    rows = yield from load(FIRST + EVENTS, shard, FIRST_EVENT, END_EVENTS)
    for row in rows:
        if row.props["state"] == "moving":
            known = yield from get(SECOND + EVENTS, shard, row.rk)
            if known is None or known.props["state"] not in GOING:
                yield from shut(target_shard(shard, f"move:{row.rk}", 0))


def shut(place: str) -> Steps[None]:
    """Empty a place and make it done, in the second account first. Leave it if the second account has it, because it is copied then."""
    while True:
        gate = yield from get(FIRST + EVENTS, place, GATE)
        if gate is None or gate.props["state"] != "open":
            return
        done = replace(parse_gate(gate.props), state="done", holder="", bytes=0, counts=NOTHING)
        yield from write(SECOND + EVENTS, place, Insert(GATE, done.props()))
        there = yield from get(SECOND + EVENTS, place, GATE)
        if there is None:
            continue
        if there.props["state"] != "done" or int(there.props["accepted"]):
            return
        rows = yield from load(FIRST + EVENTS, place, FIRST_EVENT, END_EVENTS)
        answer = yield from write(FIRST + EVENTS, place, Merge(GATE, done.props(), gate.etag), *(Delete(row.rk, row.etag) for row in rows))
        if isinstance(answer, Applied):
            return
