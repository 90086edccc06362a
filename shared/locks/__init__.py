"""Locks that one caller holds at a time, with fencing tokens (docs/explain/leases.md, section Locks).

rules     decides about one lock: who gets it, who waits, who has lost it. Pure.
rows      the stored row of a lock
protocol  applies the rules to storage
service   serves callers and operators, and bounds the number of a tenant's locks
routes    `/v1/locks`
"""
