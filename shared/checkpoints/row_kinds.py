"""The kinds of rows of checkpoint turns (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..storage.names import TURNS
from .protocol import GONE, report
from .rows import INDEX, LATEST, TURN, Group, LatestCheckpoint, ReplicaRow, TurnRow

_FLEET: Final = "{tenant}:{fleet}"
_TURN: Final = {
    "epoch": "number of the turn; 0 for none yet",
    "holder": "replica that has the turn",
    "state": "`granted`, `taking`, `done`, `timed-out` or `revoked`",
    "reason": "reason of a timeout: `limit`, `silent`, `restarted`, `promoted`, `failed` or `short`",
    "granted": "time before the granting write",
    "timeout": "milliseconds from then until the turn counts as lost",
    "attempt": "how often the turn was handed out",
    "handed": "time of the last hand-out",
    "handed_seq": "number of the report whose answer handed it out",
    "handed_life": "life of the replica that sent this report",
    "handed_mono": "the replica's own clock in this report",
    "handed_last": "sequence of the last checkpoint in this report",
    "limit": "milliseconds from the SEND of this report for which the replica has the turn",
    "sequence": "sequence of the checkpoint; 0 if none was published",
    "ended": "time at which the end was seen; 0 while it goes on",
    "note": "reason of a revocation",
    "author": "prefix of the key that revoked it",
    "late": "true: a checkpoint came after the end",
}
_GROUP: Final = {
    **_TURN,
    "primary": "replica with the highest claim to be primary",
    "term": "term of this claim",
    "lives": "number of registrations so far",
    "next_timeout": "timeout of the next turn; 0: the fleet's initial one",
    "durations": "durations of turns that were done late, oldest first, with commas between",
    "shares": "JSON list of replicas with their debt and the turns that they have waited",
    "misses": "turns in a row that timed out",
    "since": "time at which the first replica came",
}

KINDS: Final = (
    StoredKind(
        "turn",
        TURNS,
        _FLEET,
        TURN,
        "The present turn of a fleet, its primary, and all that the next grant depends on. Times are the storage service's own.",
        Group,
        {**_GROUP, "closed": "true while the fleet ends; absent otherwise"},
        "DELETE of the fleet, last of its rows (kind `last turn of an ended fleet`).",
    ),
    StoredKind(
        "ended turn",
        TURNS,
        _FLEET,
        "ended:{number}",
        "A turn that is over. The number is 10^15 less the epoch, in 16 digits: the newest comes first.",
        TurnRow,
        _TURN,
        "The hourly retention, beyond the last 1,000 turns; DELETE of the fleet.",
    ),
    StoredKind(
        "latest checkpoint",
        TURNS,
        _FLEET,
        LATEST,
        "The published checkpoint with the highest sequence.",
        LatestCheckpoint,
        {
            "epoch": "turn in which it was taken",
            "node": "replica that took it",
            "sequence": "sequence up to which it applies",
            "location": "where the replica has stored it",
            "size": "its size in bytes",
            "at": "time of the publication",
        },
        "DELETE of the fleet.",
    ),
    StoredKind(
        "replica",
        TURNS,
        _FLEET,
        "replica:{node}",
        "The last report of a replica.",
        ReplicaRow,
        {
            "life": "number of the replica's process, unique in the fleet",
            "seq": "number of the report in this life",
            "role": "`primary` or `secondary`, as reported",
            "term": "term of a claim to be primary",
            "at": "time of the report",
            "mono": "the process's own clock, in milliseconds",
            "born": "this clock at its first report",
            "incarnation": "the process's name for itself; empty for none",
            "applied": "sequence that the replica has applied",
            "lag": "its reported lag",
            "load": "its reported load",
            "failures": "its reported failures",
            "last_checkpoint": "sequence of its last checkpoint",
            "taking": "epoch of the turn that it takes; 0 for none",
            "ready": "true: it would take a turn",
            "fault": "fault of its clock, `fast` or `slow`; empty for none",
            "marks": "four numbers with commas between: own clock and time of two earlier reports, which the rate is judged by",
        },
        "The hourly retention, after a day of silence; DELETE of the fleet.",
    ),
    StoredKind(
        "index entry of turns",
        TURNS,
        INDEX,
        _FLEET,
        "Lists a fleet that has replicas, for the sweep.",
        report,
        {"at": "time of the registration that wrote it"},
        "The hourly retention, when no replica is left; DELETE of the fleet.",
    ),
    StoredKind(
        "last turn of an ended fleet",
        TURNS,
        GONE,
        _FLEET,
        "The last state of an ended fleet's turns: a new fleet of the name continues its epochs.",
        Group,
        _GROUP,
        "Deletion of the tenant.",
    ),
)
