"""The ways by which events enter the scheduler: HTTP and queues.

admission        checks that need stored state (channels, limits, sizes), then the writer
writer           gathers events that arrive together into few transactions
open_shards      the shards that a writer fills, and the storage account for the next one
shard_filler     writes what waits for a shard: index row, events, message
messages         the messages in the ingest queue: signed ones of the service (`Outbox`: events of durability `fast`), and producers' own
message_lease    the lease that a process takes on such a message
queue_consumer   `Intake`: takes events from queues, and from other sources (`Intake.take`); events that the service itself makes
event_limits     the tenant's limits of open events and of rates, and notices that one was reached
rejects          events that could not be accepted, kept for a week
"""
