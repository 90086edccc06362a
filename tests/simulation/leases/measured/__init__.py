"""Costs and times of well-behaved fleets, counted on virtual time."""
