"""Places that an interrupted move on the first account made without filing them, so that no index row leads to them.

The next move of the event would use such a place, and find an event with an old time and an old payload. So the place is shut on both sides
before the row that was moving is overwritten: later moves of the event use the next place.
"""

from __future__ import annotations

from dataclasses import replace

from ...engine.effects import Steps, get, load, write
from ...storage.names import EVENTS
from ...storage.ports import Applied, Delete, Insert, Merge
from ..keys import END_EVENTS, FIRST_EVENT, GATE
from ..protocol.mirroring import FIRST, SECOND
from ..protocol.moving import target_shard
from ..shard.gate import NOTHING, parse_gate

GOING = ("moving", "moved")


def shut_orphans(shard: str) -> Steps[None]:
    """Shut the places of moves out of `shard` that only the first account knows."""
    rows = yield from load(FIRST + EVENTS, shard, FIRST_EVENT, END_EVENTS)
    for row in rows:
        if row.props["state"] == "moving":
            known = yield from get(SECOND + EVENTS, shard, row.rk)
            if known is None or known.props["state"] not in GOING:
                yield from shut(target_shard(shard, f"move:{row.rk}", 0))


def shut(place: str) -> Steps[None]:
    """Empty a place and make it done, in the second account first. Leave it if the second account has it, because it is copied then."""
    while True:
        gate = yield from get(FIRST + EVENTS, place, GATE)
        if gate is None or gate.props["state"] != "open":
            return
        done = replace(parse_gate(gate.props), state="done", holder="", bytes=0, counts=NOTHING)
        yield from write(SECOND + EVENTS, place, Insert(GATE, done.props()))
        there = yield from get(SECOND + EVENTS, place, GATE)
        if there is None:
            continue
        if there.props["state"] != "done" or int(there.props["accepted"]):
            return
        rows = yield from load(FIRST + EVENTS, place, FIRST_EVENT, END_EVENTS)
        answer = yield from write(FIRST + EVENTS, place, Merge(GATE, done.props(), gate.etag), *(Delete(row.rk, row.etag) for row in rows))
        if isinstance(answer, Applied):
            return
