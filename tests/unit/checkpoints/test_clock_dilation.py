"""Ringmaster's figures for clocks that run at different rates, with the verdicts of its text, and what the production rules say of them."""

from __future__ import annotations

import pytest

from devhost.pictures.clock_chart import (
    FIRST,
    LAST,
    NEW_PRIMARY,
    OLD_PRIMARY,
    ROWS,
    SECONDARY,
    STORE_ERROR,
    TARGET,
    bounds,
    draw,
    gets_turns,
    holder_stops_in_time,
    ringmaster_keeps,
    ringmaster_stops_in_time,
)
from shared.checkpoints.timeouts import turn_limit
from tests.paths import ROOT

TIMEOUT = 10.0
"""Seconds, in the example."""
FAILOVER = 8.0
"""True seconds after the lease began."""


@pytest.mark.parametrize(
    ("dilation", "at_the_end", "at_the_failover"), [(OLD_PRIMARY, 10.0, 8.0), (SECONDARY, 8.0, 6.4), (NEW_PRIMARY, 12.5, 10.0)]
)
def test_the_clocks_of_the_example_show_its_times(dilation: float, at_the_end: float, at_the_failover: float) -> None:
    assert (TIMEOUT / dilation, FAILOVER / dilation) == pytest.approx((at_the_end, at_the_failover))


def test_the_holder_stops_before_the_primary_that_gave_it_the_lease() -> None:
    assert 0.7 * TIMEOUT * SECONDARY < TIMEOUT * OLD_PRIMARY
    assert ringmaster_stops_in_time(SECONDARY, OLD_PRIMARY) and ringmaster_keeps(SECONDARY, OLD_PRIMARY)


def test_a_faster_primary_takes_over_too_early_and_the_text_needs_the_holder_removed() -> None:
    primary_counts, holder_counts, apart = FAILOVER / NEW_PRIMARY, FAILOVER / SECONDARY, SECONDARY / NEW_PRIMARY
    assert primary_counts == pytest.approx(TIMEOUT), "its time is up at the failover, while the holder may go on"
    assert holder_counts < 0.7 * TIMEOUT
    assert not ringmaster_stops_in_time(SECONDARY, NEW_PRIMARY)
    assert apart == pytest.approx(1.6, abs=0.05) and not ringmaster_keeps(SECONDARY, NEW_PRIMARY)


@pytest.mark.parametrize("dilation", [OLD_PRIMARY, SECONDARY, NEW_PRIMARY])
def test_each_clock_of_the_example_keeps_its_turn_and_stops_in_time(dilation: float) -> None:
    assert gets_turns(dilation) and holder_stops_in_time(dilation, 10_000)
    assert turn_limit(10_000, 0, 0.3) * dilation <= 7_000 < 10_000 - STORE_ERROR


@pytest.mark.parametrize("dilation", [NEW_PRIMARY / SECONDARY, SECONDARY / NEW_PRIMARY])
def test_a_clock_that_is_as_far_off_as_the_two_from_each_other_counts_as_down(dilation: float) -> None:
    assert not gets_turns(dilation)


def test_the_chart_is_drawn_by_the_rules_and_the_page_has_its_bounds() -> None:
    assert draw() == TARGET.read_text(), "run `make picture`"
    page = (ROOT / "docs" / "explain" / "checkpoints.md").read_text()
    shown = {row.text.partition(": ")[2]: bounds(row) for row in ROWS}
    for text, (first, last) in shown.items():
        lowest, highest = f"{first / 100:.2f}", f"{last / 100:.2f}"
        named = "all" if (first, last) == (FIRST, LAST) else f"up to {highest}" if first == FIRST else f"{lowest} to {highest}"
        assert f"| {text} | {named} |" in page, (text, named)
