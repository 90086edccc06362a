"""Planned wakes: plain messages that keep an instance of `fire_shard` alive before each wake-up, and find what timers do not find.

    rules      when a wake is needed, and for which times wakes are sent: pure
    protocol   reading the plan, asking for a wake, storing the plan: generators of effects
    service    what writers and owners of shards call; the second clock, which finds a timer that has stopped and asks for a sweep

The protocol is in docs/explain/wakes.md.
"""
