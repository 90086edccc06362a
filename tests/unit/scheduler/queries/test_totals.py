"""Totals: every finished shard is added exactly once, also when processes die, answers are lost, or several processes add at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import SettableClock
from shared.core.errors import OutcomeUnknown, Unavailable
from shared.scheduler.keys import NEWS
from shared.scheduler.queries.totals import GROUP, Total, Totals
from shared.scheduler.shard import ledger
from shared.scheduler.shard.gate import COUNTS
from shared.storage.memory import MemoryTables
from shared.storage.names import LEDGER, SWEEPS
from shared.storage.ports import Applied, Insert, Op, Props, RowQuery, WriteRefused
from tests.faults import Faults, Perform, Request

TENANT = "demo"


def entry(number: int) -> Props:
    """A shard with `number` + 2 events: all delivered, `number` ms late, but one that is dead."""
    late = ledger.DeliveryFigures({ledger.bucket_of(number): number + 1}, number, number * (number + 1), 1)
    counts = dict.fromkeys(COUNTS, 0) | {"accepted": number + 2, "delivered": number + 1, "dead": 1}
    return {"shard": f"{number:03}", "late": ledger.pack({f"c{number % 3}": late}), **counts}


class Flaky(Faults):
    """Tables whose write number `at` goes wrong: before it is applied, after, or with its answer lost."""

    def __init__(self, at: int, how: str) -> None:
        super().__init__(MemoryTables(SettableClock()))
        self.at, self.how, self.writes = at, how, 0

    async def plan(self, request: Request, perform: Perform) -> object:
        self.writes += request.kind == "write"
        if request.kind != "write" or self.writes - 1 != self.at:
            return await perform()
        if self.how in ("lost", "after"):
            await perform()
        raise OutcomeUnknown("lost") if self.how in ("lost", "vanished") else Unavailable("the process is gone")


async def filled(tables: MemoryTables, numbers: Sequence[int]) -> None:
    await tables.ensure((LEDGER, SWEEPS))
    for number in numbers:
        await tables.write(LEDGER, TENANT, (Insert(f"{NEWS}{number:03}", entry(number)),))


async def news(tables: MemoryTables) -> list[str]:
    return [row.rk for row in (await tables.query(RowQuery(LEDGER, TENANT, first=NEWS))).rows]


def expected(numbers: Iterable[int]) -> Total:
    total = Total()
    for number in numbers:
        total.add(entry(number))
    return total


@pytest.fixture
async def tables() -> AsyncIterator[MemoryTables]:
    yield MemoryTables(SettableClock())


@pytest.mark.parametrize("count", [0, 1, GROUP, GROUP + 1, 3 * GROUP])
async def test_all_news_is_added_and_gone(tables: MemoryTables, count: int) -> None:
    await filled(tables, range(count))
    totals = Totals(tables)
    assert await totals.fold(TENANT) == count
    assert await news(tables) == [] and (await totals.all()).get(TENANT, Total()) == expected(range(count))
    assert await totals.fold(TENANT) == 0


async def test_totals_of_nothing_new_cost_one_read(tables: MemoryTables) -> None:
    await filled(tables, range(3))
    totals = Totals(tables)
    await totals.fold(TENANT)
    before = tables.transactions.total()
    await totals.fold(TENANT)
    assert tables.transactions.total() == before + 1


async def fold_twice(totals: Totals) -> None:
    """Add the news to the totals, and again: the second call continues a first one that failed."""
    for _ in range(2):
        with suppress(Unavailable):
            await totals.fold(TENANT)


@pytest.mark.parametrize("how", ["before", "after", "lost", "vanished"])
@pytest.mark.parametrize("at", range(6))
async def test_every_shard_is_added_once_whatever_goes_wrong_and_where(at: int, how: str) -> None:
    count = 2 * GROUP + 5
    tables = Flaky(at, how)
    await filled(tables.inner, range(count))
    totals = Totals(tables)
    await fold_twice(totals)
    assert tables.writes > at, "the fault was met"
    assert await news(tables) == [] and (await totals.all())[TENANT] == expected(range(count))


@pytest.mark.parametrize("how", ["before", "vanished"])
async def test_news_that_sorts_before_what_was_left_behind_does_not_make_it_count_twice(how: str) -> None:
    """The totals name only what they last added: it must be gone before they add more."""
    tables = Flaky(1, how)
    await filled(tables.inner, range(500, 510))
    removal_fails = tables.write

    async def and_more_comes(table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        if tables.writes == 1:
            await filled(tables.inner, range(GROUP + 1))
        return await removal_fails(table, pk, ops)

    tables.write = and_more_comes  # type: ignore[method-assign]
    totals = Totals(tables)
    await fold_twice(totals)
    assert (await totals.all())[TENANT] == expected([*range(GROUP + 1), *range(500, 510)]) and await news(tables) == []


@given(st.integers(2, 4), st.lists(st.integers(0, 3), min_size=10, max_size=80))
async def test_many_at_once_add_each_shard_once(folders: int, turns: list[int]) -> None:
    """The order in which the folders' storage calls happen is drawn, and more shards finish all the while."""
    gates = [asyncio.Event() for _ in range(folders)]
    tasks: list[asyncio.Task[int]] = []

    async def in_turn(request: Request, perform: Perform) -> object:
        task = asyncio.current_task()
        if task in tasks and request.kind != "query":
            gate = gates[tasks.index(task)]
            gate.clear()
            await gate.wait()
        return await perform()

    tables = Faults(MemoryTables(SettableClock()), in_turn)
    await filled(tables, range(0, 20, 2))
    totals = Totals(tables)
    tasks += [asyncio.ensure_future(totals.fold(TENANT)) for _ in range(folders)]
    for number, turn in enumerate(turns):
        for _ in range(5):
            await asyncio.sleep(0)
        gates[turn % folders].set()
        await filled(tables, [2 * number + 1])
    while not all(task.done() for task in tasks):
        for gate in gates:
            gate.set()
        await asyncio.sleep(0)
    await totals.fold(TENANT)
    numbers = {*range(0, 20, 2), *(2 * number + 1 for number in range(len(turns)))}
    assert (await totals.all())[TENANT] == expected(numbers) and await news(tables) == []


async def test_channel_keeps_its_name_in_the_totals_and_no_figure_ever_falls(tables: MemoryTables) -> None:
    await tables.ensure((LEDGER, SWEEPS))
    totals = Totals(tables)
    seen: dict[str, int] = {}
    for number in range(100):
        one = {f"channel-{number}": ledger.DeliveryFigures({0: 1 + number}, 0, 0, 0), "channel-0": ledger.DeliveryFigures({0: 1}, 0, 0, 0)}
        props = dict.fromkeys(COUNTS, 0) | {"shard": "x", "late": ledger.pack(one)}
        await tables.write(LEDGER, TENANT, (Insert(f"{NEWS}{number:03}", props),))
        await totals.fold(TENANT)
        now = {name: found.delivered for name, found in (await totals.all())[TENANT].channels.items()}
        assert all(now[name] >= count for name, count in seen.items())
        seen = now
    assert len(seen) == ledger.MOST_CHANNELS + 1 and sum(seen.values()) == sum(range(1, 101)) + 99


async def test_totals_of_tenants_that_are_gone_are_forgotten(tables: MemoryTables) -> None:
    await filled(tables, range(2))
    totals = Totals(tables)
    await totals.fold(TENANT)
    assert await totals.forget([TENANT, "acme"]) == 0 and TENANT in await totals.all()
    assert await totals.forget(["acme"]) == 1 and await totals.all() == {}


async def test_events_of_a_shard_that_came_to_no_end_are_a_gap() -> None:
    total = Total()
    total.add(entry(3) | {"dead": 0})
    assert total.gap == 1
