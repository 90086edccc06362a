"""The owners of partitions, for deliveries of fleet channels.

endpoint    the address that a server publishes
rules       decides which server takes a partition's deliveries now. Pure.
lookup      reads the rows for that, without I/O (`service.owner_lookup` runs it in the app)
"""
