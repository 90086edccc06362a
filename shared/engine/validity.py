"""Validity: the time for which a holder may act, and after which another may take over, on clocks that run at slightly different speeds.

A holder measures from the SENDING of the request that gave or renewed its right; a process that waits for its end measures from a later
moment, the write or the RECEIPT: `SentAt` and `ReceivedAt` are types of their own, on the steady clock of this process. So readings of two
machines' clocks are never compared; only the clocks' speeds matter.
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
        """Return the end of the right that this request renewed: the owner may act before that. Seconds of the steady clock."""
        return self.seconds + validity


@dataclass(frozen=True, slots=True)
class ReceivedAt:
    """A moment not earlier than that at which an answer reached this process. Seconds of the steady clock."""

    seconds: float

    def ripens(self, takeover: float) -> float:
        """Return the moment from which on others may take over, if nothing has changed since this answer. Seconds of the steady clock."""
        return self.seconds + takeover
