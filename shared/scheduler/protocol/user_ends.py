"""User ends: ends of events that no owner has made, so that the counts of the gate do not have them yet.

    TocsinSweeps, ends:{0..3}     {tenant}:{name}:{number}

A cancel, a move and the completion of long work change the event's row alone: a write of the gate would take it from its owner or writer.
So the process that made the change notes it in a row beside, with one bit for each event of the shard:

    end the event ─► note its bit ─► (an owner counts the row; in the same write the gate names its bit) ─► the note adds nothing any more

Totals add to the gate's counts what notes have and the gate does not name. Bits are only added, each is noted after its event has ended for
good, and a gate names those that its counts contain. So in whatever order gate and notes are written and read, no event is counted twice,
and none as ended that is open. A process that crashes before its note leaves an event that counts as open until the shard's next owner.

A row has one writer, the process that began it, unless two noted the same event first. It is written on its ETag, because a delayed request
must not take bits away.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ...engine.effects import Steps, get, write
from ...engine.row_codec import RowCodec
from ...storage.names import SWEEPS
from ...storage.ports import Applied, Insert, Op, Props, Replace
from ..keys import shard_key, shard_name, shard_tenant
from ..rules import event_number
from ..shard.gate import BITS, Counts, Tally

SPREAD: Final = 4
PARTITIONS: Final = tuple(f"ends:{number}" for number in range(SPREAD))
"""The partitions of all tenants' notes."""


class UserEnds(NamedTuple):
    """Events of a shard by their ends, as bits."""

    delivered: int = 0
    dead: int = 0
    lapsed: int = 0
    cancelled: int = 0
    moved: int = 0
    retried: int = 0
    """Those among them that waited for another attempt."""

    def joined(self, other: UserEnds) -> UserEnds:
        """Return the events of both."""
        return UserEnds(*map(int.__or__, self, other))


NO_ENDS: Final = UserEnds()
_ENDS: Final = RowCodec(UserEnds, formats=dict.fromkeys(UserEnds._fields, BITS))


def end_of(rk: str, state: str, props: Props) -> UserEnds:
    """Return the end of one event. state: the final one. props: its row's, as they were before or after the end."""
    bit = 1 << event_number(rk)
    # Only an event that waits for an attempt has the time of one when a user, or its receiver, ends it.
    return UserEnds(retried=bit if "next" in props else 0)._replace(**{state: bit})


def parse_ends(props: Props) -> UserEnds:
    """Return the events of a note."""
    return _ENDS.decode(props)


def with_ends(tally: Tally, ends: UserEnds) -> Counts:
    """Return the counts together with the ends that they do not contain."""
    fresh = [(bits & ~tally.user_ends).bit_count() for bits in ends]
    counts = tally.counts
    if not any(fresh):
        return counts
    delivered, dead, lapsed, cancelled, moved, retried = fresh
    return Counts(
        counts.accepted,
        counts.delivered + delivered,
        max(0, counts.retrying - retried),
        counts.dead + dead,
        counts.lapsed + lapsed,
        counts.cancelled + cancelled,
        counts.moved + moved,
    )


def partition_of(shard: str) -> str:
    """Return the partition of a shard's notes."""
    return PARTITIONS[int(shard[:2], 16) % SPREAD]


def noted_shard(key: str) -> str:
    """Return the shard of a note's key."""
    tenant, name, _ = key.split(":")
    return shard_key(tenant, name)


@dataclass(slots=True, eq=False)
class EndsNote:
    """A note of this process. etag: of its row; '' if it has none."""

    shard: str
    key: str
    ends: UserEnds = NO_ENDS
    stored: UserEnds = NO_ENDS
    etag: str = ""


def new_note(shard: str, rk: str) -> EndsNote:
    """Return a note that begins with this event. Its key follows from both, so that a repetition finds the row."""
    return EndsNote(shard, f"{shard_tenant(shard)}:{shard_name(shard)}:{event_number(rk)}")


def store_notes(partition: str, notes: Sequence[EndsNote]) -> Steps[None]:
    """Store at most 100 notes of one partition, in one transaction unless a row is not as this process left it."""
    while True:
        wanted = [note.ends for note in notes]
        ops: list[Op] = []
        for note in notes:
            props = _ENDS.encode(note.ends)
            ops.append(Replace(note.key, props, note.etag) if note.etag else Insert(note.key, props))
        answer = yield from write(SWEEPS, partition, *ops)
        if isinstance(answer, Applied):
            for note, ends, etag in zip(notes, wanted, answer.etags, strict=True):
                note.stored, note.etag = ends, etag
            return
        # The answer was lost, another process began the same row, or it was removed because the shard is finished.
        for note in notes:
            row = yield from get(SWEEPS, partition, note.key)
            note.etag = row.etag if row is not None else ""
            note.ends = note.ends.joined(parse_ends(row.props)) if row is not None else note.ends
