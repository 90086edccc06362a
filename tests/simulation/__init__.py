"""The scheduler, whole, on virtual time: several instances over one storage in memory, with seeded faults.

    loop        an event loop that jumps from timer to timer
    profile     what one history is like: rates of faults, sizes, workload; all drawn from its seed
    instance    one process of the app: its clock, its tasks, its death
    storage     tables and queues as an instance sees them, faults included
    host        what Azure Functions does: queue triggers, poison queues, timers, restarts
    receiver    where deliveries go
    workload    clients: create, cancel, change, move, fire, redrive
    oracle      what clients were promised, checked while it happens
    verdict     what must hold when all is quiet
    history     one seed, from start to verdict
    pair        histories of a mirrored pair: accounts go away and come back, an operator changes sides
    planted     known bugs, to prove that the simulation finds bugs

`python -m tests.simulation --seeds 1000`, or `--seed 17 --verbose` for the trace of one.
"""
