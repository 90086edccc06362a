"""Sweeps over many large fleets spread their reads, and a sweep over few fleets does not wait."""

from __future__ import annotations

import asyncio
from collections import Counter

from shared.core.clock import SettableClock
from shared.engine.sweeps import (
    BURST,
    FLEETS_IN_FLIGHT,
    LONGEST_WAIT,
    ROWS_PER_SECOND,
    SECONDS_PER_TICK,
    CountedTables,
    FleetCursor,
    RowPace,
    VisitFleet,
)
from shared.leases.rows import INDEX
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, FLEETS
from shared.storage.ports import Insert, Row, RowQuery

ACCOUNT = 20_000
"""Entities a second that Azure serves of an account."""
SWEEPS = 4
"""Those that may run at the same time: takeover, inspection, and both of maintenance."""


def test_sweeps_over_300_fleets_of_150_servers_leave_room_in_an_account_and_end_in_time() -> None:
    assert ROWS_PER_SECOND + BURST + SWEEPS * FLEETS_IN_FLIGHT * 150 < ACCOUNT
    assert SWEEPS * 300 * 150 / ROWS_PER_SECOND < SECONDS_PER_TICK


async def walk(fleets: int, rows: int, rate: float, burst: float) -> tuple[list[float], Counter[str]]:
    """Walk over fleets of so many rows. Return the times in seconds at which each fleet was read, and the counts."""
    clock = SettableClock()
    stored = MemoryTables(clock)
    await stored.ensure(ALL_TABLES)
    pace = RowPace(clock, rate, burst)
    tables = CountedTables(stored, pace)
    began = clock.monotonic()
    for number in range(fleets):
        await stored.write(FLEETS, INDEX, [Insert(f"t:f{number:03d}", {})])
        await stored.write(FLEETS, f"t:f{number:03d}", [Insert(f"r{row:03d}", {}) for row in range(rows)])
    times: list[float] = []

    async def visit(key: str) -> Counter[str]:
        await tables.query(RowQuery(FLEETS, key))
        times.append(clock.monotonic() - began)
        return Counter()

    async def prepare(rows: dict[str, Row]) -> VisitFleet:
        return visit

    walking = asyncio.create_task(FleetCursor(stored, clock, FLEETS, INDEX, pace).visit_next("sweep", prepare))
    while not walking.done():
        await clock.advance(0.01)
    return times, walking.result()


async def test_rows_of_a_walk_are_spread_over_time() -> None:
    times, counts = await walk(fleets=80, rows=20, rate=400.0, burst=200.0)
    assert counts == {"fleets": 80}
    most = max(sum(20 for each in times if first <= each < first + 1.0) for first in times)
    assert most <= 400 + 200 + FLEETS_IN_FLIGHT * 20
    assert times[-1] <= 80 * 20 / 400, "it is no slower than its rate"


async def test_few_fleets_are_visited_without_a_wait() -> None:
    times, counts = await walk(fleets=10, rows=20, rate=400.0, burst=200.0)
    assert counts == {"fleets": 10} and max(times) <= 0.01


async def test_rows_that_others_read_delay_a_visit_by_a_bounded_time() -> None:
    clock = SettableClock()
    pace = RowPace(clock, 100.0, 100.0)
    pace.count(1_000_000)
    waiting = asyncio.create_task(pace.admit())
    await clock.advance(LONGEST_WAIT)
    assert waiting.done()
