"""Recurring schedules: `timing` computes occurrences, `rules` and `chain` turn each one into an event exactly once, `service` offers the
operations."""
