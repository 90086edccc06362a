"""Counts on index rows: totals need not read the gate of a shard that nobody writes to.

A writer notes them when its shard is full, and an owner whenever its shard rests. They are those of the gate, and belong to one wake-up: a
version that does not know them keeps the property when it files the shard for another one. From the moment at which a shard's message is
sent, its owner may be at work, and only the gate knows.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from ...core.clock import Millis
from ...storage.ports import Props, Row
from ..shard.gate import Counts, Tally, bits_of, bits_text

COUNTS: Final = "counts"
"""Property of an index row: the wake-up that the counts belong to, the seven counts, and the user ends among them, with commas between."""


def counts_props(wake: Millis, tally: Tally) -> Props:
    """Return the property of an index row that is filed for `wake`."""
    return {COUNTS: ",".join(map(str, (wake, *tally.counts, bits_text(tally.user_ends))))}


def counts_of_row(row: Row, now: Millis) -> Tally | None:
    """Return the counts of an index row's shard; None if only the gate knows them."""
    props = row.props
    wake, _, counts = str(props.get(COUNTS, "")).partition(",")
    if not counts or wake != str(props["wake"]) or props["state"] == "sent" or int(wake) <= now:
        return None
    return _parse_counts(counts)


@lru_cache(4096)
def _parse_counts(text: str) -> Tally:
    # Of a tenant with very many shards, most have the same numbers.
    *counts, ends = text.split(",")
    return Tally(Counts(*map(int, counts)), bits_of(ends))
