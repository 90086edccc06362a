"""Validity: the time for which a holder may act, and after which another may take over, on clocks that run at slightly different speeds.

A holder measures from the SENDING of the request that gave or renewed its right; a process that waits for its end measures from a later
moment, the write or the RECEIPT (`moments`). So readings of two machines' clocks are never compared; only the clocks' speeds matter.

Moments on the steady clock of this process, as sent and received requests show them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

DRIFT: Final = 0.01
"""Largest relative error of a clock's speed."""


def outlasting(validity: float) -> float:
    """Return the shortest time on a fast clock that lasts at least as long as `validity` on a slow clock, in the unit of `validity`."""
    return validity * (1 + DRIFT) / (1 - DRIFT)


@dataclass(frozen=True, slots=True)
class SentAt:
    """A moment not later than that at which a request left this process. Seconds of the steady clock."""

    seconds: float

    def expires(self, validity: float) -> float:
        """When what this request renewed ends: the owner may act before that."""
        return self.seconds + validity


@dataclass(frozen=True, slots=True)
class ReceivedAt:
    """A moment not earlier than that at which an answer reached this process. Seconds of the steady clock."""

    seconds: float

    def ripens(self, takeover: float) -> float:
        """From when on what this answer showed has been unchanged long enough to be taken over."""
        return self.seconds + takeover
