"""Deliveries to the owner of a partition: what leases know for them.

    endpoint    the address that a server publishes
    rules       pure: who takes a partition's deliveries now
    lookup      the reads that answer this, without I/O (`service.owner_lookup` runs them in the app)
"""
