"""The identity of accounts: lists that are reordered, shortened or wrong are refused at the start, or at the first use."""

from __future__ import annotations

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import Rejected, Unavailable, UnsafeSettings
from shared.storage import Storage, check, spread_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.names import ALL_TABLES, SHARDS, SWEEPS
from shared.storage.ports import Insert, RowQuery
from shared.storage.several.account_stamps import STAMP_PK, STAMP_ROW, Detached
from tests.texts import has_text
from tests.unit.scheduler.mirror.pair import MortalTables

CLOCK = SettableClock()
FILED = {"state": "pending", "wake": 0, "bucket": "202701150800", "tenant": "demo"}


async def account() -> MortalTables:
    """An empty account with Tocsin's tables."""
    tables = MortalTables(MemoryTables(CLOCK))
    await tables.ensure(ALL_TABLES)
    return tables


def storage(*accounts: MemoryTables, second: MemoryTables | None = None, detached: bool = False) -> Storage:
    other = (second, MemoryQueues(CLOCK)) if second is not None else None
    return spread_storage(accounts, MemoryQueues(CLOCK), CLOCK, second=other, detached=detached)


async def start(*accounts: MemoryTables, second: MemoryTables | None = None, detached: Detached = "") -> Storage:
    """Open the storage over these accounts and check their stamps, as a start does."""
    found = storage(*accounts, second=second, detached=bool(detached))
    await check(found, detached)
    return found


async def test_list_that_grows_at_its_end_is_taken_and_starts_again() -> None:
    home, one, two = [await account() for _ in range(3)]
    for accounts in ([home], [home, one], [home, one], [home, one, two], [home, one, two]):
        await start(*accounts)
    stamps = [tables._tables[SWEEPS][STAMP_PK].rows[STAMP_ROW].props for tables in (home, one, two)]
    assert [stamp["place"] for stamp in stamps] == ["0", "1", "2"] and len({stamp["home"] for stamp in stamps}) == 1


async def test_wrong_lists_are_refused_with_the_entry_and_what_it_is() -> None:
    home, one, two, fresh, elsewhere = [await account() for _ in range(5)]
    await start(home, one, two)
    await start(await account(), elsewhere)
    for accounts, words in (
        ([home, two, one], r"entry 1 is not the account that was there before, but entry 2; the list may only grow at its end"),
        ([home, one], r"has lost entry 2, and its shards would never be served"),
        ([home], "has lost entry 1"),
        ([home, one, fresh], r"entry 2 is not the account that was there before, but a new one"),
        ([home, elsewhere, two], "entry 1 is not the account that was there before, but another app's"),
        ([home, one, two, one], "entry 3 is not the account that was there before, but entry 1"),
        ([one, home, two], "TocsinStorage is entry 1 of several"),
    ):
        with pytest.raises(UnsafeSettings, match=words):
            await start(*accounts)
    await start(home, one, two)


async def test_account_that_is_away_at_the_start_is_asked_at_its_first_use() -> None:
    home, one, two = [await account() for _ in range(3)]
    await start(home, one, two)
    one.away = two.away = True
    swapped = await start(home, two, one)
    with pytest.raises(Unavailable):
        await swapped.tables.query(RowQuery(SHARDS, "10"))
    one.away = two.away = False
    await CLOCK.advance(5)
    with pytest.raises(Rejected, check=has_text("storage.account-swapped", entry=1, other=2)):
        await swapped.tables.query(RowQuery(SHARDS, "10"))
    one.away = True
    right = await start(home, one, two)
    one.away = False
    assert (await right.tables.query(RowQuery(SHARDS, "10"))).rows == []


async def test_further_account_is_stamped_though_one_before_it_was_away() -> None:
    home, one, two = [await account() for _ in range(3)]
    one.away = True
    await start(home, one, two)
    one.away = False
    await start(home, one, two)
    with pytest.raises(UnsafeSettings, match="entry 1"):
        await start(home, two, one)


async def test_second_account_that_is_another_one_or_gone_is_refused() -> None:
    home, second, fresh, further = [await account() for _ in range(4)]
    await start(home, further, second=second)
    await start(home, further, second=second)
    with pytest.raises(UnsafeSettings, check=has_text("settings.another-second-account")):
        await start(home, further, second=fresh)
    with pytest.raises(UnsafeSettings, check=has_text("settings.second-account-gone")):
        await start(home, further)
    with pytest.raises(UnsafeSettings, match="in use elsewhere"):
        await start(await account(), second=second)
    second.away = True
    await start(home, further, second=second)


async def test_second_that_is_given_up_does_not_come_back_with_its_old_copies() -> None:
    home, second, fresh = [await account() for _ in range(3)]
    await start(home, second=second)
    await home.write(SHARDS, "m0", (Insert("202701150800:demo:mabc", dict(FILED)),))
    alone = await start(home, detached="yes")
    assert alone.places == ("0", "m") and alone.fresh == ("0",) and alone.second is None
    assert (await alone.tables.query(RowQuery(SHARDS, "m0"))).rows
    with pytest.raises(UnsafeSettings, match="given up and holds outdated copies"):
        await start(home, second=second)
    await start(home, second=fresh)
    whole = {name: tables._tables[SWEEPS][STAMP_PK].rows[STAMP_ROW].props["whole"] for name, tables in (("old", second), ("new", fresh))}
    assert whole == {"old": True, "new": False}


async def test_first_that_was_overtaken_is_served_alone_only_if_that_is_said() -> None:
    home, second = [await account() for _ in range(2)]
    await start(home, second=second)
    home._tables[SWEEPS][STAMP_PK].rows[STAMP_ROW].props["overtaken"] = True
    with pytest.raises(UnsafeSettings, match="TOCSIN_MIRROR_DETACHED=stale"):
        await start(home, detached="yes")
    await start(home, detached="stale")
    await start(home, detached="yes")
