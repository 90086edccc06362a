"""The agent's time spans, all in seconds. Those that only the agent's file sets are in `config.settings`."""

from __future__ import annotations

from typing import Final

# -- the loop

TICK: Final = 1.0
"""Interval of the loop's ticks. Gaps between them count as impact."""

STALLED: Final = 30.0
"""Time without progress after which the loop counts as hanging, and `/live` answers 503."""

SHUTDOWN_WAIT: Final = 8.0
"""Time for which the ending agent waits for a running hook: more than `HOOK_GRACE`."""

# -- the metadata service

FIRST_ANSWER: Final = 125.0
"""Time limit of the first answer: the service may need two minutes to enable events for a machine."""

LATER_ANSWER: Final = 5.0
"""Time limit of each answer after a good one."""

MIN_POLL_INTERVAL: Final = 0.25
"""Shortest time between two polls. The service answers five requests a second, for all processes of the machine together."""

MOST_RETRY_AFTER: Final = 20.0
"""Longest pause between two polls for which a refusal may ask: a Preempt has a notice of 30 s."""

LOOK_AHEAD: Final = 5.0
"""Time before something is due on the node from which the agent polls whatever a refusal asked for."""

IDENTIFY_INTERVAL: Final = 5.0
"""Pause between attempts to identify the machine."""

FIRST_LOOK: Final = 5.0
"""Time after its start for which the agent waits for a first poll before it relies on its saved events."""

APPROVAL_RETRY: Final = 15.0
"""Longest pause between two POSTs of one approval."""

USUAL_RESTORE: Final = 60.0
"""Time that a restore is assumed to take before the node's first."""

KEPT_RESTORES: Final = 5
"""Restores whose durations a node remembers."""

CLOCK_LIMIT: Final = 5.0
"""Difference between the clocks of the machine and of the service up to which no warning is given."""

# -- hooks

LEAD: Final = 30.0
"""Time before NotBefore at which a node prepares if neither its file nor its fleet sets a lead time."""

DEFAULT_DEADLINE: Final = 60.0
"""Time that a hook may run where the file sets no `deadline_seconds`. The last resort against a hook that hangs."""

HOOK_GRACE: Final = 5.0
"""Time between SIGTERM and SIGKILL of a hook."""

OVERDUE: Final = 30.0
"""Time after its deadline at which a hook that has not ended is logged."""

ASK_FIRST: Final = 5.0
"""Shortest pause between two runs of the hook `caught_up`."""

ASK_MOST: Final = 60.0
"""Longest pause between two runs of the hook `caught_up`."""

# -- the app, and probes

APP_ANSWER: Final = 10.0
"""Time limit of an answer of the app."""

FIRST_REPORT: Final = 5.0
"""Time within which the first report is sent if nothing has changed."""

SHORTEST_REPORT: Final = 0.5
"""Shortest time between two reports, whatever the app asks for."""

LONGEST_REPORT: Final = 900.0
"""Longest time between two reports, whatever the app asks for."""

USUAL_REPORT: Final = 300.0
"""Time between two reports where the app's answer does not say it."""

PROBE_READY: Final = 10.0
"""Time within which an agent that learns of the fleet's caller probe reports whether it can run it."""

NEAR_RETRY: Final = 5.0
"""Longest pause between two attempts to report while an event is near."""

FAR_RETRY: Final = 60.0
"""Longest pause between two attempts to report otherwise."""

PROBE_REQUEST: Final = 5.0
"""Time in which the client of a probe must send its request."""
