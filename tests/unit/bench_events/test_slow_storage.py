"""Storage that answers each request after 8 ms, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from bench.events.slow_storage import ANSWERS_AFTER, SlowQueues, SlowTables
from shared.storage.ports import Applied, Insert, RowQuery
from shared.whatif.twin.loop import LoopClock, VirtualLoop, run_to_end


def test_each_request_takes_the_same_time_however_many_there_are() -> None:
    loop = VirtualLoop()
    took: list[float] = []

    async def work() -> None:
        clock = LoopClock(loop)
        tables, queues = SlowTables(clock), SlowQueues(clock)
        await tables.ensure(["Table"])
        await queues.ensure(["queue"])

        async def timed(*requests: object) -> list[object]:
            began = loop.now
            found = await asyncio.gather(*requests)  # type: ignore[call-overload]
            took.append(loop.now - began)
            return list(found)

        assert all(
            isinstance(each, Applied) for each in await timed(*[tables.write("Table", f"{n}", [Insert("r", {})]) for n in range(100)])
        )
        assert await timed(tables.get("Table", "100", "r")) == [None]
        [page] = await timed(tables.query(RowQuery("Table", "7", end="~")))
        assert [row.rk for row in page.rows] == ["r"]  # type: ignore[attr-defined]
        await timed(queues.send("queue", "text"))
        [[message]] = await timed(queues.receive("queue"))  # type: ignore[misc]
        assert await timed(queues.delete("queue", message)) == [True]

    run_to_end(loop, work())
    assert took == [pytest.approx(ANSWERS_AFTER)] * 6
