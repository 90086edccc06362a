"""The ways by which events enter the scheduler: HTTP and queues.

admission           checks that need stored state (channels, limits, sizes), then the writer
writer              gathers events that arrive together into few transactions
open_shards         the shards that a writer fills
account_rotation    the storage account for the next shard
outbox              sends accepted events of durability `fast` to the ingest queue, many in one message
messages            the messages in the ingest queue: signed ones of the service, and producers' own
queue_consumer      `Intake`: takes events from queues; `Intake.take` serves other sources too
event_limits        the tenant's limits of open events and of rates
limit_notices       tells a tenant that a limit was reached
internal_events     events that the service itself makes, such as alarms
rejects             events that could not be accepted, kept for a week
"""
