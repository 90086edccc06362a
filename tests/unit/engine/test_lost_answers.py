"""Throttled writes: `Retry-After` is carried for batches, and what follows a lost answer does not come in step."""

from __future__ import annotations

import asyncio
import random

import pytest
from aiohttp import web

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown
from shared.engine.async_runner import AsyncRunner
from shared.engine.effects import LOST, MAX_LOST, Steps, get, write
from shared.storage.azure.tables import AzureTables
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS
from shared.storage.ports import Insert, Upsert
from tests.faults import Faults, Perform, Request

KEY = "a2V5"


@pytest.mark.parametrize(("header", "expected"), [({"Retry-After": "7"}, 7.0), ({}, None)])
async def test_retry_after_of_a_throttled_batch_is_carried(header: dict[str, str], expected: float | None) -> None:
    async def busy(request: web.Request) -> web.Response:
        return web.Response(status=503, headers=header)

    app = web.Application()
    app.router.add_route("*", "/{tail:.*}", busy)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    tables = AzureTables.from_connection_string(f"AccountName=acc;AccountKey={KEY};TableEndpoint=http://127.0.0.1:{port}/acc")
    with pytest.raises(OutcomeUnknown) as lost:
        await tables.write(EVENTS, "p", [Upsert("a", {"n": 1}), Upsert("b", {"n": 1})])
    assert lost.value.retry_after == expected
    await tables.close()
    await runner.cleanup()


def throttled(clock: SettableClock, part: float) -> Faults:
    """Tables that answer a part of all batches with 503; half of those were applied."""
    chance = random.Random(5)

    async def plan(request: Request, perform: Perform) -> object:
        if request.kind != "write":
            return await perform()
        refused, applied = chance.random() < part, chance.random() < 0.5
        if not refused:
            return await perform()
        if applied:
            await perform()
        lost = OutcomeUnknown("status 503")
        lost.retry_after = 1.0
        raise lost

    return Faults(MemoryTables(clock), plan)


def insert(pk: str) -> Steps[None]:
    """Write a row until it is stored, as the protocols do: after a lost answer, read back and decide."""
    while True:
        answer = yield from write(EVENTS, pk, Insert("r", {"n": 1}))
        if answer is not LOST or (yield from get(EVENTS, pk, "r")) is not None:
            return


@pytest.mark.parametrize("part", [0.0, 0.2])
async def test_a_fifth_of_all_batches_throttled_costs_the_waits_and_no_write(part: float) -> None:
    """The time to store 1,000 rows side by side, by the virtual clock: p50, p99 and the end."""
    clock, chances = SettableClock(), random.Random(6)
    tables = throttled(clock, part)
    await tables.ensure([EVENTS])
    runner = AsyncRunner(tables, clock, max_lost=MAX_LOST, chance=chances.random)
    ends: list[float] = []

    async def one(number: int) -> None:
        await runner.run(insert(f"p{number}"))
        ends.append(clock.monotonic())

    tasks = [asyncio.create_task(one(number)) for number in range(1_000)]
    while not all(task.done() for task in tasks):
        await clock.advance(0.005)
    await asyncio.gather(*tasks)
    ends.sort()
    assert len(ends) == 1_000 and ends[500] <= 0.005, "what is not throttled does not wait"
    if part:
        late = [round(end, 3) for end in ends if end > 0.005]
        assert 150 <= len(late) <= 250 and late[0] >= 1.0, "no request before Retry-After has passed"
        assert len(set(late)) > 10, "they do not come back in step"
        assert ends[990] <= 2.5 and ends[-1] <= 7.0
