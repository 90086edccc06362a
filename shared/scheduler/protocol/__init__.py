"""The shard protocol without I/O.

Every function that touches storage here is a generator: it yields an effect (`Get`, `Load`, `Write`, `Send`), is resumed with what
came of it, and returns its result. `AsyncRunner` (engine) carries the effects out in production; the model checker in tests/model runs the
very same generators over every interleaving of faults; the simulator runs them under seeded ones. Model = code.

    gate       the gate row, fencing after a lost answer, sealing
    ingest     opening a shard, filling it, client ids
    owning     take, load, claim and settle, rest, finish
    changing   cancel, move, redrive
    dispatch   index rows to messages, repair
"""
