"""Schedules whose occurrences do not overlap: what their events carry, and what becomes of an occurrence that is skipped. Pure.

The events of such a schedule stand in a line of their own, as those of an ordering key do (`key_lines.rules`). Its name contains the
schedule's id and not the channel, and no user can name it.

    queue    each waits until those before it have ended
    skip     an occurrence is skipped if one before it has not ended when it becomes due
    wait     an event that a user asked for or fired, of a schedule that skips: it waits, and occurrences are skipped because of it
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple, cast

from ...core.clock import Millis
from ...delivery.channels.model import KeyLimits
from ...storage.ports import Props

OVERLAP: Final = "overlap"
"""Property of an event row: how it stands in the line of its schedule, and the schedule's id, such as `queue:nightly`. Absent: in none."""
SKIPPED: Final = "skipped"
"""Property of an occurrence that was skipped: True."""
KEY: Final = "key"
"""Property of an event row: its ordering key. An event has this or `OVERLAP`, or neither."""
ONE_BY_ONE: Final = KeyLimits(ordered=True)
"""The limits of such a line, whatever those of the channel are: a failed event blocks it until it has ended."""

type OverlapPolicy = Literal["allow", "skip", "queue"]
type LineKind = Literal["queue", "skip", "wait"]


class Overlap(NamedTuple):
    """The value of `OVERLAP`: how the event stands in the line, and the id of its schedule."""

    kind: LineKind
    schedule: str

    @property
    def text(self) -> str:
        """The value as stored."""
        return f"{self.kind}:{self.schedule}"

    @property
    def notes_ends(self) -> bool:
        """True if the line must know when its last event ended, because occurrences are skipped for it."""
        return self.kind != "queue"


def overlap_props(policy: OverlapPolicy | None, schedule: str, *, asked: bool = False) -> Props:
    """Return the properties of an event of a schedule. asked: a user asked for the event, so it is never skipped."""
    if policy is None or policy == "allow":
        return {}
    return {OVERLAP: Overlap("wait" if asked and policy == "skip" else policy, schedule).text}


def asked_props(props: Mapping[str, Any]) -> Props:
    """Return the change of an event that a user asks to be delivered now: an occurrence is not skipped any more."""
    found = overlap_of(props)
    return {OVERLAP: found._replace(kind="wait").text} if found is not None and found.kind == "skip" else {}


def overlap_of(props: Mapping[str, Any]) -> Overlap | None:
    """Return how an event stands in the line of its schedule; None if it stands in none."""
    if OVERLAP not in props:
        return None
    kind, _, schedule = str(props[OVERLAP]).partition(":")
    return Overlap(cast(LineKind, kind), schedule)


def has_line(props: Mapping[str, Any]) -> bool:
    """Return True for an event that may have to wait for others: it has an ordering key, or is of a schedule that does not overlap."""
    return KEY in props or OVERLAP in props


_REDRIVEN: Final = frozenset({"redrove", "came"})
"""Properties of an event that was redriven; of a mirrored one also if it was moved."""


def may_skip(props: Mapping[str, Any]) -> bool:
    """Return True for an occurrence that is skipped rather than waits. One that was attempted, or redriven, waits."""
    found = overlap_of(props)
    return (
        found is not None
        and found.kind == "skip"
        and props["state"] == "scheduled"
        and not props.get("tries")
        and not _REDRIVEN & props.keys()
    )


def skipped_props(props: Mapping[str, Any], behind: str, now: Millis) -> Props:
    """Return the change of an occurrence that is skipped. behind: the id of an event that had not ended; '' if it has ended since."""
    found = overlap_of(props)
    what = f"event {behind} had" if behind else "the occurrence before it had"
    schedule = found.schedule if found is not None else ""
    return {
        "ended": now,
        SKIPPED: True,
        "error": f"skipped: {what} not ended when this one became due; schedule {schedule} has overlap skip",
    }
