"""Tests a real storage account: `python -m devhost.conformance`. See docs/reference/local-host.md.

    naming     the names of a run's tables and queues
    access     opens tables and queues of the account under those names, and counts what they do
    removal    finds and removes what runs have made
    suite      runs tests/conformance in a pytest of its own, with `plugin`
    service    checks of what the service itself does
    load       the scheduler over the account
    triggers   plays the host for the scheduler: queue messages and timers
    report     lines, estimate, figures, JSON
"""
