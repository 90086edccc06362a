"""The share of refused requests, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from shared.core.errors import Rejected, Unavailable
from shared.core.pressure import MAX_FACTOR, MEMORY, StoragePressure
from shared.engine.effects import LOST, Steps, get, wait, write
from shared.engine.observed import observed
from shared.storage.ports import Applied, Delete


def after(share: Callable[[int], bool], requests: int, pressure: StoragePressure | None = None, every: float = 5.0) -> StoragePressure:
    """Return the pressure after requests at equal intervals; share: True for those that storage refuses, by their number."""
    found = pressure or StoragePressure()
    began = found.at
    for number in range(1, requests + 1):
        found = found.observe(share(number), began + number * every)
    return found


def test_three_refusals_stretch_nothing_however_few_requests_there_were() -> None:
    for before in range(20):
        pressure = after(lambda number: number > before, before + 3)  # noqa: B023
        assert pressure.factor(pressure.at) == 1


def test_thirty_percent_stretch_intervals_several_times_and_all_refused_as_far_as_possible() -> None:
    some = after(lambda number: number % 10 in (2, 5, 8), 60)
    assert 2.5 <= some.factor(some.at) <= MAX_FACTOR and 0.2 <= some.share(some.at) <= 0.3
    every = after(lambda number: True, 60)
    assert every.factor(every.at) == MAX_FACTOR


def test_one_in_ten_is_no_pressure_but_does_not_end_it_either() -> None:
    tenth: Callable[[int], bool] = lambda number: number % 10 == 5  # noqa: E731
    seldom = after(tenth, 200)
    assert seldom.factor(seldom.at) == 1
    # Hysteresis: while a tenth is refused, pressure that has begun goes on, at a smaller factor.
    went_on = after(tenth, 200, after(lambda number: number % 2 == 0, 60))
    assert 1 < went_on.factor(went_on.at) < 3


def test_intervals_shrink_by_degrees_after_storage_has_recovered_until_nothing_is_stretched() -> None:
    pressure = after(lambda number: number % 2 == 0, 60)
    factors = [pressure.factor(pressure.at)]
    for _ in range(60):
        pressure = pressure.observe(False, pressure.at + 5)
        factors.append(pressure.factor(pressure.at))
    assert factors == sorted(factors, reverse=True) and factors[-1] == 1
    assert all(before / then < 2 for before, then in pairwise(factors))


def test_a_process_that_asks_nothing_forgets_the_pressure() -> None:
    pressure = after(lambda number: True, 60)
    assert pressure.factor(pressure.at + 10 * MEMORY) == 1
    # A clock that seems to go back changes nothing.
    assert pressure.factor(pressure.at - 10) == pressure.factor(pressure.at)


def test_each_request_counts_once_and_only_answers_that_say_something_about_storages_load() -> None:
    def steps() -> Steps[str]:
        yield from get("T", "p", "r")
        for _ in range(2):
            with pytest.raises((Unavailable, Rejected)):
                yield from get("T", "p", "r")
        yield from write("T", "p", Delete("r", "*"))
        yield from write("T", "p", Delete("r", "*"))
        yield from wait(7.0)
        return "end"

    seen: list[bool] = []
    work = observed(steps(), seen.append)
    next(work)
    work.send(None)
    work.throw(Unavailable("503"))
    work.throw(Rejected("too large"))
    work.send(LOST)
    work.send(Applied(()))
    with pytest.raises(StopIteration) as end:
        work.send(None)
    assert end.value.value == "end"
    assert seen == [False, True, True, False]
