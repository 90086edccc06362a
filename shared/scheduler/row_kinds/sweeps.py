"""The scheduler's kinds of rows in `TocsinSweeps`: what makes events findable, positions of sweeps, bulk jobs, and the mirrored pair."""

from __future__ import annotations

from typing import Final

from ...engine.row_kinds import StoredKind
from ...storage.names import PK_TICKS, SWEEPS
from ...storage.several.account_stamps import STAMP_PK, STAMP_ROW, home_stamp
from ..bulk.rows import OPEN_ROW, PK_OPEN, BulkJob, addresses_of
from ..bulk.service import BulkJobs
from ..facets.finding import count_held, remove_stale
from ..mirror.failover import BACK_ROW, PROGRESS_ROW, Failover
from ..outcomes.notices import PK_NOTICES, NoticeRow
from ..protocol.mirroring import AGAIN_PK, ELSEWHERE_PK, FENCE_PK, FENCE_ROW, Fence, request_copy
from ..queries.end_notes import read_ends
from ..queries.label_index import LABELS_ROW, PK_PROGRESS, LabelIndex, LabelProgress
from ..queries.state_pass import STATES_ROW, StatePassProgress
from ..queries.totals import PK_TOTALS, Totals
from ..wakes.protocol import PK_PLAN, PLAN_ROW
from ..wakes.rules import Plan
from ..wakes.service import SWEEP_ROW, SweepTimes

_BUCKET: Final = "minute for which the shard was opened"
_COUNTS: Final = {name: f"events {name}" for name in ("accepted", "delivered", "retrying", "dead", "lapsed", "cancelled", "moved")}
_FINDABLE: Final = "A superfluous row costs one read; without the row, lists do not show the events."

KINDS: Final = (
    StoredKind(
        "plan",
        SWEEPS,
        PK_PLAN,
        PLAN_ROW,
        "What is known of the wakes in the shards' queue. A hint that saves messages: without the row, more wakes are sent.",
        Plan,
        {
            "looked": "time of the last look at the index, in milliseconds",
            "woke": "time of the last look by a wake",
            "wakes": "times of wakes in the queue, and of those of the last minute, with commas between",
            "seen": "the last wakes after a short pause: `w` for a process that lived, `c` for one that had to start",
            "close_until": "time until which wakes come closer together; 0 for never",
            "early_until": "time until which messages come earlier instead; 0 for never",
        },
        "Never.",
    ),
    StoredKind(
        "sweep times",
        SWEEPS,
        PK_TICKS,
        SWEEP_ROW,
        "When sweeps began. If the timer's is old, whoever works claims the next sweep here and asks for it by a message.",
        SweepTimes,
        {
            "began": "start of the timer's last sweep, in milliseconds; before the first one, of the first process that looked for one",
            "asked": "last time at which a sweep was asked for by a message; absent for never",
            "answered": "start of the last sweep for such a message; absent for never",
        },
        "Never.",
    ),
    StoredKind(
        "state row",
        SWEEPS,
        "{number}-{tenant}",
        "dead:{shard} or retrying:{shard}",
        f"Shows lists a shard that may hold dead, or retrying, events. {_FINDABLE}",
        remove_stale,
        {"bucket": _BUCKET},
        "The owner that finishes the shard (`retrying`), retention (`dead`), and a reader that finds it stale.",
    ),
    StoredKind(
        "held row",
        SWEEPS,
        "{number}-{tenant}",
        "held:{shard}",
        f"Says how many events of a shard wait for a paused channel or an open circuit breaker. {_FINDABLE}",
        count_held,
        {
            "bucket": _BUCKET,
            "epoch": "epoch of the owner that wrote it",
            "held": "JSON: by channel, due times in seconds with their counts",
        },
        "The owner that finishes the shard, and a reader that finds it stale.",
    ),
    StoredKind(
        "ends",
        SWEEPS,
        "ends:{number}",
        "{tenant}:{name}:{number}",
        "Events of a shard that users, or receivers that worked on them, have ended. Totals add those that the gate does not count yet. "
        "The last number of the row key is that of its first event.",
        read_ends,
        {
            **{
                state: f"events {state}: bits in hexadecimal, bit 0 for event 0"
                for state in ("delivered", "dead", "lapsed", "cancelled", "moved")
            },
            "retried": "events among them that waited for another attempt",
        },
        "The hourly retention, once the shard is finished.",
    ),
    StoredKind(
        "label row",
        SWEEPS,
        "labels:{number}-{tenant}",
        "{digest}:{shard}",
        f"Shows lists by a searchable label a shard; the digest is that of the label's name and value. {_FINDABLE}",
        remove_stale,
        {"bucket": _BUCKET},
        "Retention, with the events, and a reader that finds it stale.",
    ),
    StoredKind(
        "pass over labels",
        SWEEPS,
        PK_PROGRESS,
        "{tenant}",
        "The position of the pass that files the label rows of events which were stored before their tenant declared a label.",
        LabelProgress,
        {
            "declared": "the declarations that it is for",
            "done": "true once it is complete",
            "fresh": "true for a tenant that had no events before",
            "began": "time of its begin; 0 if it has not begun",
            "phase": "`index` or `ledger`",
            "place": "index partition of the next row",
            "key": "row key of the next row",
        },
        "Nobody.",
    ),
    StoredKind(
        "mark of passes over labels",
        SWEEPS,
        PK_TICKS,
        LABELS_ROW,
        "Tells the sweep whether there are passes over labels. Without it no tenant has declared a label.",
        LabelIndex,
        {"wanted": "true while there is one", "since": "time of the last failover, after which every pass is made again; 0 for none"},
        "Nobody.",
    ),
    StoredKind(
        "pass over states",
        SWEEPS,
        PK_TICKS,
        STATES_ROW,
        "The position of the pass that files the state rows of copies, after an account of a mirrored pair has taken over.",
        StatePassProgress,
        {
            "done": "true once it is complete",
            "phase": "`index` or `ledger`",
            "place": "index partition, or tenant, of the next row",
            "key": "row key of the next row",
        },
        "Nobody; the next failover or failback begins it anew.",
    ),
    StoredKind(
        "bulk job",
        SWEEPS,
        "jobs:{tenant}",
        "j:{text}",
        "A bulk job: what it does, how far it is, and its report. Times in milliseconds, 0 for none.",
        BulkJob,
        {
            "action": "`cancel`, `move`, `redrive` or `fire`",
            "chosen": "JSON of the filter",
            "created": "time of its creation",
            "due": "new due time of a move to one time",
            "by": "milliseconds by which a move changes due times; negative: earlier",
            "state": "`counting`, `counted`, `running`, `done`, `cancelled` or `expired`",
            "started": "time of its confirmation",
            "ended": "time of its end",
            "count": "number of counted events",
            "more": "true: there are more than a job takes",
            "sample": "JSON list of the first events",
            "confirmation": "text that confirms it",
            "cursor": "while counting: the position of the next page",
            "numbers": "number of rows with counted events",
            "at": "while running: the number of the row with the next events",
            "offset": "number of events of that row that are done",
            "done": "events that it has changed",
            "skipped": "events that it has left as they are",
            "failed": "events that could not be changed",
            "reasons": "JSON: number of these by reason",
            "failures": "JSON list of the first failures",
            "lease": "time until which a process works on it",
        },
        "The job `bulk_jobs`, 7 days after its end.",
    ),
    StoredKind(
        "counted events",
        SWEEPS,
        "jobs:{tenant}",
        "s:{text}:{number}",
        "Events of one shard that a bulk job has counted.",
        addresses_of,
        {"shard": "partition of the shard", "rows": "numbers of its events, with commas between"},
        "The job `bulk_jobs`, when the bulk job has ended.",
    ),
    StoredKind(
        "open job",
        SWEEPS,
        PK_OPEN,
        "{tenant}:{text}",
        "Lists a bulk job that still has rows.",
        BulkJobs,
        {"due": "time at which it is to be looked at; 0 for at once"},
        "The job `bulk_jobs`, together with the bulk job.",
    ),
    StoredKind(
        "mark of open jobs",
        SWEEPS,
        PK_TICKS,
        OPEN_ROW,
        "Tells the sweep whether there are bulk jobs. Without it no tenant has ever had one.",
        BulkJobs,
        {"open": "true while there are"},
        "Nobody.",
    ),
    StoredKind(
        "notices",
        SWEEPS,
        PK_NOTICES,
        "{tenant}:{text}",
        "The pending and the last notice of one kind to a tenant.",
        NoticeRow,
        {
            "count": "happenings that are in no notice yet",
            "first": "time of the first of them, in milliseconds",
            "last": "time of the last of them",
            "subjects": "JSON: the latest happening of each subject",
            "sending": "content of the notice that is being stored as an event; empty for none",
            "seq": "its number",
            "sent_at": "time at which its content was fixed",
            "open": "true while there is something to tell",
            "noted": "JSON: of hourly kinds, when each subject was noted",
        },
        "The next notice of a kind that the tenant does not want any more; deletion of the tenant.",
    ),
    StoredKind(
        "totals",
        SWEEPS,
        PK_TOTALS,
        "{tenant}",
        "The sums over all finished shards of a tenant. They only grow.",
        Totals,
        {
            **_COUNTS,
            "late": "JSON: by channel, the longest lateness, the sum, the number of dead events, and the histogram",
            "folded": "row keys of the news that were added last, so that none is added twice",
        },
        "The hourly retention, when the tenant is gone.",
    ),
    StoredKind(
        "stamp",
        SWEEPS,
        STAMP_PK,
        STAMP_ROW,
        "Identifies an account among several. An app that finds another stamp than it expects does not start: do not edit it.",
        home_stamp,
        {
            "place": "the account's place",
            "home": "identity of the home account",
            "places": "home account: all places that ever had an account",
            "pair": "identity of the mirrored pair; empty for none",
            "given_up": "home account: pairs that were given up",
            "overtaken": "first account: true while the second has served and this one is behind",
            "whole": "second account: true once it has a copy of everything",
        },
        "Nobody.",
    ),
    StoredKind(
        "fence",
        SWEEPS,
        FENCE_PK,
        FENCE_ROW,
        "In the second account of a mirrored pair: which account serves. Change it by `POST /api/v1/storage/failover` and `failback` only.",
        Fence,
        {
            "active": "`first` or `second`",
            "epoch": "number of changes; it must never become lower",
            "syncing": "true while neither serves, because the first is brought up to date",
        },
        "Nobody.",
    ),
    StoredKind(
        "failback",
        SWEEPS,
        FENCE_PK,
        BACK_ROW,
        "In the second account: a failback to the first was asked for.",
        Failover,
        {"epoch": "epoch of the fence that it is for", "since": "time from which shards that ended are copied, in milliseconds"},
        "A failover that cancels it; otherwise it stays and counts no more.",
    ),
    StoredKind(
        "progress of a failback",
        SWEEPS,
        FENCE_PK,
        PROGRESS_ROW,
        "In the second account: how far the last failback has come.",
        Failover,
        {
            "phase": "`copying` or `syncing`",
            "shards": "number of shards to copy",
            "copied": "of these, copied",
            "failed": "of these, not copied yet",
            "at": "time of writing, in milliseconds",
        },
        "Nobody; the next failback replaces it.",
    ),
    StoredKind(
        "shard to copy again",
        SWEEPS,
        AGAIN_PK,
        "{shard}",
        "A finished mirrored shard that was changed, and whose copy must follow.",
        request_copy,
        {},
        "The sweep, once the copy has followed.",
    ),
    StoredKind(
        "shard redriven elsewhere",
        SWEEPS,
        ELSEWHERE_PK,
        "{shard}",
        "In the second account: a shard that is not mirrored, whose redriven events the first account's ledger must note.",
        request_copy,
        {},
        "The sweep, once the ledger has them.",
    ),
)
