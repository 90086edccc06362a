"""Long work: a receiver accepts an event, and completes or fails it minutes or hours later.

    tokens     the token and the URL of an attempt
    rules      what becomes of the event: pure
    model      wire models
    routes     complete, fail, heartbeat: called by receivers, with the attempt's token and no key
    service    carries the calls out
    call_rates bounds the calls of a process

`work_rows` has the stored property, and `protocol.completing` the steps.
"""
