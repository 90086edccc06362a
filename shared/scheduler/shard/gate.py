"""The gate row: it decides which writes to a shard count.

Every write that adds, claims or settles is one transaction, and its first operation merges the gate on the ETag last seen. The holder of
that ETag may write; the store refuses everyone else.

    (absent) --first batch--> open --take--> owned --rest--> resting --take--> owned ... --finish--> done
        |                       |
        +----seal / take--------+   sealed: open without a writer, so that no batch can enter any more
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ...engine.effects import Lost, Steps, get, write
from ...engine.row_codec import TEXT, Format, RowCodec
from ...storage.names import EVENTS
from ...storage.ports import Applied, Insert, Merge, Props, Row, WriteRefused
from ..keys import GATE

type GateState = Literal["open", "owned", "resting", "done"]
COUNTS = ("accepted", "delivered", "retrying", "dead", "lapsed", "cancelled", "moved")


class Counts(NamedTuple):
    """Numbers of a shard's events by state. `retrying` is open; the five after it are final; accepted = final + open."""

    accepted: int = 0
    delivered: int = 0
    retrying: int = 0
    dead: int = 0
    lapsed: int = 0
    cancelled: int = 0
    moved: int = 0

    @property
    def open(self) -> int:
        """Events without a final state."""
        return self.accepted - self.delivered - self.dead - self.lapsed - self.cancelled - self.moved

    def plus(self, other: Counts) -> Counts:
        """Return the sums of both."""
        return Counts(*map(int.__add__, self, other))


NOTHING = Counts()


def bits_text(events: int) -> str:
    """Return a set of a shard's events as stored, in hexadecimal: bit n stands for event n."""
    return f"{events:x}" if events else ""


def bits_of(text: str) -> int:
    """Return the set of `bits_text`."""
    return int(text or "0", 16)


BITS: Final = Format(bits_text, bits_of)


class Tally(NamedTuple):
    """Counts, and the events among them that no owner has ended (`user_ends`), as bits."""

    counts: Counts = NOTHING
    user_ends: int = 0


@dataclass(frozen=True, slots=True)
class Gate:
    """The content of a gate row. `holder` is a writer's or owner's unique name, '' when sealed."""

    state: GateState
    holder: str
    epoch: int = 0
    bytes: int = 0
    index: str = ""
    """Row key of the index row under which the shard is, or is about to be, filed."""
    bucket: str = ""
    """The minute for which the shard was opened; lists and the ledger always file it there. '' if it was sealed before it was filled."""
    counts: Counts = NOTHING
    process: str | None = None
    """`HOLDER IDENTITY`: the process in which an owner runs (`process_of`). None where it is not known."""
    beside: str | None = None
    """The last owner's knowledge of rows beside the shard (`points.Facet.kept`). None: there are no such rows."""
    user_ends: int = 0
    """The user ends that the counts contain, as bits (`user_ends`). Written together with the counts."""

    @property
    def tally(self) -> Tally:
        """The counts, and the user ends that they contain."""
        return Tally(self.counts, self.user_ends)

    def props(self) -> Props:
        """Return the row's properties; always all of them, so that no number of a former holder survives a write."""
        return _GATE.encode(self)


def process_of(gate: Gate) -> str:
    """Return the identity of the process in which the gate's owner runs; '' if it is not known.

    A release that does not know the property leaves it as it was when it takes the shard, so it counts only together with its holder.
    """
    holder, _, identity = (gate.process or "").partition(" ")
    return identity if gate.state == "owned" and holder == gate.holder else ""


_GATE: Final = RowCodec(
    Gate, formats={"state": TEXT, "counts": RowCodec(Counts), "user_ends": BITS}, names={"beside": "held_row"}, added=("user_ends",)
)


def parse_gate(props: Props) -> Gate:
    """Return the gate of a row's properties."""
    return _GATE.decode(props)


def merge_gate(gate: Gate, etag: str) -> Merge:
    """Return the first operation of every transaction of a holder."""
    return Merge(GATE, gate.props(), etag)


def read_gate(shard: str) -> Steps[Row | None]:
    row = yield from get(EVENTS, shard, GATE)
    return row


@dataclass(slots=True)
class HeldGate:
    """A gate that this process holds: its content, and the ETag it was last seen or written with. untouched: a fence has proven that the
    lost write before it was not applied and never will be."""

    gate: Gate
    etag: str
    untouched: bool = False


def fence(shard: str, held: HeldGate | None, initial: Gate) -> Steps[HeldGate | None]:
    """After a lost answer, make sure that the lost write is either applied by now or never will be.

    Replaces the gate conditionally with the same content (inserts `initial` if there is none), so that a write that is still in flight has
    an old ETag. Returns the gate as now held, or None if another process has it. Rows must be read after this, never before.
    """
    me = initial.holder
    while True:
        row = yield from read_gate(shard)
        if row is None:
            answer = yield from write(EVENTS, shard, Insert(GATE, initial.props()))
            if isinstance(answer, Applied):
                return HeldGate(initial, answer.etags[0])
            continue
        gate = parse_gate(row.props)
        if gate.holder != me:
            return None
        if held is None or row.etag != held.etag:
            # The lost write was the only one in flight and it changed the ETag: it is stored and cannot be applied again.
            return HeldGate(gate, row.etag)
        answer = yield from write(EVENTS, shard, merge_gate(gate, row.etag))
        if isinstance(answer, Applied):
            return HeldGate(gate, answer.etags[0], untouched=held is not None)


def seal(shard: str) -> Steps[None]:
    """Make sure that no batch can enter the shard any more. An owned, resting or done gate is sealed already."""
    while True:
        row = yield from read_gate(shard)
        if row is None:
            answer = yield from write(EVENTS, shard, Insert(GATE, Gate("open", "").props()))
        else:
            gate = parse_gate(row.props)
            if gate.state != "open" or gate.holder == "":
                return
            answer = yield from write(EVENTS, shard, merge_gate(replace(gate, holder=""), row.etag))
        if isinstance(answer, Applied):
            return
        assert isinstance(answer, WriteRefused | Lost)  # either way: look again
