"""The stored state of a fleet's watch: one row per fleet in `TocsinSweeps`, written only when it changes.

Each write is conditional on the ETag that was read. Of two instances that inspect at once, one wins and the other drops its result.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, cast

import orjson

from ...core.clock import Millis
from ...engine.row_codec import RowCodec
from ...leases.service.sweep_memory import Remembered
from ...storage.ports import Props, Row
from .alarms import KINDS, Alarm, Kind
from .orders import WatchedOrder
from .rules import WatchState

WATCHED: Final = "lease-watch"


class _WatchRow(NamedTuple):
    """The row of a state. state: pending findings, alarms and watched orders, as JSON."""

    fingerprint: str
    read_at: Millis
    unserved: int
    stale: int
    state: str


_ROW: Final = RowCodec(_WatchRow, names={"fingerprint": "seen", "read_at": "looked"})


def parse_watch_state(row: Row | None) -> Remembered[WatchState]:
    """Parse a stored state. Kinds of alarms that this release does not know are dropped."""
    if row is None:
        return Remembered(WatchState(), "")
    found = _ROW.decode(row.props)
    stored: dict[str, Any] = orjson.loads(found.state)
    kinds = set(KINDS)
    pending = {cast(Kind, kind): int(at) for kind, at in stored["first"].items() if kind in kinds}
    alarms = {
        cast(Kind, kind): Alarm(cast(Kind, kind), since, tuple(subjects), count, cleared, notified)
        for kind, (since, subjects, count, cleared, notified) in stored["alarms"].items()
        if kind in kinds
    }
    # Left out while there are none.
    orders = {server: WatchedOrder(order, since) for server, (order, since) in stored.get("orders", {}).items()}
    return Remembered(WatchState(found.fingerprint, found.read_at, pending, alarms, found.unserved, found.stale, orders), row.etag)


def watch_state_props(state: WatchState) -> Props:
    """Return the stored properties of a state."""
    alarms = {kind: (a.since, a.subjects, a.count, a.cleared, a.notified) for kind, a in state.alarms.items()}
    orders = {server: tuple(each) for server, each in state.orders.items()}
    text = orjson.dumps({"first": dict(state.pending), "alarms": alarms} | ({"orders": orders} if orders else {})).decode()
    return _ROW.encode(_WatchRow(state.fingerprint, state.read_at, state.unserved, state.stale, text))
