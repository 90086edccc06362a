"""Flow control per channel: the rate, the number of deliveries at once, and pauses.

    rules             what a channel can take now, and how a shared limit is divided: pure
    shared_limits     limits and rates that all instances share through table `TocsinLimits`
    lane              a channel in one process: its window, its load
    lanes             the deliveries of one process: turns in the lanes, slots per tenant and process
    service           the questions of owners before they claim, and their reports after deliveries

`delivery.circuit_breaker` has the states of the circuit breaker, which are stored with the channel. docs/explain/flow-control.md explains
all of it.
"""
