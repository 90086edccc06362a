"""The checker itself: it visits each state once, finds the shortest way to a violation, and sees dead locals for what they are."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

from tests.model.checking.checker import Violation, explore
from tests.model.checking.liveness import live_at
from tests.model.checking.machine import Machines, image


class Counter:
    """Two counters from 0 to 3; violated when both show `bad`."""

    def __init__(self, bad: int, *, symmetric: bool = False) -> None:
        self.bad, self.symmetric = bad, symmetric

    def initial(self) -> tuple[int, int]:
        return (0, 0)

    def successors(self, state: tuple[int, int]) -> Iterator[tuple[str, Callable[[], tuple[int, int]]]]:
        if state[0] < 3:
            yield "left", lambda: (state[0] + 1, state[1])
        if state[1] < 3:
            yield "right", lambda: (state[0], state[1] + 1)

    def key(self, state: tuple[int, int]) -> tuple[int, ...]:
        return tuple(sorted(state)) if self.symmetric else state

    def check(self, state: tuple[int, int]) -> None:
        if state == (self.bad, self.bad):
            raise Violation("both")


def test_every_state_is_visited_once() -> None:
    assert explore(Counter(bad=9)).states == 16


def test_symmetric_states_are_visited_once() -> None:
    assert explore(Counter(bad=9, symmetric=True)).states == 10


def test_the_shortest_trace_is_reported() -> None:
    report = explore(Counter(bad=2))
    assert report.violation == "both"
    assert sorted(report.trace) == ["left", "left", "right", "right"]
    assert "VIOLATED after 4 steps" in str(report)


def test_a_run_that_does_not_finish_proves_nothing() -> None:
    with pytest.raises(OverflowError):
        explore(Counter(bad=9), limit=5)


def _two_questions() -> Generator[str, Any, tuple[Any, ...]]:
    first = yield "first?"
    kept = first % 2
    second = yield "second?"
    return (kept, second)


def test_machines_that_differ_in_dead_locals_only_are_one() -> None:
    machines = Machines()
    start = machines.spawn("two", _two_questions)
    assert machines.resume(start, 1) == machines.resume(start, 3)
    assert machines.resume(start, 1) != machines.resume(start, 2)


def _each(names: list[str]) -> Generator[str, Any]:
    for name in names:
        yield f"next {len(name)}"


def test_the_place_in_a_loop_distinguishes_machines() -> None:
    machines = Machines()
    first = machines.spawn("loop", lambda: _each(["a", "b"]))
    assert machines.resume(first, None) != first
    assert machines[machines.resume(machines.resume(first, None), None)].ended


def test_liveness_knows_what_is_read_later() -> None:
    generator = _two_questions()
    next(generator)
    generator.send(1)
    assert live_at(generator.gi_code, generator.gi_frame.f_lasti) == {"kept"}
    assert image(generator)
    generator.close()
