"""Steps that follow a redrive: the pointers on the dead rows, and the number of redriven events on the ledger row of their shard.

The counts of gates and ledger rows stay as they were when the events died. The ledger row has beside them, by channel, how many of its dead
events live on elsewhere; `GET /stats` and `/history` subtract them. The number is computed from the rows, so any process may repeat it. The
redriver notes it, and so does whoever closes the shard, after the row is inserted; and the owner of the copies does so before it delivers
one, which completes a redrive that ended half-way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, LEDGER
from ...storage.ports import Applied, Merge, Row
from ..keys import END_EVENTS, FIRST_EVENT, Address, parse_address, shard_tenant
from ..points import Facets
from ..rules import FINAL
from .moving import SOURCE, point

REDRIVEN = "redriven"
"""Property of a ledger row: the redriven events of each channel, as JSON. Absent: none."""


def is_redriven(props: Mapping[str, Any]) -> bool:
    """Return True for the row of a dead event that lives on at another place."""
    return props["state"] == "dead" and bool(props.get("target"))


def redriven_by_channel(rows: Iterable[Row]) -> Counter[str]:
    """Return the number of redriven events of each channel."""
    return Counter(str(row.props.get("channel", "")) for row in rows if is_redriven(row.props))


def parse_redriven(props: Mapping[str, Any]) -> Counter[str]:
    """Return the redriven events of each channel as a ledger row notes them."""
    return Counter(orjson.loads(str(props.get(REDRIVEN) or "{}")))


def note_redriven(shard: str, ledger_key: str) -> Steps[bool]:
    """Write the number of redriven events to the shard's ledger row; return False if there is none yet: then its inserter does this."""
    while True:
        entry = yield from get(LEDGER, shard_tenant(shard), ledger_key)
        if entry is None:
            return False
        # Read after the ledger row: a pointer that is missing here is noted by the process that writes it.
        rows = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        found = redriven_by_channel(rows)
        if found == parse_redriven(entry.props):
            return True
        text = orjson.dumps(dict(found), option=orjson.OPT_SORT_KEYS).decode()
        if isinstance((yield from write(LEDGER, shard_tenant(shard), Merge(ledger_key, {REDRIVEN: text}, entry.etag))), Applied):
            return True


def point_sources(shard: str, rows: Mapping[str, Row], facets: Facets) -> Steps[set[str]]:
    """Complete the redrives that made these copies: give each dead row its pointer. Return the shards that the copies came from.

    rows: the rows of `shard`. Copies that were claimed before are left out: their first owner has done this. A copy that was cancelled or
    moved before any owner came gets no pointer here, but its source shard is returned: its redriver may have ended before noting the event.
    """
    copies: dict[str, dict[str, Row]] = {}
    for row in rows.values():
        if SOURCE in row.props and not row.props.get("tries"):
            source = parse_address(str(row.props[SOURCE]))
            waiting = copies.setdefault(source.shard, {})
            if row.props["state"] not in FINAL:
                waiting[source.row] = row
    for source_shard, wanted in copies.items():
        if not wanted:
            continue
        dead = yield from load(EVENTS, source_shard, FIRST_EVENT, END_EVENTS)
        for row in dead:
            if row.rk in wanted and row.props["state"] == "dead" and not row.props.get("target"):
                yield from point(source_shard, row, Address(shard, wanted[row.rk].rk), facets)
    return set(copies)
