"""Tocsin: timed events, leases, checkpoint turns and maintenance for fleets on Azure, over Table and Queue storage.

    Client, AsyncClient   schedule events, look them up, cancel them
    verify, Delivery      receive them
    Work                  complete them later
    Lock, AsyncLock       one process at a time
    TocsinError ...       what can go wrong (`tocsin.client.errors`)
    tocsin.testing        the whole service in memory, with a clock that tests move

Loaded when first used, so that `import tocsin` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .client.blocking import Client
    from .client.concurrent import AsyncClient
    from .client.errors import (
        BadDelivery,
        BatchStopped,
        Changed,
        Conflict,
        Fault,
        Forbidden,
        Invalid,
        LockHeld,
        LockLost,
        NotFound,
        Refused,
        ServerFailed,
        TooMany,
        Unauthenticated,
        Unreachable,
        Unreadable,
    )
    from .client.locking.blocking import Lock
    from .client.locking.concurrent import AsyncLock
    from .client.model import Batch, BatchLine, Event, NewEvent, Schedule, Stats
    from .client.receiving import Delivery, verify
    from .client.resources.model import Calendar, Channel, Fleet, Key, NewKey, OwnKey, RotatedSecret, Tenant
    from .client.work import Work, WorkState
    from .core.errors import TocsinError

__all__ = [
    "AsyncClient",
    "AsyncLock",
    "BadDelivery",
    "Batch",
    "BatchLine",
    "BatchStopped",
    "Calendar",
    "Changed",
    "Channel",
    "Client",
    "Conflict",
    "Delivery",
    "Event",
    "Fault",
    "Fleet",
    "Forbidden",
    "Invalid",
    "Key",
    "Lock",
    "LockHeld",
    "LockLost",
    "NewEvent",
    "NewKey",
    "NotFound",
    "OwnKey",
    "Refused",
    "RotatedSecret",
    "Schedule",
    "ServerFailed",
    "Stats",
    "Tenant",
    "TocsinError",
    "TooMany",
    "Unauthenticated",
    "Unreachable",
    "Unreadable",
    "Work",
    "WorkState",
    "verify",
]

_HOMES = {
    "Client": "client.blocking",
    "AsyncClient": "client.concurrent",
    "Lock": "client.locking.blocking",
    "AsyncLock": "client.locking.concurrent",
    "TocsinError": "core.errors",
    **dict.fromkeys(("Batch", "BatchLine", "Event", "NewEvent", "Schedule", "Stats"), "client.model"),
    **dict.fromkeys(("Calendar", "Channel", "Fleet", "Key", "NewKey", "OwnKey", "RotatedSecret", "Tenant"), "client.resources.model"),
    **dict.fromkeys(("Delivery", "verify"), "client.receiving"),
    **dict.fromkeys(("Work", "WorkState"), "client.work"),
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f".{_HOMES.get(name, 'client.errors')}", __name__), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted(globals().keys() | set(__all__))
