"""Label rows: which shards may hold events with a label that the tenant has declared searchable. Lists by such a label read them.

    TocsinSweeps, labels:{0..3}-{tenant}     {digest of name and value}:{shard}

They follow the rules of state rows (`state_rows`). A transaction covers one partition, so a label row is written before its event is
stored, by whoever is about to store it; a crash in between leaves a row that leads to nothing. A reader verifies each event in its shard.
There is one row per shard and label, so an event cannot be listed twice through it.

A label row is removed only where no event with the label can come into the shard any more: the gate is done and no event there has the
label, or neither gate nor index row is left. A writer files the index row of a shard before its label rows, and it stays until the gate is
done. The copy of a moved event has its index row only after its gate, so its label rows come after both, and before the pointer to it:
until then lists show the event at its former place. An `Upsert` changes the row's ETag, so a removal decided before it is refused.

Only events that carry the mark (`MARK`) have label rows of their own; the pass of `label_index` and the owners' `repair_labels` file those
of events that were stored before their tenant declared the label.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import batched
from typing import Any, Final

import orjson

from ...core.clock import Millis
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, SHARDS, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Props, Row, Upsert, Value, WriteRefused
from ..keys import END_EVENTS, FIRST_EVENT, digest, index_key, index_partition, minute_of, shard_tenant
from ..shard.gate import parse_gate, read_gate

MARK: Final = "searched"
"""Property of an event: the names of its labels that have label rows, with commas between them. Absent: none."""
SPREAD: Final = 4
"""Partitions of a tenant's label rows."""
_ROWS: Final = 100
"""Rows in one transaction."""


def mark_of(labels: Value, searchable: Collection[str]) -> Props:
    """Return the mark of an event with these stored labels; nothing if its tenant searches by none of them."""
    names = sorted(name for name in orjson.loads(str(labels)) if name in searchable) if searchable else ()
    return {MARK: ",".join(names)} if names else {}


def label_partitions(tenant: str) -> list[str]:
    """Return the partitions of a tenant's label rows. No tenant's name has a colon."""
    return [f"labels:{number}-{tenant}" for number in range(SPREAD)]


def label_partition(shard: str) -> str:
    """Return the partition of a shard's label rows, by the shard's hash: one transaction files all of them."""
    return f"labels:{int(shard[:2], 16) % SPREAD}-{shard_tenant(shard)}"


def label_digest(name: str, value: str) -> str:
    """Return the beginning of the keys of a label's rows. Readers verify the label, so two labels may share it."""
    return digest(name, value)[:10].hex()


def label_shard(key: str) -> str:
    """Return the shard of a label row's key."""
    return key.partition(":")[2]


def digests_of(props: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Return the digests of an event's labels of these names; by default of those in its mark."""
    if "labels" not in props or (names is None and MARK not in props):
        return set()
    wanted = str(props[MARK]).split(",") if names is None else names
    return {label_digest(name, value) for name, value in orjson.loads(str(props["labels"])).items() if name in wanted}


def file_digests(shard: str, bucket: str, digests: Iterable[str]) -> Steps[None]:
    """Make sure that the shard has these label rows. bucket: the minute for which the shard was filed first."""
    for some in batched(sorted(digests), _ROWS):
        while not isinstance((yield from write(SWEEPS, label_partition(shard), *_upserts(shard, bucket, some))), Applied):
            pass


def _upserts(shard: str, bucket: str, digests: Iterable[str]) -> list[Upsert]:
    return [Upsert(f"{each}:{shard}", {"bucket": bucket}) for each in digests]


def file_labels(shard: str, bucket: str, events: Iterable[Mapping[str, Any]], filed: set[str]) -> Steps[None]:
    """Make sure that the marked labels of these events have their rows, before the events are stored.

    filed: digests that are known to be there; updated.
    """
    if missing := marked_digests(events) - filed:
        yield from file_digests(shard, bucket, missing)
        filed.update(missing)


def marked_digests(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the digests of the labels in the marks of some events."""
    return frozenset[str]().union(*(digests_of(props) for props in events if MARK in props))


def repair_labels(shard: str, bucket: str, events: Iterable[Row], searchable: Collection[str], filed: set[str]) -> Steps[None]:
    """File the rows of events that came without a mark: stored before the tenant declared the label, or before the process knew of it."""
    if missing := _unmarked_digests(events, searchable) - filed:
        yield from file_digests(shard, bucket, missing)
        filed.update(missing)


def _unmarked_digests(events: Iterable[Row], searchable: Collection[str]) -> frozenset[str]:
    return frozenset[str]().union(*(digests_of(row.props, searchable) for row in events if MARK not in row.props))


def has_digest(props: Mapping[str, Any], wanted: str) -> bool:
    """Return True if an event has a label with the digest, and lives here: one that has moved on, or was redriven, counts as gone."""
    if "labels" not in props or props["state"] == "moved" or (props["state"] == "dead" and props.get("target")):
        return False
    return any(label_digest(name, value) == wanted for name, value in orjson.loads(str(props["labels"])).items())


def remove_stale_label(row: Row) -> Steps[bool]:
    """Remove a label row that leads to nothing, if nothing can come. Return True if it is not needed any more."""
    shard = label_shard(row.rk)
    gate = yield from read_gate(shard)
    if gate is None:
        # The index row is read after the gate, and the gate once more: a shard that was filled meanwhile has its gate by now.
        index = yield from get(SHARDS, index_partition(shard), index_key(shard, _wake(row)))
        if index is not None:
            return False
        gate = yield from read_gate(shard)
    if gate is not None:
        if parse_gate(gate.props).state != "done":
            return False
        # Read after the gate: from then on no event comes into the shard.
        events = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if any(has_digest(each.props, row.rk.partition(":")[0]) for each in events):
            return False
    yield from write(SWEEPS, row.pk, Delete(row.rk, row.etag))
    return True


def _wake(row: Row) -> Millis:
    return minute_of(str(row.props["bucket"]))


def remove_labels(shard: str, digests: Iterable[str]) -> Steps[None]:
    """Remove label rows of a shard that is being removed."""
    for some in batched(sorted(digests), _ROWS):
        left = list(some)
        while left:
            answer = yield from write(SWEEPS, label_partition(shard), *(Delete(f"{each}:{shard}", ANY) for each in left))
            if isinstance(answer, Applied):
                break
            if isinstance(answer, WriteRefused):
                # This one is gone already.
                del left[answer.at]
