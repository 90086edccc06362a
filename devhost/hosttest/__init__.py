"""A black-box test of a Functions host that runs the app: `python -m devhost.hosttest`, or `make host-test`.

    driver      starts, stops and kills the host under test
    receiver    takes the deliveries
    checks      one function a check: requests, events, queues, timers
    restarts    one function a check: the host or its worker ends while events are delivered
"""
