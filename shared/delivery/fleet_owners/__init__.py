"""Deliveries of fleet channels: to whichever server owns the partition of an event's ordering key now.

model      a partition's owner as deliveries see it; the port that finds it (`leases.service.owner_lookup`)
rules      pure decisions: deliver, wait for another owner, or fail; pauses after stale answers
routing    remembers in one process since when partitions are held, and which servers do not answer
"""
