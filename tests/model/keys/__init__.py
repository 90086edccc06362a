"""The model of ordering keys: production's generators for turns, with owners, a writer, crashes and lost answers."""
