"""How a backlog drains: at a set rate, oldest first, tenants in turn. Pure: no I/O, no clock.

A sweep gives each overdue shard a place on a time-line, one after the other, each as long as its events take at the set rate. What earlier
sweeps gave is read from the index rows themselves: a place still to come says how far the line is taken, and a shard whose place has come
but that is unfinished still counts as under way. So any number of sweeps, on any number of instances, keep to one line, and nothing
but the rows that exist anyway has to be stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...core.clock import Millis
from ...storage.ports import Props, Row
from ..rules import in_backlog
from ..timings import BACKLOG_HORIZON, BACKLOG_LEAST_EVENTS, BACKLOG_TENANT_SHARE, BACKLOG_UNDER_WAY, STUCK_ROUNDS


def weight(events: int) -> int:
    """What a shard with so many open events counts."""
    return max(events, BACKLOG_LEAST_EVENTS)


class Handed(NamedTuple):
    """What an index row says of a place that was given to its shard: when, and for how many events; (0, 0) if none was."""

    at: Millis
    events: int


def handed(props: Props) -> Handed:
    """The shard's place, as the sweep that gave it has noted it."""
    if props["state"] != "sent" or not props.get("events") or int(props.get("rounds", 0)) >= STUCK_ROUNDS:
        # A shard that nobody manages to serve is not under way, and must not hold up those behind it.
        return Handed(0, 0)
    return Handed(int(props["resent"]), int(props["events"]))


class Pace:
    """The time-line as one sweep sees it: `taken` are the index rows of shards that are past their wake-up. `rate`: events a second."""

    def __init__(self, taken: Iterable[Props], now: Millis, rate: int) -> None:
        self._rate = rate
        self._end = now + BACKLOG_HORIZON
        self._room = rate * BACKLOG_UNDER_WAY // 1000
        self._under_way: Counter[str] = Counter()
        line = now
        for props in taken:
            place = handed(props)
            line = max(line, place.at)
            self._under_way[str(props["tenant"])] += place.events
        self._line = float(line)

    @property
    def full(self) -> bool:
        """No further place can be given to anybody now."""
        return self._line >= self._end or self._under_way.total() >= self._room

    def admits(self, tenant: str) -> bool:
        """Whether a shard of the tenant can be given a place."""
        return not self.full and self._under_way[tenant] < self._room * BACKLOG_TENANT_SHARE

    def place(self, tenant: str, events: int) -> Millis:
        """The next place: the end of the time that these events take. Call it only while `admits` the tenant."""
        counts = weight(events)
        self._line += counts * 1000 / self._rate
        self._under_way[tenant] += counts
        return round(self._line)


def in_turn(rows: Iterable[Row]) -> list[Row]:
    """Oldest first in each tenant, and the tenants in turn: one's outage does not put another's behind it."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, Millis, str, Row]] = []
    for row in sorted(rows, key=lambda row: (int(row.props["wake"]), row.rk)):
        tenant = str(row.props["tenant"])
        ranked.append((turns[tenant], int(row.props["wake"]), row.rk, row))
        turns[tenant] += 1
    return [row for *_, row in sorted(ranked, key=lambda each: each[:3])]


def is_late(row: Row, now: Millis) -> bool:
    """Whether the shard of an index row belongs to the backlog."""
    return in_backlog(int(row.props["wake"]), now)
