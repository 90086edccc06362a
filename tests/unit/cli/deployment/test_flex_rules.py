"""The judgement of the long measures."""

from __future__ import annotations

import json
from typing import Any

import pytest

from shared.cli.deployment.flex_rules import judge_flex
from shared.cli.deployment.plan import CROWD, QUIET, ZERO, FlexPlan, gap_kind
from shared.cli.deployment.seen import Seen
from shared.cli.findings import Line

from .making import T0, clocks, look, probe, seen

PLAN = FlexPlan(crowd=4)


def measured(**changes: Any) -> Seen:
    """Return the observations of a run whose long measures are good. changes: the events of a kind."""
    found = seen()
    kinds = {**{gap_kind(gap): 3 for gap in PLAN.gaps}, CROWD: PLAN.crowd, ZERO: 4, QUIET: 4}
    for kind, count in kinds.items():
        found.probes += changes.get(kind, [probe(kind, number, uptime=600_000) for number in range(count)])
    found.looks = [look(each, clocks=clocks(each % 60)) for each in (0, 61, 122.0)]
    return found


def lines(found: Seen) -> dict[str, Line]:
    judged = judge_flex(found, PLAN)
    assert len({line.check for line in judged}) == len(judged)
    for line in judged:
        assert bool(line.means) == bool(line.do) == (line.result != "ok"), line
        json.dumps(line.document())
    return {line.check: line for line in judged}


def test_good_measures_leave_only_the_bill_to_be_read_elsewhere() -> None:
    found = lines(measured())
    assert {name for name, line in found.items() if line.result != "ok"} == {"bill"}
    assert found["crowd of 4"].figures["processes"] == 1 and found["timer at the minute"].figures["late_s"] == [0, 0, 0]


def test_a_new_process_after_a_short_gap_shows_that_instances_do_not_live() -> None:
    cold = [probe(gap_kind(20), number, 8_000, uptime=1_500) for number in range(3)]
    line = lines(measured(**{gap_kind(20): cold}))["20 s after the last event"]
    assert line.result == "look" and "3 of 3 by a new process" in line.found and "12 seconds" in line.do
    warm = [probe(gap_kind(20), number, 8_000, uptime=90_000) for number in range(3)]
    assert "running process" in lines(measured(**{gap_kind(20): warm}))["20 s after the last event"].means
    late = [probe(gap_kind(60), number, 8_000, uptime=1_500) for number in range(3)]
    assert "no instance was ready" in lines(measured(**{gap_kind(60): late}))["60 s after the last event"].means


@pytest.mark.parametrize(
    ("kind", "late", "check", "result"),
    [
        (ZERO, 12_000, "from zero", "ok"),
        (ZERO, 40_001, "from zero", "look"),
        (QUIET, 3_001, "after an answer, then silence", "bad"),
        (gap_kind(120), 40_001, "120 s after the last event", "bad"),
    ],
)
def test_lateness_is_judged_by_kind(kind: str, late: int, check: str, result: str) -> None:
    assert lines(measured(**{kind: [probe(kind, late=late)]}))[check].result == result


@pytest.mark.parametrize("kind", [ZERO, QUIET, CROWD, gap_kind(10)])
def test_events_that_are_missing_are_a_fault(kind: str) -> None:
    checks = {ZERO: "from zero", QUIET: "after an answer, then silence", CROWD: "crowd of 2", gap_kind(10): "10 s after the last event"}
    for events in ([probe(kind, 0), probe(kind, 1, None)], [probe(kind, 0, None), probe(kind, 1, None)]):
        assert lines(measured(**{kind: events}))[checks[kind]].result == "bad"


def test_processes_are_told_apart_by_their_starts() -> None:
    crowd = [probe(CROWD, number, late=2, uptime=age) for number, age in enumerate((100_000, 100_400, 50_000, 49_900))]
    assert lines(measured(**{CROWD: crowd}))["crowd of 4"].figures["processes"] == 2


def test_stuck_messages_are_counted() -> None:
    line = lines(measured(**{ZERO: [probe(ZERO, 0), probe(ZERO, 1, 45_000)]}))["stuck messages"]
    assert line.result == "look" and line.figures["stuck"] == 1


def test_a_timer_that_is_late_or_silent_is_told() -> None:
    late = measured()
    late.looks = [look(each, clocks=clocks((each - 20) % 60)) for each in (30, 100)]
    assert T0 % 60_000 == 0 and lines(late)["timer at the minute"].result == "look"
    assert lines(late)["timer at the minute"].figures["late_s"] == [20, 20]
    late.looks = [look(each, clocks=clocks(each + 1.4)) for each in (10, 30)]
    assert lines(late)["timer at the minute"].figures["late_s"] == [0]
    late.looks = [look(each, clocks=clocks((each - 55) % 60)) for each in (58, 118)]
    ahead = lines(late)["timer at the minute"]
    assert ahead.figures["late_s"] == [55, 55] and "5 s before the minute" in ahead.means
    late.looks = [look(0, clocks=clocks(None))]
    assert lines(late)["timer at the minute"].result == "bad"


def test_a_service_that_does_not_say_its_processes_ages_is_still_judged() -> None:
    gaps = {gap_kind(gap): [probe(gap_kind(gap), uptime=None)] for gap in PLAN.gaps}
    found = lines(measured(**gaps))
    assert found["10 s after the last event"].result == "ok" and found["10 s after the last event"].figures["cold"] is None
