"""Verifies what the protocols did in production: replays the lines of `storage.transition_trace` through the rules of the protocols.

lines      trace lines out of logs, exports and files
spool      the lines of a trace that may be larger than memory
history    the transactions of one partition, in the order that ETags prove
gates      judges a shard's gate and event rows
leases     judges a fleet's servers and partitions
turns      judges a fleet's turns
watch      verifies what this process does while it runs
verify     all partitions of a trace, and the report
"""
