"""The outcome of a run: figures from the records of its events. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from math import ceil
from typing import Final

from ..core.clock import Millis
from .receivers import DeliveryRecord

OVERDUE: Final[Millis] = 1_000
"""An event belongs to the backlog from this time after its due time on until it has ended, in milliseconds."""
POINTS: Final = 120
"""Points of a drawn series."""


@dataclass(slots=True)
class FleetOutcome:
    """A fleet's figures. unowned: seconds that partitions had no owner, summed. Times in seconds; approved: from the beginning of a node's
    preparation to its approval, sorted."""

    partitions: int
    moves: int = 0
    unowned: float = 0.0
    longest_unowned: float = 0.0
    without_owner: int = 0
    """Partitions without an owner at the end."""
    approved: list[float] = field(default_factory=list)
    unapproved: int = 0
    turns: int = 0
    turns_failed: int = 0
    turns_late: int = 0
    series: list[tuple[float, float]] = field(default_factory=list)
    """Seconds after the beginning of the window, and the most partitions without an owner around that time."""


@dataclass(slots=True)
class RunOutcome:
    """The result of a run. Times in seconds, of the window."""

    events: int
    delivered: int
    dead: int
    unfinished: int
    """Events that were neither delivered nor dead when the run ended."""
    failed_attempts: int
    repeated: int
    late: list[float]
    """Seconds from due time to the beginning of the attempt that delivered, of each delivered event; sorted."""
    late_by_channel: dict[str, float]
    """By channel: the lateness that 99 of 100 events did not exceed."""
    largest_backlog: int
    drained_after: float | None
    """Seconds from the largest backlog until it was empty; None if it was not when the run ended."""
    ran_for: float
    """Seconds after the beginning of the window at which the run ended."""
    backlog: list[tuple[float, float]]
    lateness: list[tuple[float, float]]
    """Seconds after the beginning of the window, and the lateness that 99 of 100 events due around that time did not exceed."""
    fleets: dict[str, FleetOutcome] = field(default_factory=dict)

    def late_at(self, share: float) -> float:
        """Return the lateness that this share of the delivered events did not exceed."""
        return quantile(self.late, share)


def quantile(ordered: list[float], share: float) -> float:
    """Return the value that this share of the sorted values does not exceed; 0 without values."""
    return ordered[max(0, ceil(share * len(ordered)) - 1)] if ordered else 0.0


def outcome_of(records: Mapping[str, DeliveryRecord], first: Millis, over: Millis, dead: Set[str]) -> RunOutcome:
    """Return the figures of the events, by id. first: beginning of the window. over: end of the run. dead: ids of those given up."""
    # Schedules have occurrences before the window and after the run too.
    found = {name: record for name, record in records.items() if first <= record.due < over}
    late: dict[str, list[float]] = defaultdict(list)
    around: dict[int, list[float]] = defaultdict(list)
    width = max(1, (over - first) / POINTS)
    waits: list[tuple[Millis, Millis]] = []
    for name, record in found.items():
        ended = (record.ended or over) if record.delivered or name in dead else over + OVERDUE
        waits.append((record.due + OVERDUE, ended))
        if record.delivered:
            seconds = max(0, (record.arrived or record.due) - record.due) / 1000
            late[record.channel].append(seconds)
            around[min(POINTS - 1, int((record.due - first) / width))].append(seconds)
    most, drained, series = backlog_of(waits, first, over)
    delivered, given_up = sum(record.delivered for record in found.values()), sum(name in dead for name in found)
    return RunOutcome(
        events=len(found),
        delivered=delivered,
        dead=given_up,
        unfinished=len(found) - delivered - given_up,
        failed_attempts=sum(record.failed for record in found.values()),
        repeated=sum(record.repeated for record in found.values()),
        late=sorted(seconds for each in late.values() for seconds in each),
        late_by_channel={name: quantile(sorted(each), 0.99) for name, each in sorted(late.items())},
        largest_backlog=most,
        drained_after=drained,
        ran_for=(over - first) / 1000,
        backlog=series,
        lateness=[(number * width / 1000, quantile(sorted(each), 0.99)) for number, each in sorted(around.items())],
    )


def backlog_of(waits: Iterable[tuple[Millis, Millis]], first: Millis, over: Millis) -> tuple[int, float | None, list[tuple[float, float]]]:
    """Return the most events in the backlog, the seconds from then until it was empty (None: it was not), and a series of its sizes.

    waits: of each event, when it joins the backlog and when it ends; one that ends first never joins.
    """
    steps: Counter[Millis] = Counter()
    for joins, leaves in waits:
        if leaves > joins and joins <= over:
            steps[joins] += 1
            steps[leaves] -= 1
    width = max(1.0, (over - first) / POINTS)
    largest: dict[int, int] = {}
    size = most = at_most = 0
    emptied: Millis | None = None
    ends: dict[int, int] = {}
    for at in sorted(steps):
        if at > over:
            break
        point = min(POINTS - 1, max(0, int((at - first) / width)))
        before, size = size, size + steps[at]
        largest[point] = max(largest.get(point, before), size)
        ends[point] = size
        if size > most:
            most, at_most, emptied = size, at, None
        elif not size and emptied is None:
            emptied = at
    series, last = [], 0
    for point in range(POINTS):
        series.append((point * width / 1000, float(largest.get(point, last))))
        last = ends.get(point, last)
    drained = 0.0 if not most else (emptied - at_most) / 1000 if emptied is not None else None
    return most, drained, series
