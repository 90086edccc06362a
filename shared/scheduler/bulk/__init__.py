"""Bulk jobs: cancel, move, redrive or fire all events that match a filter."""
