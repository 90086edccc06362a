"""shared.leases.service.sweep_memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown
from ...storage.names import SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Op, Props, Replace, Row, Tables

PLANNED: Final = "lease-plans"


class LastPlan(NamedTuple):
    """The fleet at the last plan of the app, and whether there was nothing left to do; at wall time."""

    seen: str = ""
    settled: bool = False
    at: Millis = 0


class Remembered[T](NamedTuple):
    """A remembered value, and its row's ETag; '' when there is no row."""

    value: T
    etag: str


class SweepMemory:
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


def parse_last_plan(row: Row | None) -> Remembered[LastPlan]:
    """What a row remembers."""
    if row is None:
        return Remembered(LastPlan(), "")
    return Remembered(LastPlan(str(row.props["seen"]), bool(row.props["settled"]), int(row.props["at"])), row.etag)


def last_plan_props(planned: LastPlan) -> Props:
    """As stored."""
    return {"seen": planned.seen, "settled": planned.settled, "at": planned.at}
