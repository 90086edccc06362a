"""Held rows: how many events of a shard wait for a paused channel, or behind a circuit breaker.

    TocsinSweeps, {0..3}-{tenant}     held:{shard}

A held row is the state row of a shard's held events, and has their numbers: `GET /stats` adds up the rows instead of reading events, and
lists read only the shards that have one. An event becomes held when it is due, or when its channel is blocked, without a write of its own;
it is counted once an owner has looked at it. `holding` writes the rows. Users cancel and move events without the owner, so the numbers may
be too high until an owner looks again; lists verify each event.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import orjson

from ....core.clock import Millis
from ....delivery.flow.rules import ClaimHold
from ....storage.ports import Props
from ...keys import digest
from ...points import Known
from ...rules import WAITING, due_at
from ...shard.gate import Gate
from ...timings import CLAIM_AHEAD
from ...work_rows import work_of

HELD: Final = "held"
"""Begins the keys of held rows, and is the property with their numbers."""
MOST_CHANNELS: Final = 60
"""Channels with numbers of their own in one row: with the longest names they fill a third of a property."""
REST: Final = "*"
"""Name of all other channels together."""
BEGUN: Final = "0 ?"
"""What the gate says of the row before it is first written: the row may be there, and its numbers are unknown."""


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
