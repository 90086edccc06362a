"""Moments on the steady clock of this process, as sent and received requests show them."""

from __future__ import annotations

from dataclasses import dataclass


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
