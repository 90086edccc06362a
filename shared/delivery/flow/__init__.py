"""Flow control per channel: how fast, how many at once, and whether at all.

    breaker   the circuit breaker's states: pure
    rules     what a channel can take now, and who may use a shared limit: pure
    limits    rates and concurrency, shared by all instances through table `TocsinLimits`
    lane      a channel in one process: its window, its load
    lanes     the deliveries of one process: turns in the lanes, slots per tenant and process
    service   what owners ask before they claim, and tell after they have delivered

docs/flow-control.md tells the whole.
"""
