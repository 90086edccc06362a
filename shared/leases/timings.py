"""Durations of leases in the app, each with its unit, its reason, and what depends on it.

The heartbeat interval (H), the validity (V) and the takeover timeout (T) of each profile, the default one included, are `PROFILES` in
`profiles.py`. Thresholds of alarms are in `fleets/watch/alarms.py`.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis

FENCE_MARGIN: Final = 5.0
"""Seconds beyond T before the app fences a server or replaces its name. The age of a row is the difference of two times that storage cuts
to seconds, possibly on two machines. Takeover by the app, and the wait in 409 `name-in-use`, are later by as much."""

TAKEOVER_PERIOD: Final = 15.0
"""Seconds between runs of the takeover sweep (the schedule of the timer `lease_scan`). The alarms `silent` and `unserved` allow two of
them."""

REOPEN_AFTER: Final = 60.0
"""Seconds after which the takeover sweep reopens a closed fleet: the change that closed it was interrupted. Longer than any such change."""

READ_PARTITIONS_EVERY: Final[Millis] = 240_000
"""Milliseconds after which the sweeps read a fleet's partition rows again, even if nothing seems to have changed. The gauges of partitions
can be as old as this."""

INTENT_LIFETIME: Final[Millis] = 3_600_000
"""Milliseconds after which a maintenance drain expires by itself; the maintenance sweep renews it when half of it is left."""
