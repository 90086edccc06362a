"""The events of a fan-out: their ids, and what their rows say of it."""
