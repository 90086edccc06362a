"""State rows: which shards may hold dead or retrying events. Lists of those read them instead of every shard.

    TocsinSweeps, {0..3}-{tenant}     dead:{shard} or retrying:{shard}

A transaction covers one partition, so a state row cannot be written together with its event. It is written before, by whoever is about to
store the state; a crash in between leaves a row that leads to nothing. A reader verifies each event in its shard, so such a row costs one
read. A state row is removed only where no event can come into the state any more: the gate is done, and no event is in the state. The
finisher does so for `retrying`, retention for `dead`, and a reader for whatever both have left.

There is one row per shard and state, with the shard in its key: an event cannot be listed twice through it. Events that are delivered at
the first attempt get none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, Literal, get_args

from ...engine.effects import Steps, load, write
from ...storage.names import EVENTS, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Row, WriteRefused
from ..keys import END_EVENTS, FIRST_EVENT, shard_tenant
from ..rules import WAITING
from ..shard.gate import Counts, parse_gate, read_gate

type ListedState = Literal["dead", "retrying"]
LISTED: Final[tuple[ListedState, ...]] = get_args(ListedState.__value__)
type RowKind = ListedState | Literal["held"]
"""The kinds of state rows. `held_rows` has those of held events, which keep their state."""
ROW_KINDS: Final[tuple[RowKind, ...]] = (*LISTED, "held")
SPREAD: Final = 4
"""Partitions of a tenant's state rows."""


def state_partitions(tenant: str) -> list[str]:
    """Return the partitions of a tenant's state rows."""
    return [f"{number}-{tenant}" for number in range(SPREAD)]


def state_partition(shard: str) -> str:
    """Return the partition of a shard's state rows, by the shard's hash."""
    return f"{int(shard[:2], 16) % SPREAD}-{shard_tenant(shard)}"


def state_key(state: RowKind, shard: str) -> str:
    """Return the key of a shard's row of a state, or of its held events."""
    return f"{state}:{shard}"


def state_shard(key: str) -> str:
    """Return the shard of a state row's key."""
    return key.partition(":")[2]


def file_states(shard: str, states: Iterable[ListedState], bucket: str) -> Steps[None]:
    """Make sure that the shard has these state rows. bucket: the minute for which the shard was opened."""
    for state in states:
        row = Insert(state_key(state, shard), {"bucket": bucket})
        while not isinstance((yield from write(SWEEPS, state_partition(shard), row)), Applied | WriteRefused):
            pass


def file_counted(shard: str, counts: Counts, bucket: str, filed: set[ListedState]) -> Steps[None]:
    """Make sure that the states in `counts` have their rows, before they are stored. filed: those that are known to be there; updated."""
    missing: list[ListedState] = [state for state, count in _of(counts) if count and state not in filed]
    yield from file_states(shard, missing, bucket)
    filed.update(missing)


def _of(counts: Counts) -> tuple[tuple[ListedState, int], ...]:
    return ("dead", counts.dead), ("retrying", counts.retrying)


def remove_state(shard: str, state: RowKind) -> Steps[None]:
    """Remove the row of a state in which no event of the shard is, or can come, any more."""
    while not isinstance((yield from write(SWEEPS, state_partition(shard), Delete(state_key(state, shard), ANY))), Applied | WriteRefused):
        pass


def remove_stale(state: RowKind, row: Row) -> Steps[bool]:
    """Remove a state row whose shard has gone, or is finished without an event in the state. Return True if it is not needed any more.

    A shard that is not finished keeps its row: its owner may be about to store the state. A dead event that was redriven counts as gone.
    """
    shard = state_shard(row.rk)
    gate = yield from read_gate(shard)
    if gate is not None:
        if parse_gate(gate.props).state != "done":
            return False
        # Read after the gate: from then on no event changes its state.
        rows = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if any(in_state(each.props, state) for each in rows):
            return False
    yield from write(SWEEPS, row.pk, Delete(row.rk, row.etag))
    return True


def in_state(props: Mapping[str, Any], state: RowKind) -> bool:
    """Return True if an event is listed under the state: a dead one that lives on at another place is not. Only its channel and the time
    say whether an unclaimed event is held."""
    if state == "held":
        return props["state"] in WAITING
    return bool(props["state"] == state and not props.get("target"))


def has_retried(rows: Iterable[Row]) -> bool:
    """Return True if an event of these rows waited for a retry at some time, so that the shard may have that state row."""
    return any("next" in row.props for row in rows)
