"""Figures of a run's events, two runs side by side, bounds, and the drawing."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from shared.whatif.changes import BadChange
from shared.whatif.chart import draw
from shared.whatif.comparison import compare, figure_text, parse_condition, series_of
from shared.whatif.outcome import FleetOutcome, RunOutcome, backlog_of, outcome_of
from shared.whatif.receivers import DeliveryRecord

SECOND = 1000


def story(due: float, late: float | None, takes: float = 0.1, channel: str = "orders", failed: int = 0) -> DeliveryRecord:
    """An event that is delivered so late, or, with None, never."""
    if late is None:
        return DeliveryRecord(round(due * SECOND), channel, round(due * SECOND), round((due + takes) * SECOND), False, failed)
    arrived = round((due + late) * SECOND)
    return DeliveryRecord(round(due * SECOND), channel, arrived, arrived + round(takes * SECOND), True, failed)


def outcome(stories: list[DeliveryRecord], dead: frozenset[str] = frozenset()) -> RunOutcome:
    return outcome_of({str(number): each for number, each in enumerate(stories)}, 0, 120 * SECOND, dead)


def test_lateness_counts_from_the_due_time_to_the_attempt_that_delivered() -> None:
    found = outcome([story(float(second), 2.0 if second == 99 else 0.25) for second in range(100)])
    assert (found.events, found.delivered, found.dead, found.unfinished) == (100, 100, 0, 0)
    assert (found.late_at(0.5), found.late_at(0.99), found.late_at(1.0)) == (0.25, 0.25, 2.0)
    assert found.late_by_channel == {"orders": 0.25}


def test_events_that_are_given_up_or_open_are_counted_and_have_no_lateness() -> None:
    found = outcome([story(1.0, None, failed=3), story(2.0, None, failed=1), story(3.0, 0.0)], frozenset("0"))
    assert (found.dead, found.unfinished, found.delivered, found.failed_attempts, len(found.late)) == (1, 1, 1, 4, 1)
    # The open one stays in the backlog.
    assert found.drained_after is None


def test_an_event_outside_the_window_does_not_count() -> None:
    assert outcome([story(-1.0, 0.0), story(121.0, 0.0), story(5.0, 0.0)]).events == 1


def test_the_backlog_holds_events_from_a_second_after_their_due_time_until_their_end() -> None:
    most, drained, series = backlog_of([(1000, 5000), (2000, 9000), (3000, 2500)], 0, 12_000)
    assert (most, drained) == (2, 7.0)
    assert [value for at, value in series if at in (0.9, 1.0, 2.0, 4.9, 5.1, 9.1)] == [0, 1, 2, 2, 1, 0]
    assert backlog_of([(1000, 900)], 0, 12_000)[:2] == (0, 0.0)


ONE = outcome([story(1.0, 0.0), story(2.0, 0.0, channel="bills")])
TWO = replace(
    outcome([story(1.0, 3.0, failed=1), story(2.0, 0.0, channel="bills")]), fleets={"store": FleetOutcome(4, moves=3, unowned=2.5)}
)
BEFORE = replace(ONE, fleets={"store": FleetOutcome(4, moves=1)})


def test_the_table_shows_both_runs_and_the_difference() -> None:
    lines = {line.name: line for line in compare(BEFORE, TWO)}
    assert (lines["lateness, at most"].unchanged, lines["lateness, at most"].difference) == (0.0, 3.0)
    assert lines["orders: lateness, 99 of 100 events"].changed == 3.0
    assert (lines["store: moves of partitions"].difference, lines["attempts that failed"].changed) == (2, 1)
    assert lines["store: last approval after preparing began"].difference is None


@pytest.mark.parametrize(
    ("text", "broken"),
    [("late_max>2s", 1), ("late_max>3s", 0), ("late_max>=3", 1), ("moves>2", 1), ("unowned>3s", 0), ("events<5", 1), ("approval>1s", 0)],
)
def test_a_bound_judges_the_changed_run(text: str, broken: int) -> None:
    assert len(parse_condition(text).met_by(compare(BEFORE, TWO))) == broken


def test_a_backlog_that_is_never_empty_breaks_each_bound_of_its_drain() -> None:
    stuck = outcome([story(1.0, None)])
    assert parse_condition("drain>1h").met_by(compare(stuck, stuck))


@pytest.mark.parametrize("text", ["late_p99", "lateness>5s", "late_p99=5s", "late_p99>soon"])
def test_a_bound_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(BadChange):
        parse_condition(text)


def test_values_have_units_and_signs() -> None:
    values = [(0.0123, "s", False), (75.25, "s", True), (1200, "", False), (-3, "", True), (None, "s", False)]
    assert [figure_text(value, unit, signed=signed) for value, unit, signed in values] == [
        "0.012 s",
        "+75.2 s",
        "1,200",
        "-3",
        "-",
    ]


def test_the_drawing_has_a_panel_for_each_series_and_stays_inside() -> None:
    document = ElementTree.fromstring(draw(series_of(BEFORE), series_of(TWO), "a <title>"))
    lines = [each for each in document.iter() if each.tag.endswith("polyline")]
    assert len(lines) == 4
    width, height = map(float, document.attrib["viewBox"].split()[2:])
    for line in lines:
        for point in line.attrib["points"].split():
            x, y = map(float, point.split(","))
            assert 0 <= x <= width and 0 <= y <= height
