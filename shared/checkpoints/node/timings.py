"""Time spans of a replica's participant, in seconds."""

from __future__ import annotations

from typing import Final

FIRST_INTERVAL: Final = 5.0
"""Interval between reports until the app has answered one; its answer sets the interval."""

WATCH_INTERVAL: Final = 0.25
"""Interval at which the clock and the replica's role are checked during a turn. Bounds how long a body runs on after a promotion."""

LAST_REPORT_TIMEOUT: Final = 5.0
"""Time that the last report may take when the participant ends."""

MIN_REMAINING: Final = 1.0
"""Time that a turn must have left to be begun."""

PUBLISH_PATIENCE: Final = 60.0
"""Time past a turn's limit for which its publish is retried."""

MAX_PUBLISH_PAUSE: Final = 5.0
"""Longest pause between two attempts to publish."""

GUARD_OVERTIME: Final = 1.0
"""Time past the limit after which a guard that has not ended counts as stopped or gone, and its program is killed directly."""
