"""Seeded histories of a fleet on virtual time: the keeper's own loops, a network that loses and delays, processes that die and stand still.

    world      virtual time, the store, the network; tasks that drive generators
    node       one server process: the loops of `LeaseKeeper`, its callbacks, an application that writes under its epochs
    watch      the promises, checked at each change
    history    what happens in the history of a seed
    planted    known bugs, which must be found
    resizing   histories with resizes; `delivering` adds deliveries of a fleet channel to the owners of partitions

`world` and `node` know nothing of the histories: the benchmark uses them too.
"""
