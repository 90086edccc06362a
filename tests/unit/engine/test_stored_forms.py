"""The number of the stored forms: who makes it, who may work by it, how it is raised, and what it costs."""

from __future__ import annotations

import asyncio

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import StorageError, Unavailable
from shared.engine import stored_forms
from shared.engine.stored_forms import (
    FORMS_ROW,
    LOOK_EVERY,
    OLDER_WITHIN,
    TICK_FORMS,
    FormsRow,
    OlderProcess,
    ReadOnlyOnceNewer,
    StoredForms,
    may_serve,
    newer_forms,
)
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, PK_TICKS, SWEEPS
from shared.storage.ports import Props, Row, RowQuery, Upsert


class Account:
    def __init__(self) -> None:
        self.clock = SettableClock()
        self.tables = MemoryTables(self.clock)
        self.told = 0

    def process(self, own: int) -> StoredForms:
        return StoredForms(self.tables, self.clock, own, self.tell)

    def tell(self) -> None:
        self.told += 1

    async def store(self, props: Props) -> None:
        await self.tables.write(SWEEPS, PK_TICKS, (Upsert(FORMS_ROW, props),))

    async def number(self) -> object:
        row = await self.tables.get(SWEEPS, PK_TICKS, FORMS_ROW)
        return row.props["number"] if row is not None else None


@pytest.fixture
async def account() -> Account:
    account = Account()
    await account.tables.ensure(ALL_TABLES)
    return account


def test_a_version_works_on_its_own_forms_and_on_lower_ones() -> None:
    assert [may_serve(found, 2) for found in (1, 2, 3, None)] == [True, True, False, False]


async def test_the_first_process_makes_the_row_and_later_ones_keep_it(account: Account) -> None:
    await account.process(2).begin()
    assert await account.number() == 2
    for own in (1, 2, 3):
        await account.process(own).begin()
        assert await account.number() == 2


async def test_a_process_that_loses_the_race_to_make_the_row_goes_by_the_winners_number(account: Account) -> None:
    process = account.process(1)
    plain = account.tables.write

    async def late(table: str, pk: str, ops: object) -> object:
        account.tables.write = plain  # type: ignore[method-assign]
        await account.store(FormsRow(2).props())
        return await plain(table, pk, ops)  # type: ignore[arg-type]

    account.tables.write = late  # type: ignore[method-assign,assignment]
    await process.begin()
    assert process.newer and process.found == 2 and await account.number() == 2


@pytest.mark.parametrize("props", [{"number": 2}, {"number": "x"}, {}, {"later": 7}])
async def test_a_row_of_a_later_version_stops_a_process_once_and_for_good(account: Account, props: Props) -> None:
    process = account.process(1)
    await process.begin()
    assert not await process.is_newer() and account.told == 0
    await account.store(props)
    assert not await process.is_newer(), "what was read counts for a minute"
    await account.clock.advance(LOOK_EVERY)
    assert await process.is_newer() and account.told == 1
    await account.store(FormsRow(1).props())
    await account.clock.advance(LOOK_EVERY)
    assert await process.is_newer() and account.told == 1
    refusal = newer_forms(process)
    assert (refusal.status, refusal.code, refusal.outcome) == (503, "newer-stored-forms", "unchanged")
    assert int(refusal.headers["retry-after"]) > 0


async def test_a_busy_process_reads_the_row_once_a_minute_and_a_process_of_sweeps_not_at_all(account: Account) -> None:
    busy, swept = account.process(1), account.process(1)
    for process in (busy, swept):
        await process.begin()
    before = account.tables.transactions["get"]
    for _ in range(10 * 60):
        await busy.is_newer()
        await account.clock.advance(1.0)
    assert account.tables.transactions["get"] - before == 9
    before = account.tables.transactions["get"]
    for _ in range(10):
        swept.watch((await account.tables.query(RowQuery(SWEEPS, PK_TICKS))).rows)
        assert not await swept.is_newer()
        await account.clock.advance(LOOK_EVERY)
    assert account.tables.transactions["get"] == before


async def test_while_the_row_cannot_be_read_the_last_look_counts(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    process = account.process(1)
    await process.begin()
    await account.store(FormsRow(2).props())

    async def away(table: str, pk: str, rk: str) -> Row | None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(account.tables, "get", away)
        await account.clock.advance(LOOK_EVERY)
        assert not await process.is_newer()
    await account.clock.advance(5.0)
    assert await process.is_newer()


async def test_a_process_whose_first_look_failed_looks_again_before_it_works(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    await account.store(FormsRow(2).props())
    process = account.process(1)

    async def away(table: str, pk: str, rk: str) -> Row | None:
        raise Unavailable("away")

    with monkeypatch.context() as patch:
        patch.setattr(account.tables, "get", away)
        with pytest.raises(Unavailable):
            await process.begin()
    assert await process.is_newer()


async def test_a_call_waits_for_a_look_only_for_a_moment(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    process = account.process(1)
    await process.begin()

    async def silent(table: str, pk: str, rk: str) -> Row | None:
        await asyncio.Event().wait()
        return None

    monkeypatch.setattr(account.tables, "get", silent)
    monkeypatch.setattr(stored_forms, "LOOK_FOR", 0.01)
    await account.clock.advance(LOOK_EVERY)
    assert not await process.is_newer()


async def test_only_a_higher_number_is_stored_and_a_repetition_changes_nothing(account: Account) -> None:
    older, newer = account.process(1), account.process(2)
    await older.begin()
    assert (await newer.raise_to_own(), await account.number()) == (1, 2)
    assert (await newer.raise_to_own(), await account.number()) == (2, 2)
    assert (await older.raise_to_own(), await account.number()) == (2, 2) and older.newer


async def test_the_number_is_not_raised_while_an_older_process_sweeps(account: Account) -> None:
    newer = account.process(2)
    await account.process(1).begin()
    tick: Props = {"at": account.clock.now(), "failed": 0, TICK_FORMS: 1}
    await account.tables.write(SWEEPS, PK_TICKS, (Upsert("scheduler_scan", tick),))
    await account.clock.advance(60.0)
    assert await newer.raise_to_own() == OlderProcess(60_000) and await account.number() == 1
    await account.clock.advance(OLDER_WITHIN / 1000)
    assert await newer.raise_to_own() == 1 and await account.number() == 2


async def test_reads_repair_nothing_once_the_forms_are_newer(account: Account) -> None:
    process = account.process(1)
    await process.begin()
    tables = ReadOnlyOnceNewer(account.tables, process)
    await tables.write(SWEEPS, "a", (Upsert("b", {"c": 1}),))
    await account.store(FormsRow(2).props())
    process.watch((await tables.query(RowQuery(SWEEPS, PK_TICKS))).rows)
    with pytest.raises(StorageError):
        await tables.write(SWEEPS, "a", (Upsert("b", {"c": 2}),))
    row = await tables.get(SWEEPS, "a", "b")
    assert row is not None and row.props == {"c": 1}
