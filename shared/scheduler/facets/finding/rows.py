"""Finding rows: which shards may hold events that a list looks for. Lists read them instead of every shard.

    TocsinSweeps, {0..3}-{tenant}            dead:{shard}, retrying:{shard} or held:{shard}      state rows, and held rows (`held`)
    TocsinSweeps, labels:{0..3}-{tenant}     {digest of name and value}:{shard}                  label rows (`labels`)

A transaction covers one partition, so a finding row cannot be written together with its event. It is written before, by whoever is about to
store the event; a crash in between leaves a row that leads to nothing. A reader verifies each event in its shard, so such a row costs one
read. There is one row per shard and name, with the shard in its key: an event cannot be listed twice through it. Events that are delivered
at the first attempt, and have no searchable label, get none.

A finding row is removed only where no event that it leads to can come into the shard any more: the gate is done and no event there is of
that kind, or the shard is gone. The finisher of a shard removes some, retention others, and a reader whatever both have left.

A writer files the index row of a shard before its finding rows, and it stays until the gate is done. The copy of a moved event has its
index row only after its gate, so its label rows come after both, and before the pointer to it: until then lists show the event at its
former place. An `Upsert` changes the row's ETag, so a removal of a label row that was decided before is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import batched
from typing import Any, Final, NamedTuple

from ....engine.effects import Steps, get, load, write
from ....storage.names import EVENTS, SHARDS, SWEEPS
from ....storage.ports import ANY, Applied, Delete, Insert, Op, Row, Upsert, WriteRefused
from ...keys import END_EVENTS, FIRST_EVENT, index_key, index_partition, minute_of, shard_tenant
from ...points import Filing
from ...shard.gate import parse_gate, read_gate
from .labels import has_digest
from .states import in_state

SPREAD: Final = 4
"""Partitions of a tenant's rows of one kind."""


class FindingKind(NamedTuple):
    """A kind of finding rows. prefix: begins the names of its partitions. leads_to: returns True if a row of this name leads to the event.

    renewed: its rows are filed together, and anew each time. The rows of other kinds are filed one by one, where they are missing.
    """

    prefix: str
    leads_to: Callable[[Mapping[str, Any], str], bool]
    renewed: bool

    @property
    def together(self) -> int:
        """The number of rows in one transaction."""
        return 100 if self.renewed else 1


STATE_ROWS: Final = FindingKind("", in_state, renewed=False)
LABEL_ROWS: Final = FindingKind("labels:", has_digest, renewed=True)


def partitions(kind: FindingKind, tenant: str) -> list[str]:
    """Return the partitions of a tenant's rows. No tenant's name has a colon."""
    return [f"{kind.prefix}{number}-{tenant}" for number in range(SPREAD)]


def partition_of(kind: FindingKind, shard: str) -> str:
    """Return the partition of a shard's rows, by the shard's hash: one transaction can file all of them."""
    return f"{kind.prefix}{int(shard[:2], 16) % SPREAD}-{shard_tenant(shard)}"


def key_of(name: str, shard: str) -> str:
    """Return the key of a shard's row. name: of a state, or the digest of a label."""
    return f"{name}:{shard}"


def shard_of(key: str) -> str:
    """Return the shard of a row's key."""
    return key.partition(":")[2]


def file_rows(kind: FindingKind, shard: str, bucket: str, names: Iterable[str]) -> Steps[None]:
    """Make sure that the shard has these rows. bucket: the minute for which it was opened."""
    for some in batched(sorted(names), kind.together):
        while not _is_filed(kind, (yield from write(SWEEPS, partition_of(kind, shard), *_filings(kind, shard, bucket, some)))):
            pass


def _is_filed(kind: FindingKind, answer: object) -> bool:
    """Return True if the rows are there. An insert is refused if its row is there already."""
    return isinstance(answer, Applied) or (not kind.renewed and isinstance(answer, WriteRefused))


def _filings(kind: FindingKind, shard: str, bucket: str, names: Iterable[str]) -> list[Op]:
    filing = Upsert if kind.renewed else Insert
    return [filing(key_of(name, shard), {"bucket": bucket}) for name in names]


def file_missing(kind: FindingKind, filing: Filing, names: Iterable[str]) -> Steps[None]:
    """Make sure that the shard has these rows, of which some are known to be there; the others are known from then on."""
    if missing := [name for name in names if name not in filing.known]:
        yield from file_rows(kind, filing.shard, filing.bucket, missing)
        filing.known.update(dict.fromkeys(missing, ""))


def remove_rows(kind: FindingKind, shard: str, names: Iterable[str]) -> Steps[None]:
    """Remove rows of a shard to which no event that they lead to can come any more."""
    for some in batched(sorted(names), 100):
        left = list(some)
        while left:
            answer = yield from write(SWEEPS, partition_of(kind, shard), *(Delete(key_of(name, shard), ANY) for name in left))
            if isinstance(answer, Applied):
                break
            if isinstance(answer, WriteRefused):
                # This one is gone already.
                del left[answer.at]


def remove_stale(row: Row) -> Steps[bool]:
    """Remove a row that leads to nothing, if nothing can come. Return True if it is not needed any more.

    A shard that is not finished keeps its rows: its owner may be about to store such an event.
    """
    name, _, shard = row.rk.partition(":")
    kind = LABEL_ROWS if row.pk.startswith(LABEL_ROWS.prefix) else STATE_ROWS
    gate = yield from read_gate(shard)
    if gate is None:
        # The index row is read after the gate, and the gate once more: a shard that was filled meanwhile has its gate by now.
        index = yield from get(SHARDS, index_partition(shard), index_key(shard, minute_of(str(row.props["bucket"]))))
        if index is not None:
            return False
        gate = yield from read_gate(shard)
    if gate is not None:
        if parse_gate(gate.props).state != "done":
            return False
        # Read after the gate: from then on no event comes into the shard, and none changes its state.
        events = yield from load(EVENTS, shard, FIRST_EVENT, END_EVENTS)
        if any(kind.leads_to(each.props, name) for each in events):
            return False
    yield from write(SWEEPS, row.pk, Delete(row.rk, row.etag))
    return True
