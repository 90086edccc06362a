"""Long work: a receiver accepts an event, and completes or fails it minutes or hours later.

    model      wire models
    service    carries the calls out
    call_rates bounds the calls of a process

`routes.long_work` has the calls of receivers, which need the attempt's token and no key. `facets.long_work` has the token and the URL of an
attempt, and what becomes of the event. `work_rows` has the stored property, and `protocol.completing` the steps.
"""
