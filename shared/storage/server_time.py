"""Bounds of a storage account's time, from the ETags of rows that were just written.

The Table service, and Azurite, put the row's Timestamp into its ETag: `W/"datetime'2026-11-22T20%3A52%3A57.1234567Z'"`. So the answer of
a write shows the service's time without a further request. An ETag of another form gives no bounds.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache

from ..core.clock import Clock, Millis, ServerTime, combine, sample, to_millis

_ETAG = re.compile(r"W/\"datetime'(\d{4}-\d\d-\d\dT\d\d)(?:%3[Aa]|:)(\d\d)(?:%3[Aa]|:)(\d\d)(?:\.(\d{1,3})\d*)?Z'\"")


@lru_cache(16)
def _second(text: str) -> Millis:
    return to_millis(datetime.fromisoformat(text))


def etag_time(etag: str) -> Millis | None:
    """Return the Timestamp in an ETag, cut to the millisecond; None where the ETag has another form."""
    found = _ETAG.fullmatch(etag)
    if found is None:
        return None
    hour, minute, second, fraction = found.groups()
    try:
        whole = _second(f"{hour}:{minute}:{second}+00:00")
    except ValueError:
        return None
    return whole + int((fraction or "0").ljust(3, "0"))


def time_etag(at: str, version: int) -> str:
    """Return an ETag of the service's form. at: RFC 3339 with three decimals. version: makes it unique within the millisecond."""
    return f"W/\"datetime'{at[:-1].replace(':', '%3A')}{version:04d}Z'\""


def steady_of(clock: Clock) -> Callable[[], float]:
    """Return the function that reads `clock`'s monotonic time in seconds; it advances while the machine sleeps, if the clock can do so."""
    return getattr(clock, "steady", clock.monotonic)


def elapsed_ms(clock: Clock) -> Callable[[], float]:
    """Return a function that reads the time of `steady_of` in milliseconds."""
    read = steady_of(clock)
    return lambda: read() * 1000


class ServerTimeEstimator:
    """The bounds of one account's time, as one process has observed them. Belongs to one event loop."""

    def __init__(self, clock: Clock) -> None:
        self.elapsed = elapsed_ms(clock)
        """Reads the monotonic time, in milliseconds, of the moments that `note` takes."""
        self.bounds: ServerTime | None = None
        self.samples = 0
        """The number of writes that gave bounds."""

    def note(self, sent: float, received: float, etags: Iterable[str]) -> None:
        """Take the ETags of a write's answer into account. sent, received: `elapsed` just before the request and just after the answer."""
        written = next((at for etag in etags if etag and (at := etag_time(etag)) is not None), None)
        if written is not None and received >= sent:
            self.bounds = combine(self.bounds, sample(sent, received, written))
            self.samples += 1
