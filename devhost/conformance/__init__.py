"""Conformance mode: tests a real storage account (`python -m devhost.conformance`). See docs/reference/local-host.md.

naming     the names of a run's tables and queues
access     opens tables and queues of the account under those names, and counts what they do
removal    finds and removes the tables and queues of runs
suite      runs tests/conformance in a pytest of its own, with `plugin`
service    checks the behaviour of the storage service itself
load       runs the scheduler on the account
triggers   plays the host for the scheduler: queue messages and timers
report     prints lines, estimate and figures, or JSON
"""
