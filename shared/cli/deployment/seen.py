"""The observations of a run: plain data, without a judgement."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Any, NamedTuple


class OffsetBounds:
    """Bounds of another clock's time minus this machine's, in seconds, from the `Date` of answers, which has whole seconds."""

    def __init__(self) -> None:
        self.low, self.high = -math.inf, math.inf

    def observe(self, date: str, before: float, after: float) -> None:
        """Narrow the bounds. date: an answer's `Date`. before, after: this machine's time around the request, in seconds."""
        try:
            moment = parsedate_to_datetime(date)
            # Without a zone it is UTC, as in any Date.
            told = (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, TypeError, IndexError, OverflowError):
            return
        low, high = told - after, told + 1.0 - before
        # If one of the clocks was set meanwhile, the bounds contradict: the newer ones count.
        narrower = max(self.low, low), min(self.high, high)
        self.low, self.high = narrower if narrower[0] <= narrower[1] else (low, high)

    @property
    def known(self) -> bool:
        """True after the first observation."""
        return self.low > -math.inf

    def ahead_of(self, other: OffsetBounds) -> float:
        """Return by how many seconds this clock is certainly ahead of the other one (negative: behind it); 0 if they may be equal."""
        if not (self.known and other.known):
            return 0.0
        return max(0.0, self.low - other.high) + min(0.0, self.high - other.low)


class Delivered(NamedTuple):
    """One delivery. Times in milliseconds since 1970."""

    id: str
    source: str
    due: int
    fired: int
    """Start of the attempt, by the sending process."""
    late_ms: int
    attempt: int
    inserted: int
    """Second in which storage got the message, by storage's clock: its beginning."""
    uptime_ms: int | None
    """Time for which the sending process had run; None: the service does not say."""
    version: str


class Look(NamedTuple):
    """One answer of `readyz`. at: seconds since the run began. wall: this machine's time in seconds. document: empty without an answer."""

    at: float
    wall: float
    status: int
    document: Mapping[str, Any]


@dataclass(slots=True)
class Probe:
    """One event of a run."""

    kind: str
    id: str = ""
    """Empty: the service did not accept it."""
    answer_ms: int = 0
    """Time that the answer to the request took."""
    error: str = ""
    """The reason why the event was not accepted or not cancelled, or the last error of its delivery."""
    state: str = ""
    """State of an event that did not arrive, by the service."""
    unread: str = ""
    """The reason why the service did not say that state."""
    deliveries: list[Delivered] = field(default_factory=list)

    @property
    def first(self) -> Delivered | None:
        """The first delivery."""
        return min(self.deliveries, key=lambda each: each.fired) if self.deliveries else None

    @property
    def late_ms(self) -> int:
        """Lateness of the first delivery: by the service, or by storage's clock if that proves more."""
        first = self.first
        return max(first.late_ms, first.inserted - first.due) if first is not None else 0

    @property
    def early_ms(self) -> int:
        """Milliseconds that storage proves a delivery to be early, or 0."""
        return max([0, *(each.due - each.inserted - 1000 for each in self.deliveries)])


@dataclass(slots=True)
class Seen:
    """The observations of a run."""

    client_version: str
    expected_version: str
    started: float = 0.0
    """This machine's time at the start, in seconds."""
    looks: list[Look] = field(default_factory=list)
    probes: list[Probe] = field(default_factory=list)
    service_offset: OffsetBounds = field(default_factory=OffsetBounds)
    storage_offset: OffsetBounds = field(default_factory=OffsetBounds)
    queue_status: int = 0
    """Status with which storage has refused the queue; 0: it has not."""
    queue_error: str = ""
    """The reason why the queue could not be created or read."""
    by_login: bool = True
    """True if the queue is read with a token of `az login`."""
    left: list[str] = field(default_factory=list)
    """Names of things that could not be removed, each with the reason."""

    def of(self, kind: str) -> list[Probe]:
        """Return the events of a check."""
        return [probe for probe in self.probes if probe.kind == kind]
