"""Time spans and counts of fleet maintenance that an operator of the service may want to change. Milliseconds.

What a fleet chooses for itself (leads, catch-up time, quorum, rules) is in `settings`.
"""

from __future__ import annotations

from typing import Final

from ..core.clock import Millis

BUSY_INTERVAL: Final[Millis] = 5_000
"""Interval at which an agent reports while an event is open on its node. `BUSY_SILENCE` must be several times as long."""

SHARED_INTERVAL_NODES: Final = 32
"""Nodes that may report every `BUSY_INTERVAL` while they only wait. Agents of a larger fleet report less often then, so that all together
report as often as this number, and no less often than every `WAITING_INTERVAL`."""

WAITING_INTERVAL: Final[Millis] = 20_000
"""Longest interval at which the agent of a large fleet reports while its node only waits. `BUSY_SILENCE` must be longer by the time of a
repeated report."""

WAITING_ENDS: Final[Millis] = 30_000
"""Time before partitions leave a node from which its agent reports every `BUSY_INTERVAL` in any case."""

IDLE_INTERVAL: Final[Millis] = 300_000
"""Interval at which an agent reports otherwise, plus or minus a tenth."""

BUSY_SILENCE: Final[Millis] = 30_000
"""An agent that should report every `BUSY_INTERVAL` is not counted on after this time without a report."""

IDLE_SILENCE: Final[Millis] = 3 * IDLE_INTERVAL
"""An agent that should report every `IDLE_INTERVAL` is not counted on after this time without a report."""

AGREEMENT_TIME: Final[Millis] = BUSY_SILENCE + 2 * BUSY_INTERVAL
"""Time for which agents may report different things of an event before the alarm `disagreement`. Agents learn of a change one after the
other, and the last report of an agent that has fallen silent counts for a while."""

GRANT_LEASE: Final[Millis] = 5_000
"""Time for which one agent has an approval to itself."""

APPROVAL_AWAY: Final[Millis] = 30_000
"""An approval that could not be sent to Azure for this long raises the alarm `approval-failed`; one that Azure refuses does at once."""

APPROVAL_TURN: Final[Millis] = 20_000
"""Time for which one agent may approve an event by itself before another one may: it hears so and sends it within seconds."""

GRANT_TRIES: Final = 5
"""Refused POSTs after which an approval expires."""

LONG_IMPACT: Final[Millis] = 1_800_000
"""An event that started this long ago and is still open raises the alarm `prolonged`."""

ABANDON_EVENT: Final[Millis] = 86_400_000
"""An event that only silent agents list is closed after this time."""

GONE_TWICE: Final[Millis] = 60_000
"""An event that only silent agents list is over once an agent that listed it reports twice, this long apart, that it does not any more."""

FORGET_NODE: Final[Millis] = 7 * 86_400_000
"""A node is removed when its agent has been silent for this long and no event is open on it."""

REHEARSAL_GRACE: Final[Millis] = 3_600_000
"""An unfinished rehearsal is closed this long after its impact."""

HAND_OFF: Final[Millis] = 30_000
"""Leases leave a node this long before it prepares, or earlier where the fleet's hand-off takes longer."""

RESERVE_AHEAD: Final[Millis] = 1_800_000
"""Time before a node prepares from which its event can have a reservation: Azure's usual notice is 15 minutes. An event that is announced
days ahead must not block all others."""

YIELD_AHEAD: Final[Millis] = 60_000
"""Time before a node prepares until which its event gives its reservation to one with an earlier NotBefore. Within it the agent hears that
it must wait, or counts the app as silent: it must be several times `WAITING_INTERVAL`."""

REFUSED_INTERVAL: Final[Millis] = 1_000
"""Interval at which an agent reports while it waits for permission to prepare, and its time has come."""

PROBE_AHEAD: Final[Millis] = 300_000
"""Agents probe as callers from this time before a node prepares, so that there is something to compare with."""

PROBE_AFTER: Final[Millis] = 3_600_000
"""Agents probe no longer than this, plus the fleet's catch-up time, after an event's end. Restoring takes a part of it."""

BASELINE_WAIT: Final[Millis] = IDLE_INTERVAL + IDLE_INTERVAL // 10 + BUSY_SILENCE
"""A rehearsal waits this long for the first results of the fleet's caller probe. An idle agent reports within this time."""

KEEP_EVENTS: Final[Millis] = 90 * 86_400_000
"""Time for which the ledger keeps an event that is over."""

ROWS_A_SECOND: Final = 100.0
"""Rows of one fleet's maintenance that a process reads in a second for the reports of its agents, on average. Azure serves 2,000 of a
partition, to all instances of the app together."""

FREE_ROWS: Final = 64
"""Rows of a read for reports that need no pause after it. Reports of a small fleet never wait."""

LONGEST_PAUSE: Final = 2.5
"""Seconds between two reads for reports at most, whatever the size of the fleet. Agents wait 10 s for an answer."""
