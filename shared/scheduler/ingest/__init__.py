"""Events that come through a queue: durability `fast`, producers' own messages in `tocsin-ingest`, and what becomes of bad ones.

queued     ids of events that may not be stored yet: they show by themselves that this service gave them
messages   what is in the queue: our own signed parcels, and producers' letters
outbox     puts parcels into the queue, many events a message
consumer   `Intake`: takes events in from queues; `Intake.take` serves other sources too
rejects    what could not be taken in, kept for a week to be looked at
"""
