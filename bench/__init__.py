"""Measures the figures of docs/explain/performance.md: `python -m bench` (or `make bench`).

    report      defines a figure, and writes the table as text, JSON and Markdown
    svg         the parts that the charts share
    events/     the figures of events: ingest, firing, lateness, transactions, processor time; the same herd with BullMQ and Redis
    growth/     the growth with the number of open events, tenants, schedules and channels
    leases/     the figures of leases, on virtual time and on Azurite
    scale/      loads for 1 to 64 instances on a model of Flex Consumption
    tools/      the environment: machine, storage, the app in this process or in a devhost, senders, receivers, a throttling proxy

Not part of the table: `bodies`, `lists`, `restarts` and `storage_raw`, which are programs of their own.

All traffic stays on this machine, and every measurement is bounded in count and time.
"""
