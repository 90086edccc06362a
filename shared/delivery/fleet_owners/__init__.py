"""Deliveries of fleet channels: to whichever server owns the partition of an event's ordering key now.

    model      a partition's owner as deliveries see it; the port that finds it (`leases.service.owner_lookup`)
    rules      pure decisions: deliver, wait for another owner, or fail; pauses after stale answers
    routing    what one process remembers: since when a partition cannot be delivered to, and which servers do not answer
"""
