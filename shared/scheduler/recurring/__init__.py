"""Recurring schedules: `cron` and `timing` compute occurrences, `rules` and `chain` turn each one into an event exactly
once, `service` offers the operations. `words` says how a cron expression was read."""
