"""The shard protocol without I/O.

Every function here that touches storage is a generator: it yields an effect (`Get`, `Load`, `Write`, `Send`), is resumed with the effect's
answer, and returns its result. `AsyncRunner` (engine) runs the effects in production; the model checker in tests/model runs the same
generators over every interleaving of faults; the simulator runs them under seeded faults. So the checked model is the production code.

    ingest     opening a shard, filling it, client ids
    owning     take, load, claim and settle, rest, finish
    express    an owner that stores the events it delivers
    moving     copy first, then the pointer
    changing   cancel, edit, move and redrive, as users ask for it
    mirroring  copies in a second account, and the fence
    dispatch   index rows to messages, repair

`shard.gate` has the gate row, fencing after a lost answer, and sealing.
"""
