"""Filters of events: what a list shows, and what a job acts on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from ...core.clock import Millis
from ..facets.finding import LISTED, ListedState, RowKind, in_state
from ..properties.attempts import history_of
from ..properties.work_rows import WORK, work_of
from ..protocol.moving import is_redriven
from ..rows import shown_state
from ..rules import GOING

type Labels = tuple[tuple[str, str], ...]
"""Labels that an event must have, each as name and value."""
_FILTERED = ("state", "channel", "due", "target_due", "created", "target", "size", "tries", WORK)


def _any(props: dict[str, Any]) -> bool:
    return True


@dataclass(slots=True, frozen=True)
class EventFilter:
    """The events that a list shows: due from `first` up to but not including `end`, in a state, of a channel, with labels."""

    first: Millis | None = None
    end: Millis | None = None
    channel: str | None = None
    wanted: Callable[[dict[str, Any]], bool] = _any
    """Returns True if the event with these properties, of those in `properties`, is to be shown."""
    state: RowKind | None = None
    """Shows events in this state only, which are found by state rows. A redriven event is not shown. `held`: events that are found by held
    rows, if they are `wanted`."""
    working: bool = False
    """With state `retrying`: True shows the events that receivers work on, False those that no receiver works on."""
    labels: Labels = ()
    prefix: str = ""
    """The beginning of the event's id."""
    error: str = ""
    """A part of the last error, in any case."""

    @property
    def properties(self) -> tuple[str, ...]:
        """The properties that the filter uses. Only these are read of events that are not shown."""
        labels = ("labels",) if self.labels else ()
        waits = ("next",) if self.state == "held" else ()
        return _FILTERED + waits + labels + (("error", "history") if self.error else ()) + (("id",) if self.prefix else ())

    @property
    def searches(self) -> bool:
        """True if the filter looks into every event that is left by due time and state."""
        return bool(self.labels or self.prefix or self.error)

    def shows(self, props: dict[str, Any]) -> bool:
        """Return True if the event of this row is to be shown. A moved or redriven event is shown at its new place only."""
        if self.state is not None and not in_state(props, self.state):
            return False
        if self.state == "retrying" and self.working == (work_of(props) is None):
            return False
        if props["state"] == "moved" or is_redriven(props) or (self.channel is not None and props["channel"] != self.channel):
            return False
        # An event that was overdue when it was accepted is filed under the time it was accepted.
        due = max(int(props["target_due"] if props["state"] in GOING else props["due"]), int(props["created"]))
        if (self.first is not None and due < self.first) or (self.end is not None and due >= self.end):
            return False
        if self.prefix and not str(props["id"]).startswith(self.prefix):
            return False
        if self.labels and not has_labels(props, self.labels):
            return False
        if self.error and self.error.lower() not in last_error(props).lower():
            return False
        return self.wanted(props)


def has_labels(props: Mapping[str, Any], labels: Labels) -> bool:
    """Return True if the event has each of the labels."""
    if "labels" not in props:
        return False
    found = orjson.loads(str(props["labels"]))
    return all(found.get(name) == value for name, value in labels)


def last_error(props: Mapping[str, Any]) -> str:
    """Return the reason why the event ended, or the error of its last attempt; '' if there is none."""
    if "error" in props:
        return str(props["error"])
    history = history_of(props)
    return str(history[-1][3] or "") if history else ""


def event_filter(
    first: Millis | None,
    end: Millis | None,
    channel: str | None,
    state: str | None,
    labels: Labels = (),
    prefix: str | None = None,
    error: str | None = None,
) -> EventFilter:
    """Return the filter that a request describes. state: as users see it."""
    wanted: Callable[[dict[str, Any]], bool] = _any
    listed: ListedState | None = None
    if state in LISTED or state == "working":
        listed = "dead" if state == "dead" else "retrying"
    elif state is not None:

        def wanted(props: dict[str, Any]) -> bool:
            return shown_state(props) == state

    return EventFilter(first, end, channel, wanted, listed, state == "working", labels, prefix or "", error or "")
