"""Fleets: named groups of nodes, as their tenants define them. See docs/fleets.md.

    model       the fleet object and the view of a node, as they go in and out
    store       create, change, list, end; what the timers go through
    functions   the doors; what is seen of nodes is `leases.views`
"""
