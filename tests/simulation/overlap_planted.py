"""Known bugs of schedules that do not overlap, to be planted one at a time: histories that cannot find these prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from shared.core.clock import Millis
from shared.scheduler.firing import keyed
from shared.scheduler.key_lines import protocol, rules, service
from shared.scheduler.key_lines.rules import NOT_BUSY, BusySpan, LineState
from tests.model.checking.mutants import patched


def ends_forgotten(state: LineState, busy: BusySpan, skipped: Any = ()) -> LineState:
    """A line that does not keep when its last event ended: an occurrence whose owner looks later is not skipped."""
    return _with_end(state, NOT_BUSY, skipped)


def every_end_counts(props: Mapping[str, Any]) -> BusySpan:
    """An end for which all that were due before it are skipped, although they were ahead of that event, or are its successors."""
    ended: Millis = int(props.get("ended", 0))
    return BusySpan(0, ended)


def no_limits(*_: Any) -> bool:
    """Events of schedules with overlap `queue` that do not line up."""
    return False


_with_end = LineState.with_end
type Place = tuple[object, str]
OVERLAP_PLANTED: dict[str, tuple[int, list[tuple[Place, Callable[..., Any]]]]] = {
    "an end is forgotten": (9, [((LineState, "with_end"), ends_forgotten)]),
    "an end counts for those ahead": (110, [((where, "busy_span"), every_end_counts) for where in (rules, service, protocol, keyed)]),
    "nobody lines up": (0, [((service, "has_line"), no_limits), ((keyed, "has_line"), no_limits)]),
}
"""By bug: the first seed to play, shortly before one that shows the bug, and what to patch."""


@contextmanager
def overlap_planted(name: str) -> Iterator[int]:
    """Plant the bug `name` in the app; yield the first seed to play."""
    first, places = OVERLAP_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield first
