"""Compares this machine's clock with that of the Instance Metadata Service (IMDS), by the `Date` of its answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...not_before import read_time

if TYPE_CHECKING:
    from ....core.clock import Millis

_STEP = 1000
"""`Date` has whole seconds, so the service's clock may have been this much later, in milliseconds."""


def clock_error(date: str | None, sent: Millis, received: Millis) -> float | None:
    """Return the seconds by which this machine's clock is at least ahead of the service's; negative if it is behind.

    0 while it may be right: the answer was made at an unknown moment between `sent` and `received`. None if `date` cannot be read.
    """
    service_time = read_time(date)
    if service_time is None:
        return None
    least, most = sent - service_time - _STEP, received - service_time
    return (least if least > 0 else min(most, 0)) / 1000
