"""Reasons of an event's lateness: the parts of its lateness, by reason. Pure.

An owner observes spans of time with a reason each. The part of an event's wait that a span covers has its reason; where spans overlap, the
one that is further up in `REASONS` counts. The parts are stored with the event (`waits`, JSON) when an attempt ends that began
`LATE_FROM` or more after its time, so a punctual delivery costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import orjson

from ...core.clock import Millis
from ...core.readable import readable_duration

LATE_FROM: Millis = 100
"""Lateness from which its reasons are noted."""
WAITS = "waits"
"""Property of an event row: milliseconds by reason, over all attempts."""

LateReason = Literal[
    "accepted-late",
    "paused",
    "breaker",
    "owner-lost",
    "rate",
    "concurrency",
    "storage",
    "ordering-key",
    "partition-owner",
    "not-taken",
    "retry",
    "other",
]
REASONS: Final[tuple[LateReason, ...]] = get_args(LateReason)
_RANKS: Final[Mapping[LateReason, int]] = {reason: rank for rank, reason in enumerate(REASONS)}
_TEXTS: Final[Mapping[LateReason, str]] = {
    "accepted-late": "it was due {} before it was stored",
    "paused": "its channel was paused for {} of its wait",
    "breaker": "it waited {} because the channel's circuit breaker was open",
    "owner-lost": "it waited {} because the process that served it had disappeared",
    "rate": "it waited {} for the deliveries per second of its channel or tenant",
    "concurrency": "it waited {} for earlier deliveries to its channel, tenant or process to end",
    "storage": "it waited {} for storage, which was slow or refused requests",
    "ordering-key": "it waited {} for earlier events of its ordering key or schedule",
    "partition-owner": "it waited {} for a server that owns the partition of its ordering key",
    "not-taken": "it waited {} until a process took it up",
    "retry": "it waited {} between failed attempts",
    "other": "{} have no recorded reason",
}


def expected_at(props: Mapping[str, Any]) -> Millis:
    """Return the time from which an event's lateness counts: the later of its due time and its acceptance.

    `since` takes the place of the acceptance where that is another time: of a change to a due time that was past, and of a schedule's
    occurrence, which the schedule accepted long before.
    """
    return max(int(props["due"]), int(props.get("since", props.get("asked", props["created"]))))


class Span(NamedTuple):
    """A span of time with a reason to wait. Times in milliseconds; the end is exclusive."""

    reason: LateReason
    first: Millis
    end: Millis


def split(first: Millis, end: Millis, spans: Iterable[Span]) -> dict[LateReason, Millis]:
    """Return the parts of the time from `first` to `end` that the spans cover, each instant counted once."""
    # Among many events due at one time all are late, and most spans end before an event's time: those are left out first.
    touching = [span for span in spans if span.first < end and span.end > first] if end > first else []
    if len(touching) == 1:
        [(reason, since, until)] = touching
        covered = min(until, end) - max(since, first)
        return {reason: covered} if covered > 0 else {}
    found: dict[LateReason, Millis] = {}
    free = [(first, end)]
    for span in sorted(touching, key=lambda span: _RANKS[span.reason]):
        left: list[tuple[Millis, Millis]] = []
        for start, stop in free:
            since, until = max(start, span.first), min(stop, span.end)
            if since >= until:
                left.append((start, stop))
                continue
            found[span.reason] = found.get(span.reason, 0) + until - since
            left += [part for part in ((start, since), (until, stop)) if part[0] < part[1]]
        free = left
    return found


def waits_of(props: Mapping[str, Any]) -> dict[LateReason, Millis]:
    """Return the noted parts of an event's lateness."""
    found: dict[LateReason, Millis] = orjson.loads(str(props[WAITS])) if WAITS in props else {}
    return found


def with_waits(props: Mapping[str, Any], more: Mapping[LateReason, Millis]) -> dict[str, Any]:
    """Return the change of an event's row that adds these parts; empty if there are none."""
    before = waits_of(props)
    added = {reason: before.get(reason, 0) + ms for reason, ms in more.items() if ms}
    return {WAITS: orjson.dumps(before | added).decode()} if added else {}


def between_attempts(props: Mapping[str, Any], last_attempt: Millis | None) -> Millis:
    """Return the planned pause before the present attempt, from the start of the one before, as far as the event is late in it."""
    return max(0, int(props["next"]) - max(last_attempt, expected_at(props))) if last_attempt is not None and "next" in props else 0


def late_because(props: Mapping[str, Any], late: Millis | None) -> Sequence[Mapping[str, Any]]:
    """Return the reasons as the API shows them, the longest first. late: milliseconds, of a delivered event."""
    if (WAITS not in props) if late is None else late < LATE_FROM:
        return ()
    parts: dict[LateReason, Millis] = {}
    for reason, ms in waits_of(props).items():
        # A later version, which works beside this one or was rolled back, may have other reasons.
        known = reason if reason in _RANKS else "other"
        parts[known] = parts.get(known, 0) + ms
    accepted_late = int(props["created"]) - expected_at(props)
    if accepted_late >= LATE_FROM and (late is not None or parts):
        parts["accepted-late"] = accepted_late
    if late is not None:
        left = late
        for reason in sorted(parts, key=_RANKS.__getitem__):
            parts[reason] = min(parts[reason], left)
            left -= parts[reason]
        parts = {reason: ms for reason, ms in parts.items() if ms}
        if left >= LATE_FROM:
            parts["other"] = parts.get("other", 0) + left
    ordered = sorted(parts.items(), key=lambda part: (-part[1], _RANKS[part[0]]))
    return [{"reason": reason, "ms": ms, "text": _TEXTS[reason].format(readable_duration(ms))} for reason, ms in ordered]
