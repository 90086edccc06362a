"""Budgets: what fits is let in, the rest waits."""

from __future__ import annotations

import asyncio

import pytest

from shared.engine.budget import Budget


async def test_budget_lets_in_what_fits_and_the_rest_waits() -> None:
    budget, log = Budget(100), []

    async def work(name: str, size: int, done: asyncio.Event) -> None:
        async with budget.hold(size):
            log.append(name)
            await done.wait()

    ends = {name: asyncio.Event() for name in "abc"}
    tasks = [asyncio.create_task(work(name, size, ends[name])) for name, size in (("a", 60), ("b", 60), ("c", 40))]
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["a", "c"]
    ends["a"].set()
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["a", "c", "b"]
    for end in ends.values():
        end.set()
    await asyncio.gather(*tasks)


async def test_what_is_larger_than_the_budget_goes_in_alone() -> None:
    budget, entered = Budget(10), asyncio.Event()

    async def small() -> None:
        async with budget.hold(1):
            entered.set()

    async with budget.hold(1000):
        second = asyncio.create_task(small())
        await asyncio.sleep(0)
        assert not entered.is_set()
    await second
    assert entered.is_set()


async def test_budget_is_given_back_whatever_happens() -> None:
    budget = Budget(10)
    with pytest.raises(RuntimeError):
        async with budget.hold(10):
            raise RuntimeError
    async with asyncio.timeout(60), budget.hold(10):
        pass


async def test_task_that_is_cancelled_gives_back_what_it_holds_and_leaves_the_queue_to_the_others() -> None:
    budget, log = Budget(10), []

    async def work(name: str) -> None:
        async with budget.hold(10):
            log.append(name)
            await asyncio.Event().wait()

    tasks = {}
    for name in "abc":
        tasks[name] = asyncio.create_task(work(name))
        await asyncio.sleep(0)
    tasks["b"].cancel()
    tasks["a"].cancel()
    for _ in range(5):
        await asyncio.sleep(0)
    assert log == ["a", "c"]
    tasks["c"].cancel()
    await asyncio.gather(*tasks.values(), return_exceptions=True)
    async with asyncio.timeout(60), budget.hold(10):
        pass
