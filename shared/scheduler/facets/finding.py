"""Finding rows make events findable: they say which shards may hold events that a list looks for. Lists read them instead of every shard.

    TocsinSweeps, {0..3}-{tenant}            dead:{shard}, retrying:{shard} or held:{shard}      state rows, of which the last is a held row
    TocsinSweeps, labels:{0..3}-{tenant}     {digest of name and value}:{shard}                  label rows

A transaction covers one partition, so a finding row cannot be written together with its event. It is written before, by whoever is about to
store the event; a crash in between leaves a row that leads to nothing. A reader verifies each event in its shard, so such a row costs one
read. There is one row per shard and name, with the shard in its key: an event cannot be listed twice through it. Events that are delivered
at the first attempt, and have no searchable label, get none.

A finding row is removed only where no event that it leads to can come into the shard any more: the gate is done and no event there is of
that kind, or the shard is gone. The finisher of a shard removes some, retention others, and a reader whatever both have left.

A writer files the index row of a shard before its finding rows, and it stays until the gate is done. The copy of a moved event has its
index row only after its gate, so its label rows come after both, and before the pointer to it: until then lists show the event at its
former place. An `Upsert` changes the row's ETag, so a removal of a label row that was decided before is refused.

A held row is the state row of a shard's held events, and has their numbers: `GET /stats` adds up the rows instead of reading events, and
lists read only the shards that have one. An event becomes held when it is due, or when its channel is blocked, without a write of its own;
it is counted once an owner has looked at it. `holding` writes the rows. Users cancel and move events without the owner, so the numbers may
be too high until an owner looks again; lists verify each event.

Only events that carry the mark (`MARK`) have label rows of their own; the pass of `label_index`, and owners before they leave a shard, file
those of events that were stored before their tenant declared the label.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import batched
from typing import Any, Final, Literal, NamedTuple, get_args

import orjson

from ...core.clock import Millis
from ...delivery.flow.rules import ClaimHold
from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS, SHARDS, SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Op, Props, Row, Upsert, Value, WriteRefused
from ..keys import END_EVENTS, FIRST_EVENT, digest, index_key, index_partition, minute_of, shard_tenant
from ..points import Facet, Filing, Known
from ..properties.work_rows import work_of
from ..rules import WAITING, due_at, tally
from ..shard.gate import Counts, Gate, parse_gate, read_gate
from ..timings import CLAIM_AHEAD

type ListedState = Literal["dead", "retrying"]
LISTED: Final[tuple[ListedState, ...]] = get_args(ListedState.__value__)
type RowKind = ListedState | Literal["held"]
"""The names of state rows."""
ROW_KINDS: Final[tuple[RowKind, ...]] = (*LISTED, "held")


def in_state(props: Mapping[str, Any], state: str) -> bool:
    """Return True if an event is listed under the state: a dead one that lives on at another place is not. Only its channel and the time
    say whether an unclaimed event is held."""
    if state == "held":
        return props["state"] in WAITING
    return bool(props["state"] == state and not props.get("target"))


def has_retried(rows: Iterable[Row]) -> bool:
    """Return True if an event of these rows waited for a retry at some time, so that the shard may have that state row."""
    return any("next" in row.props for row in rows)


MARK: Final = "searched"
"""Property of an event: the names of its labels that have label rows, with commas between them. Absent: none."""


def mark_of(labels: Value, searchable: Collection[str]) -> Props:
    """Return the mark of an event with these stored labels; nothing if its tenant searches by none of them."""
    names = sorted(name for name in orjson.loads(str(labels)) if name in searchable) if searchable else ()
    return {MARK: ",".join(names)} if names else {}


def label_digest(name: str, value: str) -> str:
    """Return the beginning of the keys of a label's rows. Readers verify the label, so two labels may share it."""
    return digest(name, value)[:10].hex()


def digests_of(props: Mapping[str, Any], names: Collection[str] | None = None) -> set[str]:
    """Return the digests of an event's labels of these names; by default of those in its mark."""
    if "labels" not in props or (names is None and MARK not in props):
        return set()
    wanted = str(props[MARK]).split(",") if names is None else names
    return {label_digest(name, value) for name, value in orjson.loads(str(props["labels"])).items() if name in wanted}


def marked_digests(events: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Return the digests of the labels in the marks of some events."""
    return frozenset[str]().union(*(digests_of(props) for props in events if MARK in props))


def unmarked_digests(events: Iterable[Row], searchable: Collection[str]) -> frozenset[str]:
    """Return the digests of searchable labels of events without a mark: stored before the tenant declared the label, or before the process
    knew of it."""
    return frozenset[str]().union(*(digests_of(row.props, searchable) for row in events if MARK not in row.props))


def has_digest(props: Mapping[str, Any], wanted: str) -> bool:
    """Return True if an event has a label with the digest, and lives here: one that has moved on, or was redriven, counts as gone."""
    if "labels" not in props or props["state"] == "moved" or (props["state"] == "dead" and props.get("target")):
        return False
    return any(label_digest(name, value) == wanted for name, value in orjson.loads(str(props["labels"])).items())


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


HELD: Final = "held"
"""Begins the keys of held rows, and is the property with their numbers."""
MOST_CHANNELS: Final = 60
"""Channels with numbers of their own in one row: with the longest names they fill a third of a property."""
REST: Final = "*"
"""Name of all other channels together."""
BEGUN: Final = "0 ?"
"""Value of the gate before the row is first written: the row may be there, and its numbers are unknown."""


def recalled(gate: Gate) -> Known:
    """Return what a gate that is about to be taken says about the shard's held row: the digest of its numbers, '' for none, or nothing if
    they are unknown.

    An owner that did not release the shard may have changed the row since. A release that does not know the property leaves it as it was,
    so it counts only under the epoch that it names.
    """
    if gate.beside is None:
        return {HELD: ""}
    epoch, _, known = gate.beside.partition(" ")
    return {HELD: known} if gate.state != "owned" and epoch == str(gate.epoch) else {}


def stamp(gate: Gate, known: Known, epoch: int) -> str | None:
    """Return what the owner's last gate says about the row: the epoch and the digest. None: there is no row."""
    digest_known = known.get(HELD)
    if digest_known is None or (gate.beside is None and not digest_known):
        return gate.beside
    return f"{epoch} {digest_known}"


def held_dues(rows: Iterable[Props], holds: Mapping[str, ClaimHold], now: Millis) -> dict[str, list[Millis]]:
    """Return the due times of the events that blocked channels hold, by channel.

    holds: as flow control answered at `now`. Events that are due before a hold is looked at again count too: no owner comes for them.
    """
    found: dict[str, list[Millis]] = {}
    for props in rows if any(hold.blocked for hold in holds.values()) else ():
        # An event whose receiver works on it waits for no channel.
        waits = props["state"] in WAITING and work_of(props) is None
        hold = holds.get(str(props["channel"])) if waits else None
        if hold is not None and hold.blocked:
            due = due_at(props)
            if due <= now + CLAIM_AHEAD or (not hold.room and due < hold.until):
                found.setdefault(str(props["channel"]), []).append(due)
    return found


def held_numbers(rows: Iterable[Props], holds: Mapping[str, ClaimHold], now: Millis) -> str:
    """Return what the held row of a shard with these events says."""
    return pack_held(held_dues(rows, holds, now), now)


def pack_held(held: Mapping[str, Sequence[Millis]], now: Millis) -> str:
    """Encode the due times of held events by channel, in seconds; '' without any.

    All that can be claimed by now count from the last one's due time on: the text is short, and the same at the next look.
    """
    kept: dict[str, Counter[int]] = {}
    for channel, dues in sorted(held.items(), key=lambda each: (-len(each[1]), each[0])):
        name = channel if len(kept) < MOST_CHANNELS else REST
        last = max((due for due in dues if due <= now + CLAIM_AHEAD), default=0)
        kept.setdefault(name, Counter()).update(-(-max(due, last) // 1000) for due in dues)
    return orjson.dumps({name: sorted(times.items()) for name, times in sorted(kept.items())}).decode() if kept else ""


def count_held(text: str, now: Millis) -> Counter[str]:
    """Return the events that are due by now, by channel, of `pack_held`."""
    found: Counter[str] = Counter()
    for channel, times in orjson.loads(text).items() if text else ():
        found[channel] += sum(count for second, count in times if second * 1000 <= now)
    return +found


def digest_of(text: str) -> str:
    """Return the digest of numbers; '' without any."""
    return digest(text).hex()[:12] if text else ""


def held_props(text: str, bucket: str, epoch: int) -> Props:
    """Return the properties of a held row."""
    return {"bucket": bucket, "epoch": epoch, HELD: text}


@dataclass(frozen=True, slots=True)
class States(Facet):
    """Dead and retrying events are found by state rows."""

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        # Events come as dead if they waited in the ingest queue for too long.
        yield from self.before_settle(filing, tally(props["state"] for props in events))

    def before_settle(self, filing: Filing, counts: Counts) -> Steps[None]:
        yield from file_missing(STATE_ROWS, filing, [name for name in ("dead", "retrying") if getattr(counts, name)])

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        # A former owner, or the one of a copy, may have counted them without their rows.
        yield from self.before_settle(filing, gate.counts)
        if has_retried(rows):
            yield from remove_rows(STATE_ROWS, filing.shard, ("retrying",))

    def at_removal(self, filing: Filing, counts: Counts) -> Steps[None]:
        if counts.dead:
            yield from remove_rows(STATE_ROWS, filing.shard, ("dead",))


@dataclass(frozen=True, slots=True)
class Held(Facet):
    """The gate says what an owner knows of the shard's held row, and the finisher removes it. `protocol.holding` writes it."""

    def recall(self, gate: Gate) -> Known:
        return recalled(gate)

    def kept(self, gate: Gate, known: Known, epoch: int) -> str | None:
        return stamp(gate, known, epoch)

    def at_end(self, filing: Filing, gate: Gate, rows: Collection[Row]) -> Steps[None]:
        if gate.beside is not None:
            yield from remove_rows(STATE_ROWS, filing.shard, (HELD,))


@dataclass(frozen=True, slots=True)
class Labels(Facet):
    """Events are found by their labels. searchable: names of the labels by which the tenant searches."""

    searchable: Collection[str] = ()

    def before_store(self, filing: Filing, events: Collection[Mapping[str, Any]]) -> Steps[None]:
        yield from file_missing(LABEL_ROWS, filing, marked_digests(events))

    def before_release(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        if self.searchable:
            yield from file_missing(LABEL_ROWS, filing, unmarked_digests(rows, self.searchable))

    def on_move(self, filing: Filing, copies: Collection[Mapping[str, Any]]) -> Steps[None]:
        yield from self.before_store(filing, copies)

    def before_removal(self, filing: Filing, rows: Collection[Row]) -> Steps[None]:
        yield from remove_rows(LABEL_ROWS, filing.shard, marked_digests(row.props for row in rows))
