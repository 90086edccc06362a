"""Two outcomes side by side: the run as it is, and the run with the change. Pure."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from .changes import BadChange, parse_duration_text
from .outcome import FleetOutcome, RunOutcome, quantile

SHOWN_CHANNELS: Final = 8
"""Channels with a line of their own: those whose lateness differs most."""


@dataclass(frozen=True, slots=True)
class ComparedFigure:
    """One figure of both runs. key: its name for --fail-if; empty if --fail-if cannot name it. unit: `s`, or empty for a count."""

    key: str
    name: str
    unit: str
    unchanged: float | None
    changed: float | None

    @property
    def difference(self) -> float | None:
        """The changed value less the unchanged one; None if one of them is missing."""
        return None if self.changed is None or self.unchanged is None else self.changed - self.unchanged


_EVENTS: Final[Sequence[tuple[str, str, str, Callable[[RunOutcome], float | None]]]] = (
    ("events", "events due", "", lambda found: found.events),
    ("late_p50", "lateness, half of the events", "s", lambda found: found.late_at(0.5)),
    ("late_p99", "lateness, 99 of 100 events", "s", lambda found: found.late_at(0.99)),
    ("late_max", "lateness, at most", "s", lambda found: found.late_at(1.0)),
    ("failed_attempts", "attempts that failed", "", lambda found: found.failed_attempts),
    ("dead", "dead events", "", lambda found: found.dead),
    ("unfinished", "events still open at the end", "", lambda found: found.unfinished),
    ("backlog", "largest backlog", "", lambda found: found.largest_backlog),
    ("drain", "time until it was empty", "s", lambda found: found.drained_after),
)
_FLEETS: Final[Sequence[tuple[str, str, str, Callable[[FleetOutcome], float | None]]]] = (
    ("moves", "moves of partitions", "", lambda found: found.moves),
    ("unowned", "partitions without an owner, summed", "s", lambda found: round(found.unowned, 1)),
    ("longest_unowned", "longest time without an owner", "s", lambda found: round(found.longest_unowned, 1)),
    ("without_owner", "partitions without an owner at the end", "", lambda found: found.without_owner),
    ("approval", "last approval after preparing began", "s", lambda found: found.approved[-1] if found.approved else None),
    ("approval_p50", "the same, half of the nodes", "s", lambda found: quantile(found.approved, 0.5) if found.approved else None),
    ("unapproved", "nodes without an approval", "", lambda found: found.unapproved),
    ("turns", "checkpoint turns", "", lambda found: found.turns),
    ("turns_failed", "turns that failed", "", lambda found: found.turns_failed),
    ("turns_late", "checkpoints that came too late", "", lambda found: found.turns_late),
)
KEYS: Final = tuple(key for key, *_ in (*_EVENTS, *_FLEETS))
"""The figures that --fail-if may name."""


def compare(unchanged: RunOutcome, changed: RunOutcome) -> list[ComparedFigure]:
    """Return the lines of the table."""
    lines = [ComparedFigure(key, name, unit, read(unchanged), read(changed)) for key, name, unit, read in _EVENTS]
    before, after = unchanged.late_by_channel, changed.late_by_channel
    names = sorted({*before, *after}, key=lambda name: (-abs(after.get(name, 0.0) - before.get(name, 0.0)), name))
    if len(names) > 1:
        title = "{}: lateness, 99 of 100 events"
        lines += [ComparedFigure("", title.format(name), "s", before.get(name), after.get(name)) for name in names[:SHOWN_CHANNELS]]
    for fleet, one in unchanged.fleets.items():
        two = changed.fleets[fleet]
        lines += [ComparedFigure(key, f"{fleet}: {name}", unit, read(one), read(two)) for key, name, unit, read in _FLEETS]
    return lines


_BOUND: Final = re.compile(r"([a-z0-9_]+)\s*(>=|<=|>|<)\s*(\S+)", re.ASCII)
_SIGNS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">": operator.gt,
    "<": operator.lt,
    ">=": operator.ge,
    "<=": operator.le,
}


@dataclass(frozen=True, slots=True)
class FailCondition:
    """A condition on the changed run for --fail-if, such as `late_p99>5s`."""

    text: str
    key: str
    sign: str
    value: float

    def met_by(self, lines: Sequence[ComparedFigure]) -> list[ComparedFigure]:
        """Return the figures that meet the condition. The time until an empty backlog is infinite if that never comes."""
        found = []
        for line in lines:
            if line.key == self.key:
                value = float("inf") if line.changed is None and line.key == "drain" else line.changed
                if value is not None and _SIGNS[self.sign](value, self.value):
                    found.append(line)
        return found


def parse_condition(text: str) -> FailCondition:
    """Return the condition. Raises `BadChange`."""
    found = _BOUND.fullmatch(text.strip())
    if found is None:
        raise BadChange(f"{text!r} is not a condition such as late_p99>5s or dead>0")
    key, sign, value = found.groups()
    if key not in KEYS:
        raise BadChange(f"{key!r} is not a figure; use one of {', '.join(KEYS)}")
    try:
        number = float(value)
    except ValueError:
        number = parse_duration_text(value) / 1000
    return FailCondition(text.strip(), key, sign, number)


def figure_text(value: float | None, unit: str, *, signed: bool = False) -> str:
    """Return a value as text: seconds with at most three digits after the point, counts with commas."""
    if value is None:
        return "-"
    sign = "+" if signed and value > 0 else ""
    if unit != "s":
        return f"{sign}{value:,.0f}"
    digits = 0 if not value else 3 if abs(value) < 1 else 1
    return f"{sign}{value:,.{digits}f} s"


def as_document(lines: Sequence[ComparedFigure], unchanged: RunOutcome, changed: RunOutcome) -> dict[str, Any]:
    """Return the table and the series for programs."""
    figures = [
        {
            "key": line.key,
            "name": line.name,
            "unit": line.unit,
            "unchanged": _rounded(line.unchanged),
            "changed": _rounded(line.changed),
            "difference": _rounded(line.difference),
        }
        for line in lines
    ]
    return {"figures": figures, "series": {"unchanged": series_of(unchanged), "changed": series_of(changed)}}


def series_of(outcome: RunOutcome) -> dict[str, list[list[float]]]:
    """Return the series of a run by title: points of seconds after the beginning of the window, and values."""
    found = {"backlog, events": outcome.backlog, "lateness of 99 of 100 events, s": outcome.lateness}
    found |= {f"{name}: partitions without an owner": fleet.series for name, fleet in outcome.fleets.items()}
    return {title: [[round(at, 3), round(value, 3)] for at, value in points] for title, points in found.items()}


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
