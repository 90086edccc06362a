"""The kinds of rows of tenants, keys, channels and the audit trail (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..storage.names import TENANTS
from .audit import AuditRecords
from .cache import MARKS, PK_CHANGES, ChangeMarks
from .channel_store import StoredChannel
from .rows import PK_TENANTS, Home, KeyRow

_KEY: Final = {
    "tenant": "the key's tenant",
    "uid": "incarnation of this tenant; the key is invalid under any other",
    "prefix": "the key's first characters, which name it in lists",
    "scopes": "its scopes, with commas between",
    "fleet": "fleet that it is bound to; absent for none",
    "node": "node that it is bound to; absent for none",
    "created": "time of its creation, in milliseconds",
    "expires": "time of its end, in milliseconds; absent for never",
    "used": "last day of use, such as 2026-11-23; absent if it was not used",
}

KINDS: Final = (
    StoredKind(
        "tenant",
        TENANTS,
        PK_TENANTS,
        "{tenant}",
        "A tenant and its settings.",
        Home,
        {
            "uid": "the tenant's incarnation: keys, channels, schedules and calendars with another uid do not count",
            "created": "time of its creation, in milliseconds",
            "body": "JSON of its settings",
            "declared": "when each searchable label was declared: `order=1800000000000`; absent for none",
            "deleting": "true once its deletion has begun",
            "gone": "true once all that belongs to it is deleted, and only events are left; absent before",
        },
        "The hourly retention, when the tenant is gone and no event of it is stored any more.",
    ),
    StoredKind(
        "key",
        TENANTS,
        "key:{hex}{hex}",
        "{digest}",
        "A key, by the SHA-256 of its text, for the look-up of calls. The text itself is nowhere stored.",
        KeyRow,
        _KEY,
        "Revocation of the key; deletion of the tenant.",
    ),
    StoredKind(
        "listed key",
        TENANTS,
        "t:{tenant}",
        "key:{text}",
        "The same key in its tenant's list, by its prefix.",
        KeyRow,
        {
            **_KEY,
            "digest": "SHA-256 of its text: the row key of the key's other row",
            "note": "the note that was given with it; absent for none",
            "live": "true once the other row is stored; a key without it was never handed out",
        },
        "Revocation of the key; deletion of the tenant.",
    ),
    StoredKind(
        "channel",
        TENANTS,
        "t:{tenant}",
        "channel:{channel}",
        "A channel: settings, generations of its secret, pause and circuit breaker.",
        StoredChannel,
        {
            "uid": "incarnation of its tenant",
            "created": "time of its creation, in milliseconds",
            "body": "JSON of its settings",
            "generation": "generation of its secret: the time of the last rotation, or of the creation; 0 for none",
            "previous": "generation before that; absent or 0 for none",
            "previous_until": "time until which this one is valid too",
            "rotated_at": "time of the last rotation; absent or 0 for none",
            "rotation": "name of the last rotation, as its caller gave it; absent for none",
            "paused": "true if no delivery may start",
            "reason": "reason of the pause",
            "paused_at": "time of the pause; 0 for none",
            "breaker": "JSON of the circuit breaker; empty while it is closed",
            "ended_holds": "JSON list of the latest pauses and openings that have ended; absent for none",
        },
        "DELETE of the channel; deletion of the tenant.",
    ),
    StoredKind(
        "change marks",
        TENANTS,
        PK_CHANGES,
        MARKS,
        "A random mark for each of 32 groups of tenants, replaced before a tenant, key or channel of the group changes. After a change by "
        "hand of a tenant, key or channel, processes may use the old row for a minute.",
        ChangeMarks,
        {"g{number}": "mark of the group"},
        "Nobody. If it is deleted by hand, the next change writes it anew.",
    ),
    StoredKind(
        "audit record",
        TENANTS,
        "audit:{month}",
        "{number}-{text}",
        "A record of an administrative call. The number is 9999999999999 less its time in milliseconds: the newest comes first.",
        AuditRecords,
        {
            "at": "time of the call, in milliseconds",
            "by": "prefix of the calling key, or `nobody`",
            "tenant": "tenant that was called for; absent for none",
            "action": "what was done, such as `channels.put`",
            "path": "path of the call",
            "outcome": "result; absent while it is unknown",
            "status": "status of the answer",
            "changes": "JSON list of changed fields, without secrets",
        },
        "The hourly retention, month by month, after 366 days.",
    ),
)
