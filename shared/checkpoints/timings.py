"""Time spans and counts of checkpoint turns that an operator of the service may want to change. Milliseconds unless a name says otherwise.

What a fleet chooses for itself (timeouts, drift, silence, lag, interval) is in `settings`.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis

REPORT_INTERVAL: Final[Millis] = 5000
"""Interval at which a replica reports. A tenth of the fleet's `silence` applies where that is less. Storage cost grows with its inverse."""

STORE_CLOCK_STEP: Final[Millis] = 1000
"""Resolution of the storage service's time. Silence is judged with this much allowance."""

MARGIN: Final[Millis] = 2000
"""Part of a turn that is never handed out, because the storage service's time has steps of a second. At least two steps."""

MISSES_BEFORE_ALARM: Final = 3
"""Consecutive timed-out turns that raise the alarm `turns`."""

SILENCES_BEFORE_ALARM: Final = 3
"""Multiple of the fleet's `silence` during which no secondary may be fit for a turn before the alarm `turns` is raised."""

KEEP_TURNS: Final = 1000
"""Ended turns that are kept per fleet."""

KEEP_SILENT: Final[Millis] = 86_400_000
"""A replica that has been silent for this long is removed."""

MIN_RATE_SPAN: Final[Millis] = 30_000
"""Shortest time between two marks from which a clock's rate is judged. Over a shorter span `RATE_UNCERTAINTY` is larger than the error."""

MAX_RATE_SPAN: Final[Millis] = 120_000
"""Marks further apart are not compared: an old fault does not describe the clock now."""

RATE_UNCERTAINTY: Final[Millis] = 6000
"""Error of a rate measurement: one second of the storage service's time, and up to five seconds for which a report is under way."""

SETTINGS_AGE: Final = 5.0
"""Seconds for which a fleet's settings are used from memory. A change of the fleet takes effect after at most this long."""

MAX_FIGURES: Final = 100
"""Fleets with series of their own in the metrics, the first by name. Bounds the number of series and of reads."""

FIGURES_IN_FLIGHT: Final = 8
"""Concurrent reads of fleets for the metrics."""
