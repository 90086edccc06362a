"""The stored state of a fleet's watch: one row per fleet in `TocsinSweeps`, written only when it changes.

Each write is conditional on the ETag that was read. Of two instances that inspect at once, one wins and the other drops its result.
"""

from __future__ import annotations

from typing import Any, Final, cast

import orjson

from ...leases.service.sweep_memory import Remembered
from ...storage.ports import Props, Row
from .alarms import KINDS, Alarm, Kind
from .orders import WatchedOrder
from .rules import WatchState

WATCHED: Final = "lease-watch"


def parse_watch_state(row: Row | None) -> Remembered[WatchState]:
    """Parse a stored state. Kinds of alarms that this release does not know are dropped."""
    if row is None:
        return Remembered(WatchState(), "")
    stored: dict[str, Any] = orjson.loads(str(row.props["state"]))
    kinds = set(KINDS)
    pending = {cast(Kind, kind): int(at) for kind, at in stored["first"].items() if kind in kinds}
    alarms = {
        cast(Kind, kind): Alarm(cast(Kind, kind), since, tuple(subjects), count, cleared, notified)
        for kind, (since, subjects, count, cleared, notified) in stored["alarms"].items()
        if kind in kinds
    }
    unserved, stale = int(row.props["unserved"]), int(row.props["stale"])
    # Rows of former releases have no orders.
    orders = {server: WatchedOrder(order, since) for server, (order, since) in stored.get("orders", {}).items()}
    return Remembered(WatchState(str(row.props["seen"]), int(row.props["looked"]), pending, alarms, unserved, stale, orders), row.etag)


def watch_state_props(state: WatchState) -> Props:
    """Return the stored properties of a state."""
    alarms = {kind: (a.since, a.subjects, a.count, a.cleared, a.notified) for kind, a in state.alarms.items()}
    orders = {server: tuple(each) for server, each in state.orders.items()}
    text = orjson.dumps({"first": dict(state.pending), "alarms": alarms} | ({"orders": orders} if orders else {})).decode()
    return {"seen": state.fingerprint, "looked": state.read_at, "unserved": state.unserved, "stale": state.stale, "state": text}
