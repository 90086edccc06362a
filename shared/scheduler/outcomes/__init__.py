"""Outcomes of events that a tenant gets: callbacks and notices, which are events themselves."""
