"""The work of a receiver that completes its event later, as a property of the event's row.

The row is in state `retrying`, and its next attempt is due when the time of the receiver is over. A version that does not know the property
makes that attempt, and everything else of such an event is what it is for a retry: it is cancelled, moved, listed and counted as one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import orjson

from ...core.clock import Millis, to_text
from ...core.durations import format_duration

WORK = "work"
"""Property of an event row: the latest long work, as JSON. Absent if there was none."""

type WorkEnd = Literal["completed", "failed", "silent"]


class Work(NamedTuple):
    """The work that one attempt began. Times in milliseconds."""

    attempt: int
    """Number of the attempt."""
    epoch: int
    """Epoch of the owner that made it."""
    token: str
    """SHA-256 of the attempt's token, in hexadecimal digits."""
    began: Millis
    """Start of the attempt."""
    within: Millis
    """Silence for this long is a failed attempt."""
    latest: Millis
    """Time beyond which heartbeats do not extend the work."""
    beats: int = 0
    """Number of heartbeats."""
    beat: Millis = 0
    """Time of the last heartbeat; 0 for none."""
    end: WorkEnd | Literal[""] = ""
    """The way in which it ended; '' while it goes on."""

    def text(self) -> str:
        """Return the work as it is stored."""
        return orjson.dumps({name: value for name, value in self._asdict().items() if value not in (0, "")}).decode()


def noted_work(props: Mapping[str, Any]) -> Work | None:
    """Return the latest work that the row tells of, whether it goes on or not. Members that a later version adds are passed over."""
    text = props.get(WORK)
    if not text:
        return None
    found = orjson.loads(str(text))
    return Work(**{name: value for name, value in found.items() if name in Work._fields})


def work_of(props: Mapping[str, Any]) -> Work | None:
    """Return the work that goes on, or None. The row's `next` is the time at which silence becomes a failed attempt."""
    if props["state"] != "retrying" or WORK not in props:
        return None
    work = noted_work(props)
    # Work of an earlier attempt stays noted.
    return work if work is not None and not work.end and work.attempt == int(props.get("tries", 0)) else None


def shown_work(props: Mapping[str, Any], work: Work) -> dict[str, Any]:
    """Return the work as the API shows it."""
    found: dict[str, Any] = {
        "attempt": work.attempt,
        "since": to_text(work.began),
        "deadline": to_text(int(props["next"])),
        "latest": to_text(work.latest),
        "within": format_duration(work.within),
        "heartbeats": work.beats,
    }
    if work.beat:
        found["last_heartbeat"] = to_text(work.beat)
    return found
