"""Recurring schedules: rules (when), chain (how each occurrence becomes an event, once), service (the verbs), functions (the doors)."""
