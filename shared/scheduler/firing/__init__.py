"""Delivering the events of a shard: from the shard's message to settled events.

dispatch     from a shard's message to its owner
invocations  which invocation of a function serves a shard
owner        serves one shard until it rests or is finished
owner_tasks  its tasks: a timer for due times, and deliveries
keyed        which of its events have their turn in a line (`key_lines`)
attempt      one delivery attempt of a claimed event
express      events that are due now, delivered by the process that stores them
arrivals     those that reach a shard of `express` while it is served
"""
