"""A black-box test of a Functions host that runs the app: `python -m devhost.hosttest`, or `make host-test`.

driver      starts, stops and kills the host under test
receiver    takes the deliveries
checks      one function for each check: requests, events, queues, timers, health, log lines
restarts    one function for each check: the host or its worker ends while events are delivered
outage      storage is away while events are due
"""
