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
"""Seconds between runs of the takeover sweep (job `lease_scan`) while there are fleets that are not idle. The alarms `silent` and
`unserved` allow two of them."""
TAKEOVER_RUNS_A_SWEEP: Final = 4
"""Runs of the takeover sweep in a minute. While all fleets are idle, only the first of them takes place."""

REOPEN_AFTER: Final = 60.0
"""Seconds after which the takeover sweep reopens a closed fleet: the change that closed it was interrupted. Longer than any such change."""

READ_PARTITIONS_EVERY: Final[Millis] = 240_000
"""Milliseconds after which the sweeps read a fleet's partition rows again, even if nothing seems to have changed. The gauges of partitions
can be as old as this."""

IDLE_AFTER: Final = 900.0
"""Seconds without a living server after which a fleet counts as idle. Longer than a restart of its servers takes: an idle fleet is visited
seldom, so a crash of all its servers soon after they start is noticed later."""

IDLE_EVERY: Final = 40
"""Runs of a sweep in which each idle fleet is visited once: 10 minutes for the takeover sweep, 40 for the inspection. All idle fleets
together cost a run as much as a fortieth of them."""

BALANCE_EVERY: Final[Millis] = 60_000
"""Milliseconds after which the takeover sweep plans again for a fleet of servers that speak HTTP while the loads that they publish are
uneven. Most of what keeps partitions from moving, such as the bound of moves in a minute, has changed by then."""

READ_DESERTED_EVERY: Final[Millis] = 6 * 3_600_000
"""Milliseconds after which the inspection reads the partition rows of a fleet without living servers again. Only a change of the fleet's
other rows, which is noticed earlier, or an edit by hand can change them."""

INTENT_LIFETIME: Final[Millis] = 3_600_000
"""Milliseconds after which a maintenance drain expires by itself; the maintenance sweep renews it when half of it is left."""
