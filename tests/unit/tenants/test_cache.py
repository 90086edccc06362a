"""The cache: ages, one load at a time, bounds, and what a drop does to a load under way."""

from __future__ import annotations

import asyncio

import pytest

from shared.core.clock import SettableClock
from shared.tenants.cache import Cached


class Source:
    def __init__(self) -> None:
        self.clock = SettableClock()
        self.loads: list[str] = []
        self.values: dict[str, int] = {}
        self.gate = asyncio.Event()
        self.gate.set()
        self.failure: Exception | None = None
        self.cache = Cached(self.load, self.clock, ttl=5.0, missing_ttl=1.0, size=8)

    async def load(self, key: str) -> int | None:
        self.loads.append(key)
        value = self.values.get(key)
        await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        return value


async def test_an_answer_is_used_until_it_is_too_old() -> None:
    source = Source()
    source.values["a"] = 1
    assert await source.cache.get("a") == 1
    source.values["a"] = 2
    await source.clock.advance(4.9)
    assert await source.cache.get("a") == 1
    await source.clock.advance(0.1)
    assert await source.cache.get("a") == 2
    assert source.loads == ["a", "a"]


async def test_what_is_missing_is_asked_for_again_sooner() -> None:
    source = Source()
    assert await source.cache.get("a") is None
    source.values["a"] = 1
    assert await source.cache.get("a") is None
    await source.clock.advance(1.0)
    assert await source.cache.get("a") == 1


async def test_many_concurrent_requests_cause_one_load() -> None:
    source = Source()
    source.values["a"] = 1
    source.gate.clear()
    asking = [asyncio.ensure_future(source.cache.get("a")) for _ in range(20)]
    await asyncio.sleep(0)
    source.gate.set()
    assert await asyncio.gather(*asking) == [1] * 20
    assert source.loads == ["a"]


async def test_the_age_counts_from_the_start_of_the_load() -> None:
    source = Source()
    source.values["a"] = 1
    source.gate.clear()
    asking = asyncio.ensure_future(source.cache.get("a"))
    await source.clock.advance(4.0)
    source.gate.set()
    await asking
    await source.clock.advance(1.0)
    await source.cache.get("a")
    assert source.loads == ["a", "a"]


async def test_a_caller_that_goes_away_cancels_no_other() -> None:
    source = Source()
    source.values["a"] = 1
    source.gate.clear()
    first, second = asyncio.ensure_future(source.cache.get("a")), asyncio.ensure_future(source.cache.get("a"))
    await asyncio.sleep(0)
    first.cancel()
    await asyncio.sleep(0)
    source.gate.set()
    assert await second == 1


async def test_a_drop_disowns_a_load_under_way() -> None:
    source = Source()
    source.values["a"] = 1
    source.gate.clear()
    asking = asyncio.ensure_future(source.cache.get("a"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    source.values["a"] = 2
    source.cache.drop("a")
    source.gate.set()
    assert await asking == 1
    assert await source.cache.get("a") == 2


async def test_failures_reach_all_callers_and_are_not_kept() -> None:
    source = Source()
    source.failure = RuntimeError("away")
    answers = await asyncio.gather(source.cache.get("a"), source.cache.get("a"), return_exceptions=True)
    assert [str(answer) for answer in answers] == ["away", "away"]
    source.failure, source.values["a"] = None, 1
    assert await source.cache.get("a") == 1


async def test_a_flood_of_guesses_does_not_push_out_what_is_in_use() -> None:
    source = Source()
    source.values["a"] = 1
    await source.cache.get("a")
    for guess in range(1000):
        assert await source.cache.get(f"guess-{guess}") is None
    assert len(source.cache) <= 8 + 2
    await source.cache.get("a")
    assert source.loads.count("a") == 1


@pytest.mark.parametrize("keys", [8, 9, 100])
async def test_it_never_grows_beyond_its_bound(keys: int) -> None:
    source = Source()
    for key in range(keys):
        source.values[str(key)] = key
        await source.cache.get(str(key))
    assert len(source.cache) <= 8
    await source.cache.get(str(keys - 1))
    assert source.loads.count(str(keys - 1)) == 1
