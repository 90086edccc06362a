"""Leases: at most one server of a fleet serves each partition. See docs/explain/leases.md.

    profiles          profiles: heartbeat interval H, validity V, takeover timeout T
    timings           durations of leases in the app
    rows              the stored rows of a fleet
    unreadable_rows   rows that were edited by hand and cannot be read
    rules             pure decisions of safety: who may act, who is silent, what may be claimed
    generations       pure decisions about a resize
    planner           pure decision of balance: the server of each partition; `planner_input` prepares its input
    protocol/         generators of effects, without I/O
    service/          runs in the app: servers that speak HTTP, takeovers, plans, manual controls, resizes, views
    owners/           the owners of partitions, for deliveries of fleet channels
    node/             runs in servers: `LeaseKeeper`, `FencedBatch` and `OwnerGuard`
    fleet_alarms      what defines an alarm of a fleet; `fleet_notices` tells the fleet's tenant
    model, routes     the API

The names that servers use are loaded on first use, so that the app does not import the blocking HTTP client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
    from ..core.node_logs.outputs import export_logs
    from ..core.partition_hash import hash_of_key, partition_of_key
    from ..storage.blocking import HttpTables
    from ..storage.ports import ANY, Applied, Delete, Insert, Merge, Replace, Upsert
    from ..storage.ports import WriteRefused as Refused
    from .node.fencing import FencedBatch, StaleEpoch
    from .node.keeper import FleetMissing, LeaseKeeper, NameInUse
    from .node.receiving import OwnedDelivery, OwnerGuard, RefusedDelivery

__all__ = [
    "ANY",
    "Applied",
    "Delete",
    "FencedBatch",
    "FleetMissing",
    "HttpTables",
    "Insert",
    "LeaseKeeper",
    "Merge",
    "NameInUse",
    "OutcomeUnknown",
    "OwnedDelivery",
    "OwnerGuard",
    "Refused",
    "RefusedDelivery",
    "Rejected",
    "Replace",
    "StaleEpoch",
    "StorageError",
    "Unavailable",
    "Upsert",
    "export_logs",
    "hash_of_key",
    "partition_of_key",
]

_HOMES = {
    "export_logs": "..core.node_logs.outputs",
    "HttpTables": "..storage.blocking",
    "FencedBatch": ".node.fencing",
    "StaleEpoch": ".node.fencing",
    **dict.fromkeys(("OwnedDelivery", "OwnerGuard", "RefusedDelivery"), ".node.receiving"),
    **dict.fromkeys(("hash_of_key", "partition_of_key"), "..core.partition_hash"),
    **dict.fromkeys(("OutcomeUnknown", "Rejected", "StorageError", "Unavailable"), "..core.errors"),
    **dict.fromkeys(("ANY", "Applied", "Delete", "Insert", "Merge", "Replace", "Upsert", "WriteRefused"), "..storage.ports"),
}
_OWN_NAMES = {"Refused": "WriteRefused"}
"""Public names of classes that the service's own code names otherwise."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    own = _OWN_NAMES.get(name, name)
    try:
        found = getattr(import_module(_HOMES.get(own, ".node.keeper"), __name__), own)
    except ModuleNotFoundError as missing:
        from ..core.errors import missing_extra

        raise missing_extra(f"tocsin.leases.{name}", missing, "node") from missing
    globals()[name] = found
    return found
