"""The ingest limit over several instances: never more than the rate, never much less, and few writes."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import OutcomeUnknown
from shared.delivery.flow.shared_limits import BURST, TOLERANCE, RateGrant, RateLimiter, most_at_once, reserve, reserve_all

from .conftest import World

NOW = 1_800_000_000_000_000
_RATES = st.floats(min_value=0.01, max_value=1e6)


# -- the rule


@given(_RATES, st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 2000)), min_size=1, max_size=30))
def test_no_span_of_time_gets_more_than_its_rate_and_one_burst(rate: float, asks: list[tuple[int, int]]) -> None:
    now, tat, taken = NOW, 0, 0
    most = max(BURST * rate, 1.0)
    for pause, need in asks:
        now += pause
        block = reserve(tat, now, rate, need, need)
        assert 0 <= block.size <= need
        tat, taken = block.tat, taken + block.size
        assert taken <= most + rate * (now - NOW) / 1e6 + 1e-3


@given(_RATES, st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(1, 10)), min_size=1, max_size=30))
def test_events_that_go_together_exceed_the_rate_by_their_number_at_most(rate: float, asks: list[tuple[int, int]]) -> None:
    now, tat, taken = NOW, 0, 0
    for pause, need in asks:
        need = min(need, most_at_once(rate))
        now += pause
        block = reserve_all(tat, now, rate, need)
        assert block.size in (0, need)
        if block.size:
            tat, taken = block.tat, taken + need
            # A row further ahead than this would be taken for one of a wrong clock.
            assert tat <= now + (max(BURST, 1 / rate) + TOLERANCE) * 1e6 + 1
        assert taken <= max(BURST * rate, 1.0) + 9 + rate * (now - NOW) / 1e6 + 1e-3


async def test_events_go_together_or_not_at_all_and_leave_what_is_in_hand(world: World) -> None:
    limiter = RateLimiter(world.tables, world.clock)
    assert await limiter.take_all("t", 2.0, 8) == 0.0
    wait = await limiter.take_all("t", 2.0, 2)
    assert wait > 1.0 and (await limiter.take("t", 2.0, 1)).granted == 0
    await world.clock.advance(wait)
    assert await limiter.take_all("t", 2.0, 2) == 0.0


@given(_RATES, st.integers(1, 10_000))
def test_a_rested_limiter_gives_a_whole_burst(rate: float, need: int) -> None:
    block = reserve(0, NOW, rate, need, 1)
    assert block.size == min(need, int(max(BURST * rate, 1.0) + 1e-6))


@given(_RATES, st.integers(1, 100))
def test_waiting_as_long_as_advised_is_enough_for_one(rate: float, need: int) -> None:
    tat = 0
    while (block := reserve(tat, NOW, rate, 1_000_000, 1)).size:
        tat = block.tat
    later = NOW + int(block.wait * 1e6) + 2
    assert reserve(tat, later, rate, need, 1).size >= 1
    assert block.wait <= max(1 / rate, 1e-3) + 1e-3


def test_a_row_from_a_clock_that_is_far_off_is_ignored() -> None:
    assert reserve(NOW + int((BURST + TOLERANCE) * 1e6) - 1, NOW, 10, 1, 1).size == 0
    assert reserve(NOW + int((BURST + TOLERANCE) * 1e6) + 1, NOW, 10, 1, 1).size == 1
    assert reserve(NOW + 3_600_000_000, NOW, 10, 5, 5).size == 5


# -- over instances


def limiter(world: World) -> RateLimiter:
    return RateLimiter(world.tables, world.clock)


async def test_without_a_limit_nothing_is_asked(world: World) -> None:
    assert await limiter(world).take("acme", None, 10_000) == RateGrant(10_000, 0.0)
    assert await limiter(world).take("acme", 5.0, 0) == RateGrant(0, 0.0)
    assert world.tables.transactions["get"] == world.tables.transactions["write"] == 0


async def test_over_the_limit_is_refused_with_the_time_to_wait(world: World) -> None:
    one = limiter(world)
    assert [await one.take("acme", 2.0) for _ in range(2)] == [RateGrant(1, 0.0)] * 2
    refused = await one.take("acme", 2.0)
    assert refused.granted == 0
    assert 0 < refused.retry_after <= 0.5
    await world.clock.advance(refused.retry_after + 0.001)
    assert (await one.take("acme", 2.0)).granted == 1


async def test_a_batch_gets_what_fits(world: World) -> None:
    got = await limiter(world).take("acme", 100.0, 10_000)
    assert got.granted == 100
    assert got.retry_after > 0


async def test_a_refusal_is_remembered_without_asking_the_store(world: World) -> None:
    one = limiter(world)
    await one.take("acme", 1.0)
    await one.take("acme", 1.0)
    asked = world.tables.transactions["get"] + world.tables.transactions["write"]
    for _ in range(100):
        assert (await one.take("acme", 1.0)).granted == 0
    assert world.tables.transactions["get"] + world.tables.transactions["write"] == asked


async def test_tenants_do_not_share(world: World) -> None:
    one = limiter(world)
    assert (await one.take("acme", 1.0)).granted == 1
    assert (await one.take("other", 1.0)).granted == 1


@pytest.mark.parametrize("instances", [1, 2, 5])
@pytest.mark.parametrize("rate", [0.5, 20.0, 500.0])
async def test_instances_together_keep_the_rate(world: World, instances: int, rate: float) -> None:
    limiters = [limiter(world) for _ in range(instances)]
    seconds, steps = 20, 200
    granted = 0
    each = max(1, int(3 * rate * seconds / steps / instances))
    for _ in range(steps):
        granted += sum(got.granted for got in await asyncio.gather(*(one.take("acme", rate, each) for one in limiters)))
        await world.clock.advance(seconds / steps, settle=1)
    assert granted <= max(rate, 1) + rate * seconds + 1
    assert granted >= rate * seconds * 0.9


async def test_many_quiet_instances_do_not_use_up_what_they_do_not_need(world: World) -> None:
    limiters = [limiter(world) for _ in range(20)]
    for _ in range(30):
        for one in limiters:
            assert (await one.take("acme", 40.0)).granted == 1
        await world.clock.advance(1.0, settle=1)


async def test_a_steady_flow_costs_about_one_write_a_second(world: World) -> None:
    one = limiter(world)
    for _ in range(1000):
        assert (await one.take("acme", 200.0)).granted == 1
        await world.clock.advance(0.01, settle=1)
    assert world.tables.transactions["write"] <= 35
    assert world.tables.transactions["get"] <= 2


async def test_a_sudden_crowd_needs_few_writes_since_blocks_grow_with_the_need(world: World) -> None:
    one = limiter(world)
    got = await asyncio.gather(*(one.take("acme", 1000.0) for _ in range(200)))
    assert all(grant.granted == 1 for grant in got)
    assert world.tables.transactions["write"] <= 9


async def test_a_lost_answer_is_reported_and_gives_nothing(world: World) -> None:
    one = limiter(world)
    world.tables.lose(lambda pk, op: pk == "acme")
    with pytest.raises(OutcomeUnknown):
        await one.take("acme", 1.0)
    assert (await one.take("acme", 1.0)).granted == 0
    await world.clock.advance(1.1)
    assert (await one.take("acme", 1.0)).granted == 1
