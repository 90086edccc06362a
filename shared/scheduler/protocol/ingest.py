"""Ingest: opening a shard, filling it, and ids chosen by clients.

The order matters: first the index row, so that a sweep finds everything that is stored; then for client ids the id row, so that an id names
one place; then the events together with the gate.

Index rows have counts, so that totals need not read the gate of a shard that nobody writes to. A writer notes them when its shard is full,
and an owner whenever its shard rests. They are those of the gate, and belong to one wake-up: a version that does not know them keeps the
property when it files the shard for another one. From the moment at which a shard's message is sent, its owner may be at work, and only the
gate knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, IDS, SHARDS
from ...storage.ports import Applied, Insert, Merge, Op, Props, Row, WriteRefused
from ..keys import (
    END_EVENTS,
    FIRST_EVENT,
    GATE,
    Address,
    id_partition,
    id_row_key,
    index_key,
    index_partition,
    minute_text,
    parse_address,
    shard_tenant,
)
from ..points import Facets, Filing, Known
from ..rules import tally
from ..shard.gate import Counts, Gate, HeldGate, Tally, bits_of, bits_text, fence, merge_gate, seal

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


GROUP_BYTES = 3 * 1024 * 1024
"""Most bytes of events in one transaction; storage takes 4 MiB."""


class Entry(NamedTuple):
    """An event that is ready to be stored in a shard."""

    row: str
    props: Props
    size: int


@dataclass(slots=True)
class OpenShard:
    """A shard that a writer of this process fills. Only its writer has one; all of it can be forgotten at any time."""

    shard: str
    writer: str
    wake: Millis
    facets: Facets
    next_number: int = 0
    bytes: int = 0
    held: HeldGate | None = None
    lost: bool = False
    known: Known = field(default_factory=dict)
    """The rows that make the shard findable, as far as the writer knows them."""

    @property
    def index(self) -> str:
        return index_key(self.shard, self.wake)

    @property
    def filing(self) -> Filing:
        """The shard, as facets look after it."""
        return Filing(self.shard, minute_text(self.wake), self.known)

    def initial(self) -> Gate:
        return Gate("open", self.writer, index=self.index, bucket=minute_text(self.wake))


class Appended(NamedTuple):
    """The result of a batch: the ETags of the rows that are stored for good. Rows are missing only if the writer has lost the shard."""

    stored: dict[str, str]


class ShardFiling(NamedTuple):
    """A shard that is to be filed. sent: its message is sent by the writer itself."""

    shard: str
    wake: Millis
    sent: bool


def file_shard(shard: str, wake: Millis, *, sent: bool) -> Steps[str]:
    """Insert the index row; return its ETag. Its key is unique to shard and wake-up: if it exists, an earlier attempt or another process
    made it, and the ETag is ''."""
    row = Insert(index_key(shard, wake), _index_props(shard, wake, sent=sent))
    while True:
        answer = yield from write(SHARDS, index_partition(shard), row)
        if isinstance(answer, Applied | WriteRefused):
            return answer.etags[0] if isinstance(answer, Applied) else ""


def file_shards(filings: Sequence[ShardFiling]) -> Steps[list[str]]:
    """Do as `file_shard` for shards of one index partition, in one transaction; return the ETags in their order."""
    rows = [Insert(index_key(each.shard, each.wake), _index_props(each.shard, each.wake, sent=each.sent)) for each in filings]
    answer = yield from write(SHARDS, index_partition(filings[0].shard), *rows)
    if isinstance(answer, Applied):
        return list(answer.etags)
    # One of the rows exists, or the answer was lost.
    found = []
    for each in filings:
        found.append((yield from file_shard(each.shard, each.wake, sent=each.sent)))
    return found


def _index_props(shard: str, wake: Millis, *, sent: bool) -> Props:
    return {"state": "sent" if sent else "pending", "wake": wake, "bucket": minute_text(wake), "tenant": shard_tenant(shard)}


def note_counts(opened: OpenShard, tally: Tally, etag: str) -> Steps[str]:
    """Note the counts of a shard on its index row. Call `drop_counts` before the next event is added.

    etag: of the row as this writer left it. Returns its new ETag; '' if it has changed since, or if the answer is lost.
    """
    answer = yield from write(SHARDS, index_partition(opened.shard), Merge(opened.index, counts_props(opened.wake, tally), etag))
    return answer.etags[0] if isinstance(answer, Applied) else ""


def note_sent(opened: OpenShard, etag: str) -> Steps[str]:
    """Note on the index row that the shard's message was sent; the parameters and the result are those of `note_counts`."""
    answer = yield from write(SHARDS, index_partition(opened.shard), Merge(opened.index, {"state": "sent"}, etag))
    return answer.etags[0] if isinstance(answer, Applied) else ""


def drop_counts(opened: OpenShard) -> Steps[str]:
    """Take the counts off the index row, so that totals read the gate; return its ETag, '' if there is no such row any more.

    The row is written in any case: a note whose answer was lost then has an old ETag.
    """
    while True:
        row = yield from get(SHARDS, index_partition(opened.shard), opened.index)
        if row is None:
            return ""
        answer = yield from write(SHARDS, index_partition(opened.shard), Merge(row.rk, {COUNTS: ""}, row.etag))
        if isinstance(answer, Applied):
            return answer.etags[0]


def append(opened: OpenShard, entries: Sequence[Entry]) -> Steps[Appended]:
    """Store `entries` in one transaction with the gate. The caller ensures that one batch per shard is in flight."""
    wanted = {entry.row for entry in entries}
    size = sum([entry.size for entry in entries])
    yield from opened.facets.before_store(opened.filing, [entry.props for entry in entries])
    while True:
        held = opened.held
        gate = held.gate if held else opened.initial()
        # Some come with their end: cancelled in the ingest queue, or dead after too long in it.
        counts = gate.counts.plus(tally([entry.props["state"] for entry in entries]))
        grown = replace(gate, bytes=gate.bytes + size, counts=counts)
        answer = yield from write(EVENTS, opened.shard, *add_ops(grown, held, entries))
        if isinstance(answer, Applied):
            opened.held = HeldGate(grown, answer.etags[0])
            return Appended({entry.row: etag for entry, etag in zip(entries, answer.etags[1:], strict=True)})
        # Refused: an owner or a sealer has the gate. Lost: the result is unknown. In both cases the gate decides, and only then the rows.
        opened.held = yield from fence(opened.shard, held, opened.initial())
        if opened.held is not None and opened.held.gate.state != "open":
            opened.held = None
        opened.lost = opened.held is None
        rows = yield from load(EVENTS, opened.shard, FIRST_EVENT, END_EVENTS)
        stored = {row.rk: row.etag for row in rows if row.rk in wanted}
        if opened.lost or stored:
            return Appended(stored)


def add_ops(gate: Gate, held: HeldGate | None, entries: Sequence[Entry]) -> tuple[Op, ...]:
    """Return the operations of a batch. The gate is first, so that a refusal names it; events are inserted, never upserted."""
    first: Op = Insert(GATE, gate.props()) if held is None else merge_gate(gate, held.etag)
    return (first, *[Insert(entry.row, entry.props) for entry in entries])


class FreshId(NamedTuple):
    """The id names the caller's place: store the event there, and only there."""


class KnownId(NamedTuple):
    """The id is in use. row: its event as first stored (follow its pointer); hash: the creator's content."""

    row: Row
    hash: str


type FindStanding = Callable[[Row], Steps[Row | None]]
"""Returns the event that keeps the id of a row of ids although no event is at the place that the row names; None if there is none."""


def register_id(
    tenant: str, event_id: str, body_hash: str, here: Address, standing: FindStanding | None = None
) -> Steps[FreshId | KnownId]:
    """Name `here` as the place of a client's id, before the event is stored there.

    If another place is named and its event is missing, that place is sealed before it is read again: then no delayed batch can store the
    event after the id has moved on. standing: asked then, before the id moves on.
    """
    partition, key = id_partition(tenant, event_id), id_row_key(event_id)
    claim: Props = {"at": here.text, "hash": body_hash}
    while True:
        answer = yield from write(IDS, partition, Insert(key, claim))
        if isinstance(answer, Applied):
            return FreshId()
        named = yield from get(IDS, partition, key)
        if named is None:
            continue
        if named.props["at"] == here.text:
            return FreshId()
        found = yield from read_named(parse_address(str(named.props["at"])))
        if found is None and standing is not None:
            found = yield from standing(named)
        if found is not None:
            return KnownId(found, str(named.props["hash"]))
        answer = yield from write(IDS, partition, Merge(key, claim, named.etag))
        if isinstance(answer, Applied):
            return FreshId()


def known_id(tenant: str, event_id: str) -> Steps[KnownId | None]:
    """Return the event that has the id, if it exists now; None decides nothing."""
    named = yield from get(IDS, id_partition(tenant, event_id), id_row_key(event_id))
    if named is None:
        return None
    place = parse_address(str(named.props["at"]))
    row = yield from get(EVENTS, place.shard, place.row)
    return KnownId(row, str(named.props["hash"])) if row is not None else None


def read_named(place: Address) -> Steps[Row | None]:
    """Return the event row at `place`; None only if it does not exist and never will."""
    row = yield from get(EVENTS, place.shard, place.row)
    if row is None:
        yield from seal(place.shard)
        row = yield from get(EVENTS, place.shard, place.row)
    return row
