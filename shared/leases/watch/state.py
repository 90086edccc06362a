"""What the timers remember of fleets, in `TocsinSweeps`: one row per fleet and duty, written only when something changed.

Written on the ETag that was read: of two instances at once one wins, and the other leaves it at that.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

import orjson

from ...clock import Millis
from ...errors import OutcomeUnknown
from ...storage.names import SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Op, Props, Replace, Row, Tables
from .rules import KINDS, Alarm, Kind, Watched

WATCHED: Final = "lease-watch"
PLANNED: Final = "lease-plans"


class Planned(NamedTuple):
    """The fleet at the last plan of the app, and whether there was nothing left to do; at wall time."""

    seen: str = ""
    settled: bool = False
    at: Millis = 0


class Known[T](NamedTuple):
    """A remembered value, and its row's ETag; '' when there is no row."""

    value: T
    etag: str


class Memory:
    """Rows of what is remembered. One per process."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, duty: str, keys: Sequence[str]) -> dict[str, Row]:
        """The rows of the fleets `keys`, which come in order: a read for each thousand, not for each."""
        if not keys:
            return {}
        if len(keys) == 1:
            one = await self._tables.get(SWEEPS, duty, keys[0])
            return {} if one is None else {one.rk: one}
        found: dict[str, Row] = {}
        cursor: str | None = None
        while True:
            page = await self._tables.query(SWEEPS, duty, first=keys[0], end=keys[-1] + "!", cursor=cursor)
            found |= {row.rk: row for row in page.rows}
            cursor = page.next
            if cursor is None:
                return found

    async def save(self, duty: str, key: str, props: Props, etag: str) -> str | None:
        """Remember; the row's new ETag, or None when another instance was quicker, or nobody knows."""
        op: Op = Replace(key, props, etag) if etag else Insert(key, props)
        try:
            answer = await self._tables.write(SWEEPS, duty, (op,))
        except OutcomeUnknown:
            # The next tick reads what is so.
            return None
        return answer.etags[0] if isinstance(answer, Applied) else None

    async def forget(self, duty: str, key: str) -> None:
        """Forget a fleet that is gone."""
        await self._tables.write(SWEEPS, duty, (Delete(key, ANY),))


def watched_of(row: Row | None) -> Known[Watched]:
    """What a row remembers; what a former release wrote otherwise counts as nothing."""
    if row is None:
        return Known(Watched(), "")
    stored: dict[str, Any] = orjson.loads(str(row.props["state"]))
    kinds = set(KINDS)
    first = {cast(Kind, kind): int(at) for kind, at in stored["first"].items() if kind in kinds}
    alarms = {
        cast(Kind, kind): Alarm(cast(Kind, kind), since, tuple(subjects), count, cleared, told)
        for kind, (since, subjects, count, cleared, told) in stored["alarms"].items()
        if kind in kinds
    }
    unserved, stale = int(row.props["unserved"]), int(row.props["stale"])
    return Known(Watched(str(row.props["seen"]), int(row.props["looked"]), first, alarms, unserved, stale), row.etag)


def watched_props(watched: Watched) -> Props:
    """As stored."""
    alarms = {kind: (a.since, a.subjects, a.count, a.cleared, a.told) for kind, a in watched.alarms.items()}
    state = orjson.dumps({"first": dict(watched.first), "alarms": alarms}).decode()
    return {"seen": watched.seen, "looked": watched.looked, "unserved": watched.unserved, "stale": watched.stale, "state": state}


def planned_of(row: Row | None) -> Known[Planned]:
    """What a row remembers."""
    if row is None:
        return Known(Planned(), "")
    return Known(Planned(str(row.props["seen"]), bool(row.props["settled"]), int(row.props["at"])), row.etag)


def planned_props(planned: Planned) -> Props:
    """As stored."""
    return {"seen": planned.seen, "settled": planned.settled, "at": planned.at}
