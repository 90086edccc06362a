"""The functions of the sweep, as the host calls them: the timer runs the jobs, and a message runs those that it names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import azure.functions as func
import pytest

from shared.app.timers import PERIODS, SOON_FUNCTIONS
from shared.app.triggers import queue_functions, timer_functions
from shared.storage.names import PK_TICKS, QUEUE_SWEEPS, SWEEPS
from tests.unit.scheduler.harness import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


def functions(world: World) -> dict[str, Any]:
    app = func.FunctionApp()
    app.register_functions(queue_functions(world.get_app))
    app.register_functions(timer_functions(world.get_app))
    return {each.get_function_name(): each.get_user_function() for each in app.get_functions()}


async def ages(world: World) -> dict[str, int]:
    page = await world.tables.query(SWEEPS, PK_TICKS)
    return {row.rk: world.now - int(row.props["at"]) for row in page.rows if "at" in row.props}


async def test_an_overdue_shard_makes_the_sweep_run_its_job_again_within_the_minute(world: World) -> None:
    found = functions(world)
    await world.demo.create(delay="PT1S")
    await world.clock.advance(2)
    await world.do(found["sweep"](None))
    assert await ages(world) == dict.fromkeys(PERIODS, 0)
    await world.clock.advance(15)
    (message,) = await world.queues.receive(QUEUE_SWEEPS)
    await world.do(found["sweep_soon"](func.QueueMessage(id="m", body=message.text.encode())))
    assert await ages(world) == dict.fromkeys(PERIODS, 15_000) | {"scheduler_scan": 0}


async def test_a_message_that_is_no_text_is_ignored_and_its_poison_copy_too(world: World) -> None:
    found = functions(world)
    for name in SOON_FUNCTIONS:
        await world.do(found[name](func.QueueMessage(id="m", body=b"\xff\xfe")))
    assert await ages(world) == {} and await world.queues.length(QUEUE_SWEEPS) == 0


async def test_a_sweep_with_nothing_stored_plans_no_further_run(world: World) -> None:
    await world.do(functions(world)["sweep"](None))
    assert await world.queues.length(QUEUE_SWEEPS) == 0
    world.tables.transactions.clear()
    for _ in range(2):
        await world.clock.advance(60)
        await world.do(functions(world)["sweep"](None))
    requests = sum(world.tables.transactions[kind] for kind in ("get", "query", "write"))
    assert requests == 2 * 31, "the figure of docs/explain/scale.md"
