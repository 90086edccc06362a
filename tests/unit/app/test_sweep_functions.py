"""The functions of the sweep, as the host calls them: the timer runs the jobs, and a message runs those that it names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import azure.functions as func
import pytest

from shared.app.timers import PERIODS
from shared.app.triggers import queue_functions, timer_functions
from shared.core.errors import Unavailable
from shared.scheduler.wakes.protocol import wake_text
from shared.storage.names import PK_TICKS, QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS, QUEUE_SWEEPS, SWEEPS
from shared.storage.ports import RowQuery
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
    page = await world.tables.query(RowQuery(SWEEPS, PK_TICKS))
    return {row.rk: world.now - int(row.props["at"]) for row in page.rows if "at" in row.props}


async def test_an_overdue_shard_makes_the_sweep_run_its_job_again_within_the_minute(world: World) -> None:
    found = functions(world)
    await world.demo.create(delay="PT1S")
    await world.clock.advance(2)
    await world.do(found["sweep"](TICK))
    assert await ages(world) == dict.fromkeys(PERIODS, 0)
    await world.clock.advance(15)
    (message,) = await world.queues.receive(QUEUE_SWEEPS)
    await world.do(found["sweep_soon"](func.QueueMessage(id="m", body=message.text.encode())))
    assert await ages(world) == dict.fromkeys(PERIODS, 15_000) | {"scheduler_scan": 0}


TICK: Any = SimpleNamespace(past_due=False)
PAST_DUE: Any = SimpleNamespace(past_due=True)


async def test_a_message_that_is_no_text_is_ignored_and_its_poison_copy_too(world: World) -> None:
    await world.do(functions(world)["sweep_soon"](func.QueueMessage(id="m", body=b"\xff\xfe")))
    assert await ages(world) == {} and await world.queues.length(QUEUE_SWEEPS) == 0
    poison = f"{QUEUE_SWEEPS}-poison"
    await world.queues.send(poison, "no message of the sweep")
    await world.do(functions(world)["sweep"](TICK))
    assert await world.queues.length(poison) == 0


async def test_what_is_in_the_poison_queues_is_taken_by_the_sweep_however_much_it_is(world: World) -> None:
    for queue in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST):
        for _ in range(40):
            await world.queues.send(f"{queue}-poison", "not a message")
    await world.do(functions(world)["sweep"](TICK))
    assert [await world.queues.length(f"{queue}-poison") for queue in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST)] == [0, 0, 0]
    assert await world.queues.length(QUEUE_INGEST) == 40, "an event may be in each of them: they are tried again"


async def test_a_poison_message_that_cannot_be_handled_stays_and_does_not_hold_up_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[str] = []

    async def poisoned(text: str) -> None:
        if text == "bad":
            raise Unavailable("away")
        handled.append(text)

    monkeypatch.setattr(world.app.scheduler.firing, "poisoned", poisoned)
    for text in ("good", "bad", "fine"):
        await world.queues.send(f"{QUEUE_SHARDS}-poison", text)
    await world.do(functions(world)["sweep"](TICK))
    assert handled == ["good", "fine"] and await world.queues.length(f"{QUEUE_SHARDS}-poison") == 1


@pytest.mark.parametrize("queue", [QUEUE_SHARDS, QUEUE_RETRIES])
@pytest.mark.parametrize(
    "text",
    [
        wake_text(1_800_000_000_000),
        '{"shard":"~","index":"look"}',
        '{"shard":"","index":""}',
        '{"shard":"--","index":""}',
        '{"shard":"x","index":"y"}',
        '{"shard":"00-z-t","index":"y"}',
        '{"shard":"00-0n-t","index":"a/b"}',
        '{"shard":"00-0n-t","index":"y","wake":null}',
        '{"shard":"00-0n-t","index":"y","wake":1e308}',
        '{"more":[{"shard":"~","index":"look"}]}',
    ],
)
async def test_a_poison_message_that_names_no_shard_is_taken_once(world: World, queue: str, text: str) -> None:
    await world.queues.send(f"{queue}-poison", text)
    await world.do(functions(world)["sweep"](TICK))
    assert await world.queues.length(f"{queue}-poison") == 0


async def test_a_sweep_that_makes_up_for_a_missed_tick_leaves_out_what_has_just_run(world: World) -> None:
    found = functions(world)
    await world.do(found["sweep"](TICK))
    await world.clock.advance(8)
    await world.do(found["sweep"](PAST_DUE))
    assert await ages(world) == dict.fromkeys(PERIODS, 8_000)
    await world.clock.advance(8)
    await world.do(found["sweep"](PAST_DUE))
    assert await ages(world) == dict.fromkeys(PERIODS, 0) | {"retention_scan": 16_000}


async def test_a_sweep_with_nothing_stored_plans_no_further_run(world: World) -> None:
    await world.do(functions(world)["sweep"](TICK))
    assert await world.queues.length(QUEUE_SWEEPS) == 0
    world.tables.transactions.clear()
    for _ in range(2):
        await world.clock.advance(60)
        await world.do(functions(world)["sweep"](TICK))
    requests = sum(world.tables.transactions[kind] for kind in ("get", "query", "write"))
    assert requests == 2 * 32, "the figure of docs/explain/scale.md"
