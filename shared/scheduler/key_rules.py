"""The line of an ordering key: which of its events may be delivered now. Pure.

Every event that waits for its key has a *ticket*: a text that sorts by the time of its next attempt and then by its id. A *turn* is the
permission to deliver one event; it belongs to the owner of the event's shard. The events whose tickets sort first get the turns. An owner
of consecutive first tickets gets turns for several of them, and delivers these one after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from ..core.clock import Millis
from ..delivery.channels.model import KeyLimits
from ..storage.ports import Props
from .keys import Address, digest, parse_address
from .timings import CLAIM_AHEAD

RUN = 20
"""Most turns that an owner has at one key."""
PARTITIONS = 64
TURN_LASTS: Millis = 45_000
"""Age from which a turn counts no more if its event is not claimed."""
TURN_USED: Millis = 30_000
"""An owner claims an event within this time of asking for its turn; the difference allows for clocks that differ and owners that stall."""
YOUNG: Millis = 10_000
"""Age up to which a ticket stays although it leads to no event: the event may be about to be stored."""
RATE_AHEAD: Millis = 1_000
"""Turns are given for starts within this time."""


class KeyLine(NamedTuple):
    """The place of a key's rows in `TocsinLimits`: partition, and the beginning of the row keys."""

    partition: str
    name: str

    @property
    def end(self) -> str:
        """Return the end of the row keys, exclusive."""
        return self.name + ";"

    def ticket_row(self, ticket: str) -> str:
        return f"{self.name}:{ticket}"


def line_of(tenant: str, channel: str, key: str) -> KeyLine:
    """Return the line of an ordering key."""
    found = digest("key", tenant, channel, key)
    return KeyLine(f"key:{found[0] % PARTITIONS:02x}", found.hex())


class Turn(NamedTuple):
    """The permission of an owner to deliver an event. at: when its owner last asked, in milliseconds."""

    ticket: str
    address: str
    epoch: int
    at: Millis

    @property
    def shard(self) -> str:
        return parse_address(self.address).shard


class LineState(NamedTuple):
    """The row of a line: the turns, and the time from which the rate allows the next start."""

    turns: tuple[Turn, ...] = ()
    free: Millis = 0

    def props(self) -> Props:
        """Return the row's properties."""
        return {"turns": orjson.dumps([list(turn) for turn in self.turns]).decode(), "free": self.free}


def parse_line(props: Mapping[str, Any]) -> LineState:
    """Parse `LineState.props`."""
    return LineState(tuple(Turn(*turn) for turn in orjson.loads(str(props["turns"]))), int(props["free"]))


def ticket_of(props: Mapping[str, Any], limits: KeyLimits) -> str:
    """Return the ticket of an event that waits. A failed event that blocks its key keeps its place in the line."""
    keeps = limits.ordered and limits.failed_blocks
    at = int(props["next"]) if "next" in props and not keeps else int(props["due"])
    return f"{max(at, 0):014d}:{props['id']}"


def ticket_time(ticket: str) -> Millis:
    return int(ticket.partition(":")[0])


class Asker(NamedTuple):
    """The owner that asks for turns: its shard and epoch. ('', 0): someone who owns nothing."""

    shard: str = ""
    epoch: int = 0


class Grant(NamedTuple):
    """The answer to an owner."""

    line: LineState
    granted: dict[str, Millis]
    """The new turns, in order, and when each may start."""
    behind: tuple[str, ...] = ()
    """The tickets that keep the first refused event from its turn."""
    following: tuple[str, ...] = ()
    """Tickets of others that are entitled to a turn now."""
    again: Millis | None = None
    """When the rate allows the next start."""
    outdated: bool = False
    """A later owner has the shard."""


def grant(
    line: LineState,
    waiting: Sequence[str],
    wanted: Mapping[str, Address],
    held: Mapping[str, Address],
    asker: Asker,
    limits: KeyLimits,
    now: Millis,
) -> Grant:
    """Decide who has a turn. waiting: the first tickets of the line. wanted: of the asker's events that are due. held: of those that have
    their turn and have not ended.
    """
    others = tuple(turn for turn in line.turns if turn.shard != asker.shard)
    if any(turn.shard == asker.shard and turn.epoch > asker.epoch for turn in line.turns):
        return Grant(line, {}, outdated=True)
    one = limits.ordered or limits.concurrency == 1
    taken = {turn.ticket for turn in others} | held.keys()
    candidates = [ticket for ticket in sorted({*waiting, *wanted}) if ticket not in taken]
    room = len(candidates)
    if one:
        room = 0 if others else RUN - len(held)
    elif limits.concurrency is not None:
        room = max(0, limits.concurrency - len(taken))
    granted: dict[str, Millis] = {}
    behind: list[str] = []
    following: list[str] = []
    free, again = line.free, None
    for ticket in candidates:
        if ticket not in wanted:
            limited = one or limits.concurrency is not None
            if room > 0 and limited and not (one and (held or granted)) and ticket_time(ticket) <= now + CLAIM_AHEAD:
                following.append(ticket)
            behind.append(ticket)
            room = 0 if one else room - 1
        elif room > 0:
            start = max(now, ticket_time(ticket))
            if limits.deliveries_per_second is not None:
                start = max(start, free)
                if start > max(now, ticket_time(ticket)) + RATE_AHEAD:
                    again = start - RATE_AHEAD // 2
                    break
                free = start + round(1000 / limits.deliveries_per_second)
            granted[ticket] = start
            room -= 1
        else:
            break
        if room <= 0 and not wanted.keys() - granted.keys():
            break
    refused = bool(wanted.keys() - granted.keys())
    mine = {**held, **{ticket: wanted[ticket] for ticket in granted}}
    turns = (*others, *(Turn(ticket, address.text, asker.epoch, now) for ticket, address in mine.items()))
    return Grant(
        LineState(turns, free),
        granted,
        tuple(dict.fromkeys((*(turn.ticket for turn in others), *behind))) if refused and again is None else (),
        tuple(following),
        again,
    )
