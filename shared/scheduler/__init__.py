"""The scheduler: timed events, stored in shards, delivered on time, retried, never lost. See docs/explain/scheduler.md.

Folders, from what callers set in motion down to what stores it. A folder imports only folders below it (`lint-imports` holds it):

    routes/       the HTTP API of all folders
    sweeps/       the timer's work: dispatch, repair, retention, recovery after a death, the drain of a backlog
    bulk/         cancel, move, redrive or fire all events that match a filter
    firing/       from a shard's message to settled events
    recurring/    schedules, calendars, and their occurrences
    changes/      cancel, edit, move, fire and redrive one event, or all of a fan-out; collapse
    outcomes/     callbacks, about ended events, and notices to tenants: the service stores both as events
    ingest/       admission, batches, queues: how events enter
    mirror/       a second account, failover and failback
    queries/      look-ups, lists, statistics, searchable labels, and events as callers see them
    key_lines/    ordering keys and schedules: events that are delivered one after the other
    wakes/        plain messages that keep an instance alive before each wake-up
    protocol/     the shard protocol: generators of effects, without I/O
    facets/       features that act at the points of the core: labels, callbacks, long work, answers, copies, fan-outs
    properties/   what an event's row has beside its state: attempts, receipts, reasons of lateness, what is owed
    shard/        the core: gate, ledger, ids of queued events, and retries

The files beside the folders: `model` (wire), `rows` and `keys` (stored), `rules` (pure decisions), `timings` (durations and their
reasons), `service` (the parts of one process, wired together), `shard_services` (what every part needs that touches shards),
`queue_functions`, `points` (where facets act), `failures` (what becomes of a failed attempt), `long_work` (receivers that complete an
event minutes or hours later), and `transition_rules` (legal changes of stored rows). `row_kinds/` declares every kind of stored row.

One event from POST to settled:

    1  routes/events       gets the parsed body; `web` has checked the key
    2  ingest/admission    checks channel, limits and sizes; `rows` makes the stored form, with the due time
    3  ingest/writer       gathers events that arrive together into the open shard of their minute; place and id follow from it
    4  protocol/ingest     writes the index row, then gate and events in one transaction; the POST is answered
    5  ingest/shard_filler sends the shard's message, to be visible shortly before the first event is due
    6  firing/dispatch     receives the message and takes the shard: `protocol/owning` makes it the owner by the gate's ETag
    7  firing/owner        claims what is due within 3 s, one transaction about each second
    8  firing/attempt      delivers at the due time, judges the answer, and decides about a retry
    9  protocol/owning     settles ended deliveries with the next claims; rests until the next wake-up, or finishes the shard
    10 shard/ledger        keeps the counts of the finished shard, after which its index row goes
"""
