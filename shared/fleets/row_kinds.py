"""The kinds of rows that list fleets and watch them (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..engine.sweeps import CURSORS, FleetCursor
from ..leases.rows import INDEX
from ..storage.names import FLEETS, SWEEPS
from .index import GONE, EndedFleet, FleetEntry
from .watch.state import WATCHED, parse_watch_state

_FLEET: Final = "{tenant}:{fleet}"

KINDS: Final = (
    StoredKind(
        "index entry of a fleet",
        FLEETS,
        INDEX,
        _FLEET,
        "Lists a fleet. It is written before the fleet's first row and removed after its last one.",
        FleetEntry,
        {"created": "time of the creation, in milliseconds", "ending": "true while the fleet is being deleted"},
        "DELETE of the fleet, last of all.",
    ),
    StoredKind(
        "ended fleet",
        FLEETS,
        GONE,
        _FLEET,
        "The highest epoch of a fleet that has ended: a new fleet of the name begins above it.",
        EndedFleet,
        {"epoch": "highest epoch of its partitions; it must never become lower", "at": "time of its end, in milliseconds"},
        "Deletion of the tenant.",
    ),
    StoredKind(
        "watch",
        SWEEPS,
        WATCHED,
        _FLEET,
        "The memory of a fleet's inspection: findings that are not alarms yet, and raised alarms.",
        parse_watch_state,
        {
            "seen": "fingerprint of the fleet at the last inspection",
            "looked": "time of that look, in milliseconds",
            "unserved": "partitions without a server",
            "stale": "partitions with a finding",
            "state": "JSON: `first` findings by kind, `alarms` by kind, `orders` by server",
        },
        "The hourly retention, when the fleet has ended. It may be deleted by hand: alarms are then raised again.",
    ),
    StoredKind(
        "position of a sweep",
        SWEEPS,
        CURSORS,
        "{text}",
        "The position from which a sweep over fleets continues; the row key is the sweep's name.",
        FleetCursor,
        {"after": "the last visited fleet, `{tenant}:{fleet}`"},
        "The sweep, when a tick has visited all fleets. It may be deleted by hand: the sweep begins with the first fleet.",
    ),
)
