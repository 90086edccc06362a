"""Flow control per channel: the rate, the number of deliveries at once, and pauses.

    rules             what a channel can take now, and how a shared limit is divided: pure
    rate_limiter      rates, shared by all instances through table `TocsinLimits`
    shared_limits     limits of deliveries per second and at once, shared likewise
    lane              a channel in one process: its window, its load
    lanes             the deliveries of one process: turns in the lanes, slots per tenant and process
    service           the questions of owners before they claim, and their reports after deliveries

`delivery.circuit_breaker` has the states of the circuit breaker, which are stored with the channel. docs/explain/flow-control.md explains
all of it.
"""
