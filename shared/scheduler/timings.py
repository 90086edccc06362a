"""The scheduler's time limits: one place for every duration that operators may tune or that several modules depend on.

`Millis` constants are milliseconds; floats are seconds. V and T below bound an ownership; they must keep their relation, because it is what
makes two owners of one shard impossible to confuse.
"""

from __future__ import annotations

from ..core.clock import Millis

MINUTE: Millis = 60_000
DAY: Millis = 86_400_000

# Ownership of a shard.

OWNER_MAY_START = 30.0
"""V, in seconds: an owner starts deliveries only this long after it sent its last heartbeat."""
OWNER_SILENT: Millis = 45_000
"""T: age of a gate, in the storage service's own time, from which another owner may take its shard.

T > V (1 + r) / (1 - r) + 1 s must hold, where r = 1 % is the allowed drift of a machine's clock. Mirrored accounts use V and T too.
"""
RECOVER_AFTER: Millis = 8_000
"""A process that has just started asks for a shard without an owner when it is past its wake-up by this: four polls of the queue. The time
counts from the start of the process at the earliest, because before it there may have been none that polled.

The same pause lies between two requests for a shard of a process that is proven to have ended.
"""
RECOVER_WITHIN: Millis = 10 * MINUTE
"""A process that has just started looks at shards whose wake-up is at most this long ago: an invocation is ended after ten minutes."""
RECOVER_AT = (0.0, 3.0, 6.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0)
"""Seconds after the start of a process at which it looks for them. The timers, which may be silent for a minute, take over from there."""
TAKEN_WITHIN = 10.0
"""Seconds for which a shard is asked for again while storage refuses: the host repeats a message that failed after half a minute."""
HEARTBEAT_EVERY = 10.0
"""Longest time in seconds between two transactions of an owner; each transaction is a heartbeat. Well below `OWNER_MAY_START`."""
OWNER_TICK = 1.0
"""Seconds between an owner's transactions while deliveries go on."""
SETTLE_WITHIN = 0.95
"""Longest time in seconds between a receiver's answer and the transaction that settles it: stored within a second."""
OWNER_SERVES_FOR = 240.0
"""Seconds after which an owner releases its shard and sends itself a message: a function call must end well before the platform's limit."""
LEAD_TAKES_FOR = 120.0
"""Seconds for which an invocation takes small shards that others hand to it.

It ends within seven minutes, because each of them is served for `OWNER_SERVES_FOR` and one delivery; the platform ends it after ten.
"""
CHANGES_FOR = 10.0
"""Seconds after its arrival for which a request without `If-Match` may change an event. Its client may have given up since, and made
another one. Less than the 25 s after which a call is answered, and more than a full minute's peak of storage takes."""
CLAIM_AHEAD: Millis = 3_000
"""Events are claimed this long before they are due, so that the claims are stored when the due time comes."""
REST_BEYOND: Millis = 4_000
"""An owner stays with its shard while the next event is due within this time; otherwise the shard rests.

An instance is billed while a function runs, and a new owner runs for about two seconds, because it comes before its event. Waiting
for less than that costs less than a new owner, waiting for much longer costs more. At least `CLAIM_AHEAD`.
"""
REST_BEYOND_BUSY: Millis = 20_000
"""The same in a process that serves `BUSY_OWNERS` shards or more: its instance is billed anyway, and waiting saves transactions."""
BUSY_OWNERS = 4
"""Number of shards that a process serves from which its owners stay for longer."""
SERVED_WITHIN: Millis = 5_000
"""Time after which the message of a shard becomes visible that the process serves itself at once."""
EXPRESS_AHEAD: Millis = 2_000
"""Events that are due within this time of their request are delivered by the process that stores them. Less than `CLAIM_AHEAD`.

An instance that only answers requests may be taken away while it waits, so it waits for no longer.
"""
EXPRESS_STAY = 2.0
"""Seconds that an owner of express delivery keeps its shard for the tenant's next event, if they follow each other as closely as that.

They then share a shard, which saves three transactions and a ledger row for each.
"""
EXPRESS_NAMED_APART = 0.15
"""Shortest time in seconds between two events of a tenant that have ids of the client and are delivered express.

Each needs a shard of its own, seven transactions and a ledger row; those that follow more closely share shards in the usual way.
"""
EXPRESS_LINGER = 0.3
"""Seconds that the same owner waits with the settlement of an event, if the next one can be expected by then: one transaction does both.

At most `SETTLE_WITHIN`. A process that is killed in that time has delivered events that will be delivered again.
"""
MOST_LOST_OWNERS = 10
"""Claims beyond the allowed attempts after which an event is dead because its owners keep ending without a result."""
CHANNEL_UNREAD_WAIT: Millis = 2_000
"""Wait of an event after its channel's settings could not be read."""
INTERNAL_FAILURE_WAIT: Millis = 60_000
"""Wait of an event after its delivery failed inside the service."""

# Dispatch: from the index to a shard's message.

SILENCE: Millis = 2 * MINUTE
"""The sweep may be silent for this long without a late delivery: after a crash the platform does not run timers for up to this long."""
DISPATCH_AHEAD: Millis = SILENCE + MINUTE
"""The sweep sends the messages of shards that wake within this time: its period, and `SILENCE`.

Writers send the message themselves for shards that wake sooner. The test kit's time travel uses it.
"""
SEND_AHEAD: Millis = 80_000
"""With planned wakes, the messages of small shards are sent this long before their wake-up: in time, although the sweep comes each minute
and may be 26 s late. The scale controller counts hidden messages too, so one that waits for longer may only add instances."""
SEND_BEHIND: Millis = MINUTE + 6_000
"""The same by the sweep while wakes come: it sends what they have not sent in time."""
SEND_EARLIER: Millis = SEND_AHEAD + MINUTE
"""The same while messages come earlier, because no wake keeps an instance (`wakes.rules.EARLIER`): then each wake waits for one."""
SEND_ALONE: Millis = 30_000
"""With planned wakes, a writer or owner sends the message of a small shard itself if it wakes within this time: the next look may come
too late. A look puts the messages of others together."""
BACKLOG_AFTER: Millis = SILENCE
"""Lateness from which an event or shard belongs to the backlog, which lets punctual events go first.

Equal to `SILENCE`: a sweep that was silent for that long has caused no outage yet.
"""
OCCURRENCES_AHEAD: Millis = DISPATCH_AHEAD + 2 * MINUTE
"""Occurrences of schedules become events this long before they are due.

A minute more than `DISPATCH_AHEAD`, since after a crash another process waits `CLAIM_TAKEN_OVER_AFTER` before it goes on with a claim, and
another one, since a sweep leaves out partitions in which the sweep before it found nothing (`CLEAR_FOR`).
"""
WAKE_EARLY: Millis = 3_400
"""The message of a shard with few events is asked for this long before its wake-up, so that a lone event's owner comes in time:

    1,000 ms  a message becomes visible at a whole second, up to a second later than it is asked for
    2,000 ms  an idle queue is polled every two seconds
      400 ms  the message is taken, the shard taken over, its event loaded and claimed, at a quarter of a core

Such an owner runs for less than two seconds on average, and an instance is billed for that.
"""
WAKE_EARLY_EACH = 3.2
"""Milliseconds that are added for each event of the shard: time to load and claim them before the first is due."""
WAKE_EARLIEST: Millis = WAKE_EARLY + round(990 * WAKE_EARLY_EACH)
"""The same time for a shard of 990 events, which is full: 6.6 s."""
MANY_EVENTS = 300
"""Number of events from which a shard gets a second message, as early as that of a full shard, if its first was timed for fewer."""
CROWDED_SLICE: Millis = 10_000
"""Length of the parts into which a minute is cut when it gets more events than one shard holds. Divides a minute."""
CROWDED_SECOND: Millis = 1_000
"""Length of the parts into which ten seconds of a crowded minute are cut when they have `CROWDED_SHARDS` full shards of one writer.

Divides `CROWDED_SLICE`. Owners of a part come at the same time. With thousands of events a second they would then load more rows than a
storage account serves in a second (20,000), and hold all slots of the queue trigger for ten seconds.
"""
CROWDED_SHARDS = 12
"""Full shards of ten seconds from which a writer fills the rest of them second by second.

With as many again, most shards of a second are full too. With few more, they save nothing, and cost a tenth more transactions.
"""
OPEN_BEFORE: Millis = 100
"""Longest time that a shard wakes before its first event: clients that post at the same time may be out of order by that much.

The shard's owner runs for that much longer.
"""
OPEN_BEFORE_MANY: Millis = 1_000
"""The same for the running minute's shards after the first `LONE_SHARDS`: fewer shards then save more than short owners."""
LONE_SHARDS = 3
"""Open shards of one minute from which a writer opens further ones earlier, so that they take more of the minute's events."""
STEADY_ROUNDS = 4
"""Resent messages of an unserved shard with an even pause; from then on each pause is twice the one before."""
STUCK_ROUNDS = 8
"""Resent messages after which an unserved shard is reported as stuck: a person should look. About a quarter of an hour."""
LONGEST_RESEND_PAUSE: Millis = 60 * MINUTE
"""Longest pause between two messages of an unserved shard."""
BACKLOG_RESEND_PAUSE: Millis = 5 * MINUTE
"""Shortest pause between two messages of an unserved shard in a backlog.

Messages of a backlog may wait in their queue for minutes; more messages would only lengthen the queue.
"""

# Backlog: how overdue shards are handed out.

BACKLOG_HORIZON: Millis = 30_000
"""Places in the drain are given this far ahead: twice the time between runs while shards are under way, so that a missed one leaves no gap.

At most a minute, because queue scalers count hidden messages.
"""
BACKLOG_LEAST_EVENTS = 20
"""Events that a shard counts as at least: to take, load and finish it costs about as much as 20 deliveries."""
BACKLOG_UNDER_WAY: Millis = 120_000
"""Work at the set rate that may be handed out and unfinished at once.

Where shards drain more slowly than they are handed out, the rest waits in the table and not in the queue.
"""
BACKLOG_TENANT_SHARE = 0.5
"""One tenant's largest part of `BACKLOG_UNDER_WAY`: a tenant with a slow receiver does not delay the others."""

# Bursts: how processes share the full shards of one instant (`firing/invocations.py`).

BURST_TOGETHER: Millis = 1_000
"""Full shards whose wake-ups differ by less than this are of the same time."""
BURST_SHARDS = 4
"""Full shards of the same time that a process takes before it leaves further ones to others: some 4,000 events, half of what it delivers
in a second."""
BURST_FROM = 8
"""Full shards of any time that a process serves before it leaves others: a herd of some thousand events waits for no further poll."""
BURST_GROWTH = 1.5
"""Factor by which a process takes more of them each time that a shard's message has been passed on."""
BURST_FEWER = 2
"""Number of full shards by which a process must serve fewer than the sender of a message, to take the shard in any case."""
BURST_PASSES = 5
"""Most times that the message of a shard is passed on. Each time costs three requests to a queue, and an execution."""
BURST_HELD_FOR = 2.0
"""Longest time in seconds for which a message is held before it is passed on: the longest pause between two polls of an idle process."""
BURST_ALONE = 0.8
"""Share of the messages that a process has passed on, and that have come back to it, from which it passes on no more."""
BURST_WATCHED_FROM = 2.5
"""Seconds after the first message that was passed on from which that share counts."""
BURST_WATCHED_FOR = 60.0
"""Seconds after which a process counts them anew, because others may have come."""

# Ingest.

HELD_FOR = 2.0
"""Seconds for which a process that announces many shards holds an announcement, so that others go in the same message."""
ANNOUNCE_TOGETHER: Millis = 2_000
"""Shards whose messages are to become visible within the same period of this length share one, which comes as early as the first needs."""
GROUP_WAIT = 0.003
"""Seconds that the first event of a transaction waits for others."""
ENOUGH_EVENTS = 16
"""Events that have gathered while the transaction before was under way, from which on the next one begins at once: so many share its cost,
and their callers wait."""
URGENT_FILL_TIME = 0.1
"""Seconds after which the message of a shard that is due at once is sent while the shard is still being filled.

Long enough for a batch, too short for a person to notice.
"""
MESSAGE_TAKEN_WITHIN: Millis = 2_000
"""A shard is written to for this long after its message became visible: the queue's longest pause between two polls.

A writer that comes later finds the shard taken and loses a request.
"""
ACCOUNT_AVOIDED_FOR = 30.0
"""Seconds for which no shard is opened in an account that did not answer."""
OPEN_EVENTS_RETRY = 10.0
"""Seconds in `Retry-After` when a tenant has too many open events."""
OPEN_COUNT_FRESH_FOR = 3.0
"""Seconds for which a count of a tenant's open events is used again."""
UNSETTLED_WAIT = 5.0
"""Seconds for which a request over the limit of open events waits for events that are being stored, and may have been counted twice."""
ENDS_NOTED_WITHIN = 1.0
"""Seconds for which a process gathers the ends of events that no owner makes, such as cancels, before it notes them for totals.

With the age of the oldest count in use, it is less than five seconds.
"""
LONGEST_INTAKE_PAUSE = 60.0
"""Longest pause in seconds between two attempts to store an event of the ingest queue."""
INGEST_LEASE = 30.0
"""Seconds for which a process hides a message of the ingest queue that it works on, counted from each renewal.

After a kill the message comes back this much later at most; with the start of a process and the pause between two polls (2 s), its events
are stored within a minute. The host's own lease of ten minutes cannot be changed.
"""
INGEST_LEASE_EVERY = 10.0
"""Seconds between two renewals: two of them may fail before the lease ends."""
INGEST_LEASE_WAIT = 1.0
"""Longest time in seconds that a message waits for its lease before its events are stored without it."""
LAST_TRY = 5
"""Deliveries of a message after which the host moves it to the poison queue: `maxDequeueCount` of host.json."""
CARRIED_FROM_TRY = LAST_TRY - 1
"""Delivery of a message of the ingest queue from which it is sent once more instead of being served: after three failures.

One before the last: a process that is killed between the new message and the delete of the old one leaves the old one a further try.
"""
NEWER_RETRY_DELAY = 15.0
"""Seconds before a message that only a newer version's process may serve is visible again: it may meet an older one several times."""
POISON_RETRY_DELAY = 60.0
"""Seconds before a message that failed several times is tried again."""
REDRIVE_FOR = 60.0
"""Seconds that one redrive request may take: the answer must come well before the platform's front end gives up."""

# Retention.

KEEP_FINISHED: Millis = 7 * DAY
"""A finished event can be looked up, and its id stays taken, for this long."""
KEEP_DEAD: Millis = 30 * DAY
"""Time for which finished events in a shard with dead events can be looked up, and their ids stay taken."""
KEEP_LINKED: Millis = DAY
"""A shard whose time is over is kept this much longer, repeatedly, while an event that began in it still exists elsewhere."""
LONGEST_QUEUE_WAIT: Millis = KEEP_FINISHED - 60 * MINUTE
"""Age up to which an event in the ingest queue is still scheduled when it comes out.

An older one may have been stored before, delivered and removed by retention: it is rejected.
"""
NOTE_AFTER = 2.0
"""Seconds without a new event after which a writer notes the number of events on a shard's index row; twice as long each further time."""
NOTE_FROM = 20
"""Events from which a shard's number is noted: a smaller one costs totals one read, and its events no transaction."""
RETENTION_RUN_FOR = 120.0
"""Seconds that one run of retention may take; the next run continues."""
RETENTION_GOES_ON_FOR = 40.0
"""Seconds of each minute for which retention goes on after a run that was too short. The sweep then ends before the next one."""
REJECT_RETENTION_RUN_FOR = 60.0
"""The same for rejects."""

# Recurring schedules.

DEFAULT_GRACE: Millis = 60_000
"""Lateness at which an occurrence counts as missed, unless its schedule says otherwise."""
CLOCK_SKEW: Millis = 60_000
"""Largest difference between the clocks of two instances at which a change cannot repeat an occurrence that has just fired."""
KEEP_DELETED_SCHEDULE: Millis = 600_000
"""A deleted schedule's row stays this long after the last event id that it may have used, so that a new one cannot use the id again."""
CHAIN_RUN_FOR = 45.0
"""Seconds after which a sweep of schedules starts no further page; the next sweep continues."""
CLAIM_TAKEN_OVER_AFTER = 25.0
"""Seconds after which a process goes on with occurrences that another one has claimed and not stored, counted from its first sight of them.

That is two runs of the job later. To store a batch takes far less, and `OCCURRENCES_AHEAD` has room for the wait.
"""
CLAIM_TAKEN_OVER_AT_LATEST = 240.0
"""The same for a process that claims the same occurrences at each tick, and does not manage to store them."""
SCHEDULE_COUNT_FRESH_FOR = 5.0
"""Seconds for which a count of a tenant's schedules is used again."""
SCHEDULE_LIMIT_RETRY = 10.0
"""Seconds in `Retry-After` when a tenant has too many schedules."""

# Mirrored accounts.

ID_CHECK_TIMEOUT = 1.0
"""Seconds that the first account has to say if it knows an id."""
ID_CHECK_PAUSE = 30.0
"""Seconds for which the first account is not asked about ids after it did not answer in time."""
FENCE_FRESH_FOR = 1.0
"""Seconds for which an observation of the fence is used again."""
FENCE_STALE_AFTER = 10.0
"""Age in seconds from which a request waits for a new observation of the fence instead of using the last one."""
FENCE_READ_TIMEOUT = 3.0
"""Seconds that a request waits for such an observation."""
MIRROR_ASKED_AGAIN_AFTER = 10.0
"""Seconds after which a mirrored shard is tried again when the second account could not say who serves it."""
MIRROR_COPY_EVERY = 5.0
"""Seconds between copies of a shard that is being served."""
FAILBACK_RUN_FOR = 300.0
"""Seconds for which the instance that began a failback carries it on; after that the timer does."""
FAILBACK_OVERLAP: Millis = 60 * MINUTE
"""A failback also compares shards that ended this long before the failover, because clocks differ."""
RECOPY_AFTER: Millis = 300_000
"""Age from which the timer carries out a request to copy a finished shard once more: its requester has ended."""
