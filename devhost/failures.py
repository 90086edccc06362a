"""Show failed deliveries in the terminal: at most one line every ten seconds for each channel and kind of failure.

In production, metrics and the events themselves show failures. A developer looks at the terminal.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

log = logging.getLogger("devhost.deliveries")

SOURCE = "shared.scheduler.firing.attempt"
"""The logger that logs every failed attempt, at DEBUG."""
ACTION = "attempt_failed"
QUIET = 10.0
"""Seconds between two lines about the same channel and kind of failure."""


class Failures(logging.Filter):
    """Turns the app's records of failed attempts into lines for people. Other records pass as they would without the filter."""

    def __init__(self, url: str, now: Callable[[], float] = time.monotonic) -> None:
        """url: of the app, as a user reaches it."""
        super().__init__()
        self._url, self._now = url, now
        self._level = logging.NOTSET
        self._reported_at: dict[tuple[Any, ...], float] = {}
        self._suppressed: Counter[tuple[Any, ...]] = Counter()

    def attach(self) -> None:
        """Listens to the app."""
        source = logging.getLogger(SOURCE)
        self._level = source.getEffectiveLevel()
        source.setLevel(logging.DEBUG)
        source.addFilter(self)

    def detach(self) -> None:
        """Leaves the logger as it was."""
        source = logging.getLogger(SOURCE)
        source.removeFilter(self)
        source.setLevel(logging.NOTSET)

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True if the record is logged unchanged."""
        if getattr(record, "action", None) == ACTION:
            self._report(vars(record))
        return record.levelno >= self._level

    def _report(self, found: dict[str, Any]) -> None:
        topic = found["tenant"], found["channel"], found["state"]
        now = self._now()
        if now - self._reported_at.get(topic, -QUIET) < QUIET:
            self._suppressed[topic] += 1
            return
        self._reported_at[topic] = now
        more = self._suppressed.pop(topic, 0)
        log.warning(
            "delivery of %s to %s/%s failed, %s: %s%s; see GET %s/events/%s",
            *(found["event"], found["tenant"], found["channel"]),
            "will be tried again" if found["state"] == "retrying" else f"it is {found['state']}",
            found["error"],
            f" (and {more} more since the last line)" if more else "",
            *(self._url, found["event"]),
        )
