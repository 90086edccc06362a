"""Leases: each partition of a fleet is served by at most one of its servers. See docs/leases.md.

    stamps      moments of sending and of receipt, profiles
    rows        the stored rows of a fleet
    rules       pure decisions of safety: who may act, who is silent, what may be claimed
    generations pure decisions about a changing partition count
    planner     pure decision of balance: which server should have which partition
    protocol/   generators without I/O
    runner      carries their effects out, blocking
    keeper      `LeaseKeeper`, what a server process runs on threads: the loops `beating` and `scanner`, without threads and I/O of their
                own; `desk` is between them, `notices` tells the application, `calls` runs its callbacks
    proof       the locked file that proves that a predecessor is gone
    fencing     `FencedBatch`: the store refuses a former owner's writes
    runner     carries effects out in the app; `survey` is what it sees of a fleet at one look, `orders` plans from it
    beats       servers that speak HTTP; `views` shows who has what, `functions` are the doors to both
    control/ watch/ resize/   what operators say; what the app sees to by itself; changing the number of partitions

What nodes use is loaded when first asked for: the app imports the rules without an HTTP client for threads.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..storage.blocking import HttpTables
    from .node.fencing import FencedBatch, StaleEpoch
    from .node.keeper import FleetMissing, LeaseKeeper, NameInUse

__all__ = ["FencedBatch", "FleetMissing", "HttpTables", "LeaseKeeper", "NameInUse", "StaleEpoch"]

_HOMES = {"HttpTables": "..storage.blocking", "FencedBatch": ".node.fencing", "StaleEpoch": ".node.fencing"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(_HOMES.get(name, ".node.keeper"), __name__), name)
    globals()[name] = found
    return found
