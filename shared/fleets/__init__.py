"""Fleets: named groups of nodes, as their tenants define them. See docs/reference/fleets.md.

model       wire models of fleets and nodes
directory   creates, changes, lists and ends fleets; lists all fleets for the sweeps
nodes       views of nodes
routes      the API
watch/      finds problems of fleets, and raises alarms
"""
