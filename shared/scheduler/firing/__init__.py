"""Delivering the events of a shard: from the shard's message to settled events."""
