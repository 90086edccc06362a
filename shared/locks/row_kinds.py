"""The kinds of rows of locks (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from .rows import TABLE, LockRow

KINDS: Final = (
    StoredKind(
        "lock",
        TABLE,
        ":locks:{tenant}:{hex}",
        "{text}",
        "A lock and its queue; the row key is the lock's name. Times are the storage service's own.",
        LockRow,
        {
            "token": "fencing token of the last grant; it must never become lower",
            "state": "`held`, `free` or `revoked`",
            "holder": "name of the last holder",
            "nonce": "the holder's request, so that a repeated one gets the same answer",
            "validity": "validity of the grant, in milliseconds",
            "granted": "about the time of the grant, in milliseconds",
            "renewed": "time of the last renewal; 0: the time of the write that stored the row",
            "waiters": "JSON list of those who wait: holder, nonce, timeout, time of the last request, time of the first",
            "note": "reason of a revocation; absent for none",
            "author": "prefix of the key that revoked it; absent for none",
            "ended": "JSON list of attempts that get no grant any more: a mark of holder and nonce, and when each ended; absent for none",
        },
        "The next new lock of a tenant that is at its limit, if the lock has been free for a day; deletion of the tenant.",
    ),
)
