"""The observations of one owner about when and why its events wait, from which a late event gets its reasons."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from itertools import chain, takewhile
from typing import Any, Literal

from ...core.clock import Clock, Millis
from ...delivery.channels.ports import Target
from ..attempt_history import history_of
from ..failures import UNREACHED
from ..late_reasons import LATE_FROM, LateReason, Span, between_attempts, expected_at, split

MOST_SPANS = 50
"""Spans of a kind that are remembered, the latest ones."""

type LaneReason = Literal["rate", "concurrency"]


class Waits:
    """The observations of one owner."""

    def __init__(self, clock: Clock, *, succeeds_lost: bool, asked_at: float) -> None:
        """succeeds_lost: the owner before this one disappeared. asked_at: monotonic time at which the request for the shard was sent."""
        self._clock = clock
        before: LateReason = "owner-lost" if succeeds_lost else "not-taken"
        self._before = Span(before, 0, clock.now() - round((clock.monotonic() - asked_at) * 1000))
        self._storage: deque[Span] = deque(maxlen=MOST_SPANS)
        self._full: dict[str, deque[Span]] = {}
        """By channel: when it could take no more."""
        self._keyed: dict[str, Millis] = {}
        """By event: the time since which it waits for its ordering key."""
        self._lost: dict[str, Millis] = {}
        """By event: the time until which it waited for its key at an owner that has disappeared."""
        self._unowned: dict[str, Millis] = {}
        """By event: the time since which it waits for the owner of its partition."""
        self.storage(asked_at)

    def storage(self, began: float) -> None:
        """Note a request to storage that has ended. began: monotonic time."""
        took = round((self._clock.monotonic() - began) * 1000)
        if took >= LATE_FROM:
            now = self._clock.now()
            self._storage.append(Span("storage", now - took, now))

    def keyed(self, event: str, since: Millis, lost: Millis = 0) -> None:
        """Note that an event waits for its ordering key. lost: until when it did so at an owner that has disappeared; 0 for none."""
        self._keyed.setdefault(event, since)
        if lost:
            self._lost.setdefault(event, lost)

    def unowned(self, event: str, since: Millis) -> None:
        """Note that an event waits for the owner of its partition."""
        self._unowned.setdefault(event, since)

    def full(self, channel: str, reason: LaneReason, until: Millis) -> None:
        """Note that the channel takes no more events before `until`, when it is looked at again."""
        now = self._clock.now()
        spans = self._full.setdefault(channel, deque(maxlen=MOST_SPANS))
        if spans and spans[-1].end >= now and spans[-1].reason == reason:
            now = spans.pop().first
        spans.append(Span(reason, now, max(now, until)))

    def parts(self, props: Mapping[str, Any], first: Millis, fired: Millis, target: Target, own: Span | None) -> dict[LateReason, Millis]:
        """Return the reasons for the wait of an attempt that should have started at `first` and started at `fired`, in milliseconds each.

        own: the time for which it waited in line.
        """
        found: dict[LateReason, Millis] = {}
        # Lateness may count from a later time: that of a change to a due time which was past.
        first = max(first, expected_at(props))
        if fired - first < LATE_FROM and "next" not in props:
            return found
        if fired - first >= LATE_FROM:
            event, before = str(props["id"]), self._before
            if event in self._lost:
                before = before._replace(first=self._lost[event])
            alone = [before] if own is None else [before, own]
            if (since := self._keyed.get(event)) is not None:
                alone.append(Span("ordering-key", since, fired))
            if (since := self._unowned.get(event)) is not None:
                alone.append(Span("partition-owner", since, fired))
            found = split(first, fired, chain(alone, self._observed(target, first)))
        if "next" in props:
            history = history_of(props)
            if pause := between_attempts(props, history[-1][0] if history else None):
                reason: LateReason = "partition-owner" if history[-1][1] == "stale" or props.get(UNREACHED) else "retry"
                found[reason] = found.get(reason, 0) + pause
        return found

    def _observed(self, target: Target, first: Millis) -> Iterable[Span]:
        """Return the spans that may matter to an event of `first`."""
        holds = [Span(hold.reason, hold.first, hold.end) for hold in target.ended_holds]
        # From the latest on: requests end one after the other, and most of them before any of a herd's events is due.
        storage = takewhile(lambda span: span.end > first, reversed(self._storage))
        return chain(holds, storage, self._full.get(target.name, ()))
