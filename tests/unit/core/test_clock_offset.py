"""The offset of the wall clock is bounded by the writes that were seen, and corrects only what is proven wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.clock import DRIFT, TOO_WIDE, Reading, ServerTime, aged, combine, correction, offset, sample

WALL = 1_800_000_000_000
"""The storage service's time at the start of each test, milliseconds."""

delays = st.floats(0.0, 400.0)
errors = st.floats(-300_000.0, 300_000.0)


class Machine:
    """A machine whose wall clock is `error` ms ahead, and whose monotonic clock runs at `1 + rate`."""

    def __init__(self, error: float, rate: float = 0.0) -> None:
        self.error, self.rate, self.true = error, rate, 0.0

    def monotonic(self) -> float:
        return self.true * (1.0 + self.rate)

    def wall(self) -> int:
        return int(WALL + self.true + self.error)

    def read(self, pause: float = 0.0) -> Reading:
        """One reading of both clocks, with a pause of the process on either side of the wall clock's, in milliseconds."""
        before = self.monotonic()
        self.true += pause
        wall = self.wall()
        self.true += pause
        return Reading(before, wall, self.monotonic())

    def write(self, there: float, back: float) -> ServerTime:
        """One write whose request takes `there` and whose answer takes `back` milliseconds."""
        sent = self.monotonic()
        self.true += there
        written = int(WALL + self.true)
        self.true += back
        return sample(sent, self.monotonic(), written)


@given(errors, st.floats(-DRIFT / 2, DRIFT / 2), st.lists(st.tuples(delays, delays, st.floats(0.0, 4_000_000.0)), min_size=1, max_size=8))
def test_bounds_always_contain_the_true_offset(error: float, rate: float, writes: list[tuple[float, float, float]]) -> None:
    machine = Machine(error, rate)
    bounds: ServerTime | None = None
    for there, back, idle in writes:
        bounds = combine(bounds, machine.write(there, back))
        machine.true += idle
        found = offset(bounds, machine.read())
        assert found.low - 1.0 <= machine.error <= found.high + 1.0


@given(errors, delays, delays)
def test_a_corrected_clock_is_never_ahead(error: float, there: float, back: float) -> None:
    machine = Machine(error)
    bounds = machine.write(there, back)
    corrected = machine.wall() - correction(bounds, machine.read())
    truth = WALL + machine.true
    if correction(bounds, machine.read()):
        assert corrected <= truth + 1.0 and truth - corrected <= there + back + 4.0


@given(st.floats(-5.0, 5.0), st.floats(6.0, 400.0), st.floats(6.0, 400.0))
def test_a_good_clock_is_not_corrected(error: float, there: float, back: float) -> None:
    machine = Machine(error)
    assert correction(machine.write(there, back), machine.read()) == 0.0


@given(st.floats(0.0, 50.0), st.floats(0.0, 0.999), st.floats(0.0, 10.0))
def test_an_exact_clock_is_not_corrected_however_well_it_is_known(pause: float, phase: float, there: float) -> None:
    machine = Machine(0.0)
    machine.true = phase
    bounds: ServerTime | None = None
    for _ in range(20):
        bounds = combine(bounds, machine.write(there, 0.0))
        bounds = combine(bounds, machine.write(0.0, there))
        machine.true += 0.37
    assert correction(bounds, machine.read(pause)) == 0.0


def test_a_clock_119_s_ahead_is_corrected_by_that_much() -> None:
    machine = Machine(119_000.0)
    assert correction(machine.write(5.0, 5.0), machine.read()) == pytest.approx(119_000.0, abs=8.0)


def test_slow_storage_proves_too_little_to_correct() -> None:
    machine = Machine(119_000.0)
    bounds = machine.write(TOO_WIDE, 10.0)
    assert bounds.width > TOO_WIDE and correction(bounds, machine.read()) is None
    assert correction(None, machine.read()) is None


def test_an_hour_without_a_write_widens_the_bounds_by_the_drift() -> None:
    machine = Machine(0.0)
    bounds = machine.write(2.0, 2.0)
    later = aged(bounds, bounds.at + 3_600_000.0)
    assert later.width == pytest.approx(bounds.width + 2 * 720.0)


def test_a_quick_write_narrows_what_slow_ones_left() -> None:
    machine = Machine(0.0)
    slow = machine.write(1_500.0, 1_500.0)
    both = combine(slow, machine.write(2.0, 2.0))
    assert both.width < 10.0


def test_bounds_that_contradict_each_other_are_replaced_by_the_newer() -> None:
    old, new = ServerTime(0.0, 10.0, 0.0), ServerTime(5_000.0, 5_010.0, 1.0)
    assert combine(old, new).low == 5_000.0


def test_an_answer_before_its_request_is_refused() -> None:
    with pytest.raises(ValueError, match="before the request"):
        sample(10.0, 9.0, WALL)
