"""Time spans and numbers of locks, each with its unit and its reason. Milliseconds unless a name says otherwise."""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis

MARGIN: Final[Millis] = 2000
"""Time between the end of a grant for its holder and for everybody else, beyond drift. The times of storage that are compared may come from
two of its machines, and `Date` has whole seconds; they are trusted to agree within this."""

LEAST_TTL: Final[Millis] = 2_000
MOST_TTL: Final[Millis] = 3_600_000
"""Bounds of the validity of a grant."""
DEFAULT_TTL: Final[Millis] = 30_000
LEAST_WAIT: Final[Millis] = 2_000
MOST_WAIT: Final[Millis] = 300_000
"""Bounds of the time within which a waiter must ask again."""
ASKED_STORED: Final[Millis] = 7_500
"""Time after which the row notes again that a waiter has asked, or half of its time-out if that is shorter."""
PRESENT: Final[Millis] = 25_000
"""Time since a waiter was last noted after which a free lock passes it over. A living one asks each `MOST_RETRY` at least, and is noted."""
MOST_WAITERS: Final = 100
"""Waiters of one lock. They are one property of its row, which may have 32 Ki characters."""

FIRST_RETRY: Final[Millis] = 500
"""Pause after which the first waiter should ask again. A released lock stays free at most this long while somebody waits."""
RETRY_STEP: Final[Millis] = 500
"""The pause of each further waiter is longer by this."""
MOST_RETRY: Final[Millis] = 5_000
"""Longest pause of a waiter."""

MOST_ENDED: Final = 64
"""Ended attempts that a row remembers: 2 KiB."""
ENDED_KEPT: Final[Millis] = 120_000
"""Time for which they are remembered, longer than a request is under way between a caller and the write of its grant."""

KEPT: Final[Millis] = 86_400_000
"""A lock that nobody holds keeps its row for at least this long after the last write. It is longer than any error of a wall clock that goes
unnoticed, because the tokens of a new row begin with the wall time."""
REMOVED_AT_ONCE: Final = 25
"""Rows of old locks that one call removes in each of the 16 partitions, one after the other, when the tenant has as many as it may."""
COUNT_FRESH_FOR: Final = 30.0
"""Seconds for which a count of a tenant's locks is used again."""
LIMIT_RETRY: Final = 30.0
"""Seconds in `Retry-After` when a tenant has too many locks."""
MOST_COUNTED: Final = 10_000
"""Tenants whose counts a process keeps."""
