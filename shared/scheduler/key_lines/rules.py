"""The line of an ordering key: which of its events may be delivered now. Pure.

Every event that waits for its key has a *ticket*: a text that sorts by the time of its next attempt and then by its id. A *turn* is the
permission to deliver one event; it belongs to the owner of the event's shard. The events whose tickets sort first get the turns. An owner
of consecutive first tickets gets turns for several of them, and delivers these one after the other.

The events of a schedule whose occurrences do not overlap have a line too (`overlap`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from ...core.clock import Millis
from ...delivery.channels.model import KeyLimits
from ...storage.ports import Props
from ..keys import Address, digest, parse_address
from ..properties.overlap import KEY, overlap_of
from ..timings import CLAIM_AHEAD

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
    return _line(digest("key", tenant, channel, key))


def line_of_schedule(tenant: str, schedule: str) -> KeyLine:
    """Return the line of a schedule whose occurrences do not overlap. No ordering key has it."""
    return _line(digest("overlap", tenant, schedule))


def line_of_event(tenant: str, props: Mapping[str, Any]) -> KeyLine:
    """Return the line of an event that has an ordering key, or is of a schedule whose occurrences do not overlap."""
    overlap = overlap_of(props)
    if overlap is not None:
        return line_of_schedule(tenant, overlap.schedule)
    return line_of(tenant, str(props["channel"]), str(props.get(KEY, "")))


def _line(found: bytes) -> KeyLine:
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


class BusySpan(NamedTuple):
    """The time in which an event of a schedule that skips, or several of them without a gap, were due and had not ended: [since, until), in
    milliseconds."""

    since: Millis = 0
    until: Millis = 0

    def __bool__(self) -> bool:
        return self.since < self.until

    def __contains__(self, at: object) -> bool:
        return isinstance(at, int) and self.since <= at < self.until

    def joined(self, other: BusySpan) -> BusySpan:
        """Return one span for both if they touch, otherwise the later one."""
        if not other or not self:
            return other or self
        if other.since <= self.until and self.since <= other.until:
            return BusySpan(min(self.since, other.since), max(self.until, other.until))
        return max(self, other, key=lambda span: span.until)


NOT_BUSY = BusySpan()


class LineState(NamedTuple):
    """The row of a line: the turns, and the time from which the rate allows the next start.

    Of a schedule that skips also: the last span in which an event had not ended, how many occurrences were skipped, and when the last of
    these was due.
    """

    turns: tuple[Turn, ...] = ()
    free: Millis = 0
    busy: BusySpan = NOT_BUSY
    skips: int = 0
    last_skip: Millis = 0

    def props(self) -> Props:
        """Return the row's properties."""
        found: Props = {"turns": orjson.dumps([list(turn) for turn in self.turns]).decode(), "free": self.free}
        later = {"since": self.busy.since, "until": self.busy.until, "skips": self.skips, "last_skip": self.last_skip}
        return found | {name: value for name, value in later.items() if value}

    def with_end(self, busy: BusySpan, skipped: Iterable[str] = ()) -> LineState:
        """Return the state after the end of events that were busy in this span, and without these tickets of skipped occurrences."""
        times = [ticket_time(ticket) for ticket in skipped]
        return self._replace(busy=self.busy.joined(busy), skips=self.skips + len(times), last_skip=max([self.last_skip, *times]))


def parse_line(props: Mapping[str, Any]) -> LineState:
    """Parse `LineState.props`."""
    turns = tuple(Turn(*turn) for turn in orjson.loads(str(props["turns"])))
    since, until, *later = (int(props.get(name, 0)) for name in ("since", "until", "skips", "last_skip"))
    return LineState(turns, int(props["free"]), BusySpan(since, until), *later)


def busy_span(props: Mapping[str, Any]) -> BusySpan:
    """Return the span in which an ended event was due and had not ended.

    One that was cancelled before any owner claimed it has none: a schedule that is changed takes its events back so, and stores the same
    occurrences again.
    """
    if props["state"] == "cancelled" and "epoch" not in props:
        return NOT_BUSY
    return BusySpan(int(props["due"]), int(props.get("ended", 0)))


def ticket_of(props: Mapping[str, Any], limits: KeyLimits) -> str:
    """Return the ticket of an event that waits. A failed event that blocks its key keeps its place in the line."""
    keeps = limits.ordered and limits.failed_blocks
    at = int(props["next"]) if "next" in props and not keeps else int(props["due"])
    return f"{max(at, 0):014d}:{props['id']}"


def ticket_time(ticket: str) -> Millis:
    return int(ticket.partition(":")[0])


NO_SKIPS: Mapping[str, str] = {}


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
    """Time at which the rate allows the next start."""
    outdated: bool = False
    """A later owner has the shard."""
    skipped: Mapping[str, str] = NO_SKIPS
    """Tickets of due occurrences before which another one had not ended, with the ticket of that one; '' if it has ended since."""


NO_TICKETS: Mapping[str, Any] = {}


class TurnQuestion(NamedTuple):
    """The turns that an asker ends and asks for in a line. It has no other turns than `held` and the granted ones then.

    wanted: its events that are due and not claimed. held: events with a turn that has not ended. ended: tickets whose events have ended an
    attempt, as stored; with the place of an event that stays in the line.

    Of a schedule that skips: skippable are those of `wanted` that are skipped rather than wait when they are due, if one ahead has not
    ended then; skipped are those of `ended` that were, as stored, and busy is the span of the others.
    """

    line: KeyLine
    asker: Asker
    limits: KeyLimits
    wanted: Mapping[str, Address]
    held: Mapping[str, Address] = NO_TICKETS
    ended: Mapping[str, Address | None] = NO_TICKETS
    skippable: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    busy: BusySpan = NOT_BUSY


def grant(line: LineState, waiting: Sequence[str], question: TurnQuestion, now: Millis) -> Grant:
    """Decide who has a turn. waiting: the first tickets of the line."""
    _, asker, limits, wanted, held, _, skippable, *_ = question
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
    skipped: dict[str, str] = {}
    waits = bool(others or held)
    ahead = [*(turn.ticket for turn in others), *held]
    last = max(wanted, default="")
    free, again = line.free, None
    for ticket in candidates:
        if skippable and ticket > last:
            break
        if ticket not in wanted:
            limited = one or limits.concurrency is not None
            if room > 0 and limited and not (one and (held or granted)) and ticket_time(ticket) <= now + CLAIM_AHEAD:
                following.append(ticket)
            behind.append(ticket)
            room = 0 if one else room - 1
        elif ticket in skippable and (waits or granted or behind or ticket_time(ticket) in line.busy):
            if ticket_time(ticket) <= now:
                skipped[ticket] = next(iter((*ahead, *granted, *behind)), "")
            else:
                waits = True
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
        elif skippable:
            waits = True
        else:
            break
        if room <= 0 and not wanted.keys() - granted.keys():
            break
    refused = bool(wanted.keys() - granted.keys())
    mine = {**held, **{ticket: wanted[ticket] for ticket in granted}}
    turns = (*others, *(Turn(ticket, address.text, asker.epoch, now) for ticket, address in mine.items()))
    return Grant(
        line._replace(turns=turns, free=free),
        granted,
        tuple(dict.fromkeys((*(turn.ticket for turn in others), *behind))) if refused and again is None else (),
        tuple(following),
        again,
        skipped=skipped,
    )
