"""Schedules: many more histories, orders and clock changes than the tests of each try."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.proofs.facts import note

from . import test_chain as chain
from . import test_fanouts as fanouts
from . import test_histories as histories
from . import test_timing as timing
from . import test_two_processes as processes

PARTS = 4
STEPS = ["sweep", *fanouts.CALLS]


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("applied", [False, True])
async def test_death_at_any_write_neither_loses_nor_doubles_an_event_of_a_fan_out(name: str, applied: bool) -> None:
    note(writes=await fanouts.die_at_each_write(name, applied))


@pytest.mark.parametrize("name", STEPS)
async def test_sweeps_and_changes_of_fan_outs_at_once_agree(name: str) -> None:
    await fanouts.test_sweeps_and_changes_at_once_agree(name)


@pytest.mark.parametrize("name", ["sweep", *chain.CALLS])
async def test_death_at_any_write_neither_loses_nor_doubles_an_occurrence(name: str) -> None:
    note(writes=await chain.die_at_each_write(name))


@pytest.mark.parametrize("name", ["sweep", *chain.CALLS])
async def test_sweeps_and_changes_at_once_agree_in_many_orders(name: str) -> None:
    for seed in range(100, 300):
        await chain.together(name, seed)
    note(seeds="100 to 299")


@pytest.mark.parametrize("first", range(100, 700, 150))
async def test_every_occurrence_of_many_lives_is_delivered_once_and_no_other(first: int) -> None:
    for seed in range(first, first + 150):
        await histories.live_through(seed)
    note(seeds=f"{first} to {first + 149}")


def test_rule_holds_around_all_clock_changes_of_all_zones() -> None:
    looked = timing.check_changes(2, 1970, 2045, every=1, step=timedelta(days=1))
    assert looked > 19_000
    note(changes=looked)


@pytest.mark.parametrize("seed", range(100, 110))
async def test_occurrences_are_stored_before_the_second_minute_while_a_tenth_of_all_writes_fails(seed: int) -> None:
    worst = await processes.worst_lateness(seed)
    assert worst < 120_000
    note(worst=worst)
