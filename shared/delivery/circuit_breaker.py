"""The circuit breaker of a channel: a pure state machine, stored with the channel, the same for all instances.

    closed --failures--> open --its time is over; one instance wins the write--> half-open --the probe is answered--> closed
                           ^                                                        |
                           +--------------- the probe fails: longer ----------------+

A failure is no answer at all (connection, time-out), 5xx, 408 or 429. A refusal is a 401, 403, 404 or redirect that is retried: hosts and
gateways give such answers in the place of a receiver that is away, and so does a receiver for one event that it does not know. Refusals of
three different events in turn, without a success between them, are failures. Any other answer shows that the receiver is alive.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Literal

import orjson

from ..core import backoff
from ..core.clock import Millis

IN_A_ROW = 5
"""Failures in a row that open the breaker."""
OF_EVENTS = 3
"""Different events among these failures: one event that its receiver cannot process says nothing about the others."""
SPAN: Millis = 30_000
"""Failures further apart than this are not counted together."""
LEAST = 20
SHARE = 0.5
"""Part of the attempts within a span, of at least `LEAST`, whose failure also opens the breaker."""
OPEN_FIRST: Millis = 5_000
OPEN_LONGEST: Millis = 120_000
"""Time that the breaker stays open before the next probe: doubles from the first to the longest."""
LONG_DOWN: Millis = 3_600_000
"""Time since the breaker opened after which probes become rarer."""
OPEN_LONG_DOWN: Millis = 900_000
"""Time that the breaker then stays open before the next probe."""
PROBE_LEASE: Millis = 90_000
"""Time after which an unfinished probe no longer counts: longer than any channel's time-out. Then another instance may probe."""

State = Literal["closed", "open", "half-open"]


@dataclass(frozen=True, slots=True)
class Breaker:
    """A breaker as stored. Times in milliseconds."""

    state: State = "closed"
    since: Millis = 0
    """Time at which it changed from closed to open."""
    until: Millis = 0
    """Open: time from which a probe may start. Half-open: time at which the probe is given up."""
    failures: int = 0
    """Failures that opened it, plus failed probes since."""
    opens: int = 0
    """Number of times it opened since it was closed; decides the next pause."""
    probe: str = ""
    """Half-open: the instance that probes."""
    error: str = ""
    """The last failure, on one line."""

    def text(self) -> str:
        """Return the stored form; '' for a closed breaker."""
        return "" if self == CLOSED else orjson.dumps(asdict(self)).decode()


CLOSED = Breaker()
type BreakerChange = Callable[[Breaker], Breaker | None]
"""Returns the new state of a stored breaker; None to leave it."""


def parse(text: str) -> Breaker:
    """Parse `Breaker.text`."""
    return Breaker(**orjson.loads(text)) if text else CLOSED


def is_failure(outcome: str, status: int | None) -> bool:
    """Return True if an attempt shows that the receiver is in trouble. outcome, status: as in a `Verdict`."""
    return outcome == "retry" and (status is None or status >= 500 or status in (408, 429))


def is_refusal(outcome: str, status: int | None) -> bool:
    """Return True if an attempt shows that the receiver is in trouble, unless it is the answer to one event alone."""
    return outcome == "retry" and status is not None and (status in (401, 403, 404) or 300 <= status < 400)


def fails_probe(outcome: str, status: int | None) -> bool:
    """Return True if an attempt does not show that the receiver of an open breaker is back."""
    return is_failure(outcome, status) or is_refusal(outcome, status)


def pause(opens: int, retry_after: float | None, down: Millis = 0) -> Millis:
    """Return the pause of the `opens`-th opening in a row: doubling, or `retry_after` if longer; at most the longest.

    down: time since the first opening. A receiver that has been down for `LONG_DOWN` is probed at an even, longer pause.
    """
    if down >= LONG_DOWN:
        return OPEN_LONG_DOWN
    wait = backoff.exponential(OPEN_FIRST, opens - 1, OPEN_LONGEST, 20)
    return wait if retry_after is None else min(OPEN_LONGEST, max(wait, round(retry_after * 1000)))


def opened(breaker: Breaker, now: Millis, failures: int, error: str, retry_after: float | None) -> Breaker | None:
    """Return the breaker after an instance counted enough failures; None if another instance opened it first."""
    if breaker.state != "closed":
        return None
    return Breaker("open", since=now, until=now + pause(1, retry_after), failures=failures, opens=1, error=error)


def probing(breaker: Breaker, now: Millis, who: str) -> Breaker | None:
    """Return the breaker while `who` probes; None if it is closed, its time has not come, or another instance probes."""
    if breaker.state == "closed" or now < breaker.until:
        return None
    return replace(breaker, state="half-open", until=now + PROBE_LEASE, probe=who)


def probed(breaker: Breaker, now: Millis, who: str, failed: bool, error: str, retry_after: float | None) -> Breaker | None:
    """Return the breaker after the probe of `who`; None if that probe no longer counts."""
    if breaker.state != "half-open" or breaker.probe != who:
        return None
    if not failed:
        return CLOSED
    opens = breaker.opens + 1
    until = now + pause(opens, retry_after, now - breaker.since)
    return replace(breaker, state="open", until=until, failures=breaker.failures + 1, opens=opens, probe="", error=error)


def _with(events: tuple[str, ...], event: str) -> tuple[str, ...]:
    """Add an event to the different events, as many as matter."""
    return events if len(events) >= OF_EVENTS or event in events else (*events, event)


@dataclass(slots=True)
class Tally:
    """One instance's observations of a channel."""

    began: Millis = 0
    good: int = 0
    bad: int = 0
    """Attempts since `began`, which is at most a span ago; and the events that failed."""
    bad_events: tuple[str, ...] = ()
    row: int = 0
    """Failures in a row, and their events."""
    row_events: tuple[str, ...] = ()
    last: Millis = 0
    """Time of the last failure."""
    refused: int = 0
    """Refusals since the last success that were not counted as failures yet, and their events."""
    refused_events: tuple[str, ...] = ()

    def _renew(self, now: Millis) -> None:
        if now - self.began > SPAN:
            self.began, self.good, self.bad, self.bad_events = now, 0, 0, ()

    def answered(self, now: Millis, *, delivered: bool) -> None:
        """Count an attempt that shows that the receiver is alive. delivered: the receiver has accepted the event."""
        self._renew(now)
        self.good += 1
        if delivered and self.refused_events:
            self.refused, self.refused_events = 0, ()
        if self.row:
            self.row, self.row_events = 0, ()

    def refusal(self, event: str, now: Millis) -> int:
        """Count a refusal; return the number of failures that open the breaker now, or 0."""
        self.refused += 1
        self.refused_events = _with(self.refused_events, event)
        if len(self.refused_events) < OF_EVENTS:
            return 0
        before, self.refused = self.refused - 1, 0
        if before:
            self._renew(now)
            self.bad, self.row, self.last = self.bad + before, self.row + before, now
            self.bad_events = self.row_events = self.refused_events
        return self.failed(event, now)

    def failed(self, event: str, now: Millis) -> int:
        """Count a failure; return the number of failures that open the breaker now, or 0."""
        self._renew(now)
        if now - self.last > SPAN:
            self.row, self.row_events = 0, ()
        self.bad, self.row, self.last = self.bad + 1, self.row + 1, now
        self.bad_events, self.row_events = _with(self.bad_events, event), _with(self.row_events, event)
        if self.row >= IN_A_ROW and len(self.row_events) >= OF_EVENTS:
            return self.row
        total = self.good + self.bad
        return self.bad if total >= LEAST and self.bad >= SHARE * total and len(self.bad_events) >= OF_EVENTS else 0
