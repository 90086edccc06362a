"""The checks of a run, the number of their requests, and the durations."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


class Check(StrEnum):
    """The checks that `--only` can choose. A valid delivery, and a second one, are always sent."""

    # In the order in which they are sent, except the last two.
    DUPLICATES = "duplicates"
    PARALLEL = "parallel"
    CE_ID = "ce-id"
    SIGNATURE = "signature"
    TIMESTAMP = "timestamp"
    ROTATION = "rotation"
    BYTES = "bytes"
    TEXT = "text"
    EMPTY = "empty"
    LARGE = "large"
    HEADERS = "headers"
    SLOW = "slow"
    LATE = "late"
    IDLE = "idle"


REQUESTS: Final[Mapping[Check, int]] = MappingProxyType(
    {
        Check.SIGNATURE: 4,
        Check.TIMESTAMP: 2,
        Check.ROTATION: 3,
        Check.BYTES: 1,
        Check.TEXT: 1,
        Check.EMPTY: 2,
        # Two more find the size that is taken.
        Check.LARGE: 3,
        Check.HEADERS: 2,
        Check.SLOW: 1,
        Check.DUPLICATES: 1,
        Check.PARALLEL: 5,
        Check.CE_ID: 1,
        Check.LATE: 1,
        Check.IDLE: 1,
    }
)
"""The most requests that each check sends."""
STEPS: Final[Mapping[Check, Sequence[str]]] = MappingProxyType(
    {
        Check.SIGNATURE: ("forged", "unsigned", "changed", "after forged"),
        Check.TIMESTAMP: ("old", "future"),
        Check.ROTATION: ("right last", "right first", "newer scheme"),
        Check.BYTES: ("spaced",),
        Check.TEXT: ("text",),
        Check.EMPTY: ("empty", "null"),
        Check.LARGE: ("large",),
        Check.HEADERS: ("longest id", "large header"),
        Check.SLOW: ("slow",),
        Check.DUPLICATES: ("duplicate",),
        Check.PARALLEL: ("parallel",),
        Check.CE_ID: ("other ce-id",),
        Check.LATE: ("late",),
        Check.IDLE: ("idle",),
    }
)
"""The requests of each check, as the observations name them."""
_ALWAYS: Final = 5
"""The most requests besides: one for the token, the first delivery and its repetition by the other clock, and the second with its own."""
COUNT_READS: Final = 3
"""The most times that the count is read for each request, beside those after the first delivery."""
FIRST_COUNT_READS: Final = 12


IDLE: Final = 14.0
"""Seconds for which a connection stays unused: Tocsin keeps one for 15 seconds."""


@dataclass(frozen=True, slots=True)
class CheckPlan:
    """The durations and bounds of a run. Times are in seconds."""

    timeout: float = 15.0
    """The channel's time limit of an attempt."""
    grace: float = 5.0
    """Time for which an answer is awaited beyond a short time limit, at least."""
    rate: float = 10.0
    """Requests in a second at most, on average. The parallel copies are sent at once."""
    late: float = 16.0
    """Time from the first delivery to its late retry."""
    idle: float = IDLE
    """Time for which a connection is not used before a delivery goes over it."""
    stale: float = 360.0
    """Age of an old time stamp, and distance of one in the future. The standard's libraries allow 300 seconds."""
    pieces: float = 3.0
    """Time that a slow body takes."""
    largest: int = 256 * 1024
    """Bytes of the largest payload."""
    total: float = 300.0
    """Time after which the run ends with the lines so far. The wait for the late retry comes on top."""
    settle: float = 0.5
    """Time from an answer until the count is read again."""
    longest_settle: float = 5.0
    """The same for the first delivery, whose count is read until it changes."""
    again: bool = False
    """True if the receiver should know the events from an earlier run."""

    @property
    def patience(self) -> float:
        """Time for which an answer is awaited. It is longer than the time limit, so that a slow answer can be told from none."""
        return self.timeout + min(15.0, max(self.grace, self.timeout))


def requests_of(checks: Collection[Check], *, token: bool, counted: bool) -> int:
    """Return the most requests that a run sends. token: it looks for the token. counted: it reads a count of effects."""
    deliveries = _ALWAYS - 1 + sum(REQUESTS[each] for each in checks)
    return deliveries + token + (FIRST_COUNT_READS + COUNT_READS * deliveries if counted else 0)
