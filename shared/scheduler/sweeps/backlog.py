"""The drain of a backlog: at a set rate, oldest first, tenants in turn. Pure: no I/O, no clock.

A sweep gives each overdue shard a place on a time-line, one after the other. A place is as long as the shard's events take at the set rate.
The sweep reads the places that earlier sweeps gave from the index rows: a place in the future shows how far the line reaches, and an
unfinished shard with a place in the past still counts as under way. So any number of sweeps, on any number of instances, share one line,
and nothing more has to be stored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from ...core.clock import Millis
from ...storage.ports import Props, Row
from ..rules import in_backlog
from ..timings import BACKLOG_HORIZON, BACKLOG_LEAST_EVENTS, BACKLOG_TENANT_SHARE, BACKLOG_UNDER_WAY, STUCK_ROUNDS


def counted_events(events: int) -> int:
    """Return the number of events that a shard with `events` open events counts as."""
    return max(events, BACKLOG_LEAST_EVENTS)


class BacklogPlace(NamedTuple):
    """The place that was given to a shard, as its index row notes it: time, and number of events; (0, 0) if it has none."""

    at: Millis
    events: int


def backlog_place(props: Props) -> BacklogPlace:
    """Return the shard's place from its index row."""
    if props["state"] != "sent" or not props.get("events") or int(props.get("rounds", 0)) >= STUCK_ROUNDS:
        # A stuck shard is not under way, and must not delay the shards behind it.
        return BacklogPlace(0, 0)
    return BacklogPlace(int(props["resent"]), int(props["events"]))


class BacklogDrain:
    """The time-line as one sweep sees it. taken: index rows of shards past their wake-up. rate: events per second."""

    def __init__(self, taken: Iterable[Props], now: Millis, rate: int) -> None:
        self._rate = rate
        self._end = now + BACKLOG_HORIZON
        self._room = rate * BACKLOG_UNDER_WAY // 1000
        self._under_way: Counter[str] = Counter()
        line = now
        for props in taken:
            place = backlog_place(props)
            line = max(line, place.at)
            self._under_way[str(props["tenant"])] += place.events
        self._line = float(line)

    @property
    def full(self) -> bool:
        """True if no further place can be given now."""
        return self._line >= self._end or self._under_way.total() >= self._room

    def admits(self, tenant: str) -> bool:
        """Return True if a shard of the tenant can be given a place."""
        return not self.full and self._under_way[tenant] < self._room * BACKLOG_TENANT_SHARE

    def place(self, tenant: str, events: int) -> Millis:
        """Return the next place: the end of the time that these events take. Call it only while `admits(tenant)` is True."""
        counts = counted_events(events)
        self._line += counts * 1000 / self._rate
        self._under_way[tenant] += counts
        return round(self._line)


def in_turn(rows: Iterable[Row]) -> list[Row]:
    """Sort oldest first within each tenant, and the tenants in turn, so that one tenant's outage does not delay another's events."""
    turns: Counter[str] = Counter()
    ranked: list[tuple[int, Millis, str, Row]] = []
    for row in sorted(rows, key=lambda row: (int(row.props["wake"]), row.rk)):
        tenant = str(row.props["tenant"])
        ranked.append((turns[tenant], int(row.props["wake"]), row.rk, row))
        turns[tenant] += 1
    return [row for *_, row in sorted(ranked, key=lambda each: each[:3])]


def is_late(row: Row, now: Millis) -> bool:
    """Return True if the shard of an index row belongs to the backlog."""
    return in_backlog(int(row.props["wake"]), now)
