"""State of the app's sweeps between runs: one row per fleet and sweep in `TocsinSweeps`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from ...core.clock import Millis
from ...core.errors import OutcomeUnknown
from ...engine.effects import each_row
from ...engine.row_codec import RowCodec
from ...storage.names import SWEEPS
from ...storage.ports import ANY, Applied, Delete, Insert, Op, Props, Replace, Row, RowQuery, Tables

PLANNED: Final = "lease-plans"


class LastPlan(NamedTuple):
    """The app's last plan for a fleet, and whether the fleet is idle.

    fingerprint: of the fleet at that time. settled: nothing was left to do. at: wall time. idle: wall time at which a sweep found the fleet
    idle (`takeover_rules.is_idle`), or None. needed: the servers that the fleet needs, while it is idle.
    """

    fingerprint: str = ""
    settled: bool = False
    at: Millis = 0
    idle: Millis | None = None
    needed: int | None = None


class Remembered[T](NamedTuple):
    """A stored value and its row's ETag; '' if there is no row."""

    value: T
    etag: str


class SweepMemory:
    """Loads and saves the state of sweeps. One per process."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables

    async def load(self, duty: str, keys: Sequence[str]) -> dict[str, Row]:
        """Load the rows of the fleets `keys`, which must be sorted: one request per thousand fleets."""
        if not keys:
            return {}
        if len(keys) == 1:
            one = await self._tables.get(SWEEPS, duty, keys[0])
            return {} if one is None else {one.rk: one}
        return {row.rk: row async for row in each_row(self._tables, RowQuery(SWEEPS, duty, first=keys[0], end=keys[-1] + "!"))}

    async def save(self, duty: str, key: str, props: Props, etag: str) -> str | None:
        """Save a state and return the row's new ETag. None if another instance wrote first, or the outcome is unknown."""
        op: Op = Replace(key, props, etag) if etag else Insert(key, props)
        try:
            answer = await self._tables.write(SWEEPS, duty, (op,))
        except OutcomeUnknown:
            # The next run reads the stored state.
            return None
        return answer.etags[0] if isinstance(answer, Applied) else None

    async def forget(self, duty: str, key: str) -> None:
        """Delete the state of a fleet that has ended."""
        await self._tables.write(SWEEPS, duty, (Delete(key, ANY),))


_LAST_PLAN: Final = RowCodec(LastPlan, names={"fingerprint": "seen"})


def parse_last_plan(row: Row | None) -> Remembered[LastPlan]:
    """Parse a stored plan."""
    return Remembered(_LAST_PLAN.decode(row.props), row.etag) if row is not None else Remembered(LastPlan(), "")


def idle_fleets(known: Mapping[str, Row]) -> list[str]:
    """Return the keys of the fleets that are idle by their stored plans."""
    return [key for key, row in known.items() if row.props.get("idle") is not None]


def last_plan_props(planned: LastPlan) -> Props:
    """Return the stored properties of a plan."""
    return _LAST_PLAN.encode(planned)
