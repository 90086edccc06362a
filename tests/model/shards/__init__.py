"""The shard protocol under the checker: its world, plays and mutants."""
