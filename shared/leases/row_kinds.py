"""The kinds of rows of leases (`engine.row_kinds`)."""

from __future__ import annotations

from typing import Final

from ..engine.row_kinds import StoredKind
from ..storage.names import FLEETS, SWEEPS
from .rows import Fleet, Intent, Partition, Server
from .service.sweep_memory import PLANNED, LastPlan

_FLEET: Final = "{tenant}:{fleet}"

KINDS: Final = (
    StoredKind(
        "fleet",
        FLEETS,
        _FLEET,
        "fleet",
        "The definition of a fleet: partition count, profile, limits, and the parts of it that other jobs read.",
        Fleet,
        {
            "partitions": "partition count of the present generation",
            "beat": "heartbeat interval H of the profile, in seconds",
            "validity": "validity V of the profile, in seconds",
            "takeover": "takeover timeout T of the profile, in seconds",
            "most": "most partitions of one server; absent: the share of one of `minimum` servers",
            "claims": "most claims of a server in one cycle",
            "moves": "most moves of the fleet in a minute",
            "drain": "most seconds of a hand-off",
            "minimum": "servers that the fleet needs",
            "spare": "servers that the fleet wants beside those",
            "generation": "generation of the partition count; it grows with each resize",
            "former": "partition count before a resize that is under way, else 0",
            "closed": "true while servers that register must leave again: the profile changes, or the fleet ends",
            "changes": "number of writes by operators and the app; every such write raises it, so that two of them conflict",
            "rest": "JSON of the definition's other parts: checkpoints, maintenance, `created`",
        },
        "DELETE of the fleet, once no server lives.",
    ),
    StoredKind(
        "server",
        FLEETS,
        _FLEET,
        "s:{node}",
        "The heartbeat row of a server, with the plan's orders to it. Its time of writing is the time of the heartbeat.",
        Server,
        {
            "state": "`live`, `draining` or `dead`",
            "incarnation": "identity of the server's run",
            "beat": "number of the heartbeat; with `incarnation` it names the write",
            "domain": "fault domain",
            "capacity": "most partitions of the server; 0 for no limit of its own",
            "load": "the load that the server reports",
            "loads": "loads of its partitions, packed; absent: the server publishes none",
            "take": "partitions that the server must claim: numbers with commas between",
            "drop": "partitions that the server must release: numbers with commas between",
            "scans": "true: the server uses the library and scans the fleet; false: it speaks HTTP",
            "tell": "an operator's request, `exit` or `drain`; empty for none",
            "avoid": "partitions that the server prefers not to own",
            "generation": "newest generation of partitions that the server was informed of",
            "expect": "partitions that it takes over when their servers have ended: `s7:5,9 s8:12`",
            "holds": "partitions whose rows name this incarnation, as a bit map in hexadecimal digits; empty: not listed",
            "kept": "true: the run has ended and its partitions wait for the server's next run",
            "held": "HTTP only: owned partitions with epochs, `5:9,6:10`",
            "terms": "HTTP only: H and V in seconds at registration, `5:15`; empty for a server with the library",
            "spread": "HTTP only: generation and partition count that the server maps keys by, `2:8`",
            "release_by": "HTTP only: time by which a partition must be released; 0 for none",
            "evicted": "HTTP only: true if that time has passed, so that the server is refused",
            "released": "HTTP only: time of the last release; absent for none",
            "refused": "percent of its requests that storage refuses, while the server scans less often for it; else 0",
            "endpoint": "address at which it takes deliveries of fleet channels; absent for none",
        },
        "The hourly inspection, a day after its death, if no partition names its incarnation; registration of new HTTP servers, if there "
        "are too many rows; DELETE of the fleet.",
    ),
    StoredKind(
        "partition",
        FLEETS,
        _FLEET,
        "p:{number}",
        "The owner of a partition (five digits). Its epoch is the fencing token and must never become lower.",
        Partition,
        {
            "owner": "name of the server; empty for none",
            "incarnation": "run of the server that claimed it",
            "epoch": "fencing token; grows with each claim",
            "since": "time of the last claim or release, in milliseconds",
            "generation": "generation under which the row can be claimed",
            "closed": "true: the row cannot be claimed, because of a resize",
        },
        "DELETE of the fleet, which keeps the highest epoch (kind `ended fleet`).",
    ),
    StoredKind(
        "intent",
        FLEETS,
        _FLEET,
        "i:{text}",
        "A manual control or a maintenance drain. The key has verb, partition and server: `i:pin:00005:`, `i:drain::s1`.",
        Intent,
        {
            "verb": "`offline`, `prohibit`, `pin`, `drain`, `bump` or `maintain`",
            "partition": "number of the partition; -1 for a control on a server",
            "server": "name of the server; empty for none",
            "note": "the operator's reason, or the Scheduled Events of a maintenance drain",
            "author": "prefix of the key that made it",
            "created": "time of the request, in milliseconds",
            "expires": "time of its end; 0 for never",
            "epoch": "of a bump: the epoch to end",
            "exit": "of a drain: true if the server's process must end",
            "to": "of a drain: the server that gets the partitions; absent: the plan spreads them",
        },
        "The verb that revokes it; the sweep `lease_scan`, when it has expired or is done; DELETE of the fleet.",
    ),
    StoredKind(
        "last plan",
        SWEEPS,
        PLANNED,
        _FLEET,
        "The sweep's memory of its last plan for a fleet: a fleet that has not changed is not planned again.",
        LastPlan,
        {
            "seen": "fingerprint of the fleet at that time",
            "settled": "true: nothing was left to do",
            "at": "time of the plan, in milliseconds",
            "idle": "time at which a sweep found the fleet idle; absent: it is not",
            "needed": "servers that the fleet needs, while it is idle",
        },
        "The hourly retention, when the fleet has ended. It may be deleted by hand: the next sweep plans anew.",
    ),
)
