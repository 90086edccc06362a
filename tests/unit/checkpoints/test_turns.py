"""The ends of turns and the choice of the next holder, by the pure functions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from shared.checkpoints import rules
from shared.checkpoints.clock_rate import judge_rate
from shared.checkpoints.rows import (
    EndReason,
    Group,
    LatestCheckpoint,
    ReplicaRow,
    TurnRow,
    parse_group,
    parse_latest,
    parse_replica,
    replica_key,
)
from shared.checkpoints.rules import AcceptedReport, FleetTurns, Publication, Published, ReplicaReport
from shared.checkpoints.turns import PendingImpact, TurnSettings, is_free, is_idle, settle, step, stuck_reason
from shared.storage.ports import Row

NOW = 1_800_000_000_000
MINUTE = 60_000
SETTINGS = TurnSettings()
TURN = TurnRow(4, "b", "taking", "", NOW, 600_000, 1, NOW, handed_seq=7, handed_life=2, handed_mono=50_000, handed_last=100, limit=418_600)


def replica(node: str = "b", **change: object) -> ReplicaRow:
    base = ReplicaRow(node, 2, 8, "secondary", 7, NOW, 55_000, 1000, last_checkpoint=100, taking=0)
    return replace(base, **change)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"at": NOW - 2 * MINUTE}, "silent"),
        ({"seq": 7}, "silent"),
        ({"role": "primary"}, "promoted"),
        ({"life": 3, "seq": 1}, "restarted"),
        ({"taking": 4}, "limit"),
        ({"mono": 468_600}, "limit"),
        ({"mono": 468_599}, "failed"),
    ],
)
def test_a_turn_whose_time_is_over_says_why(change: dict[str, object], reason: EndReason) -> None:
    holder = replica(**{"at": NOW + 10 * MINUTE, **change})
    group = settle(Group(TURN), holder, NOW + 10 * MINUTE, SETTINGS)
    assert (group.turn.state, group.turn.reason, group.misses) == ("timed-out", reason, 1)
    assert group.next_timeout == (900_000 if reason == "limit" else 0), "only who was at work to the end shows that it was too short"


def test_a_holder_that_is_not_there_any_more_was_silent() -> None:
    assert settle(Group(TURN), None, NOW + 10 * MINUTE, SETTINGS).turn.reason == "silent"


@pytest.mark.parametrize(
    "change",
    [{"life": 3}, {"seq": 7}, {"taking": 4}, {"role": "primary"}, {"fault": "fast"}],
    ids=["another life", "said before", "takes it", "primary", "no clock to trust"],
)
def test_a_turn_is_freed_early_only_by_a_replica_that_certainly_does_not_take_it(change: dict[str, object]) -> None:
    revoked, late = replace(TURN, state="revoked"), NOW + 599_999
    assert is_idle(TURN, replica()) and is_free(revoked, replica(), late)
    assert not is_idle(TURN, replica(**change)) and not is_free(revoked, replica(**change), late)
    assert not is_free(revoked, None, late) and is_free(revoked, None, NOW + 600_000)
    assert settle(Group(TURN), replica(**change, at=NOW), NOW + MINUTE, SETTINGS).turn.open


@pytest.mark.parametrize("life", [2, 3])
def test_a_later_checkpoint_ends_the_turn_it_was_made_in_and_an_earlier_one_none(life: int) -> None:
    made = replica(life=life, last_checkpoint=101)
    assert settle(Group(TURN), made, NOW + MINUTE, SETTINGS).turn.state == "done"
    assert settle(Group(TURN), replace(made, taking=4), NOW + MINUTE, SETTINGS).turn.open, "it is published first"
    assert settle(Group(TURN), replace(made, role="primary"), NOW + MINUTE, SETTINGS).turn.open
    known = replace(TURN, state="granted", attempt=0, handed_seq=0, handed_life=0, handed_last=0)
    assert settle(Group(known), made, NOW + MINUTE, SETTINGS).turn.open, "it was never handed out: that checkpoint is of an earlier turn"


# -- maintenance


def ready(*nodes: str) -> dict[str, ReplicaRow]:
    return {node: replica(node, at=NOW) for node in nodes}


def test_a_replica_with_maintenance_within_the_turn_is_skipped_and_later_is_not() -> None:
    for soon, chosen in ((MINUTE, {"c"}), (10 * MINUTE - 1, {"c"}), (10 * MINUTE, {"b", "c"})):
        pending = {"b": PendingImpact(NOW + soon, False)}
        found = {step(Group(), ready("b", "c"), NOW, SETTINGS, draw / 10, pending).group.turn.holder for draw in range(10)}
        assert found == chosen


def test_a_replica_about_to_lose_its_disk_goes_first_if_there_is_time() -> None:
    pending = {"b": PendingImpact(NOW + 15 * MINUTE, True)}
    granted = [step(Group(), ready("b", "c", "d"), NOW, SETTINGS, draw / 10, pending).group.turn for draw in range(10)]
    assert {turn.holder for turn in granted} == {"b"}
    # As long as late turns have needed is enough, and the turn is over by then.
    group = Group(durations=(40_000,) * 5)
    soon = step(group, ready("b", "c"), NOW, SETTINGS, 0.9, {"b": PendingImpact(NOW + 2 * MINUTE, True)}).group.turn
    assert (soon.holder, soon.timeout) == ("b", 2 * MINUTE)
    assert step(group, ready("b", "c"), NOW, SETTINGS, 0.0, {"b": PendingImpact(NOW + MINUTE, True)}).group.turn.holder == "c"


def test_the_preferred_waiter_goes_first_once_and_lets_others_in_between() -> None:
    pending = {"b": PendingImpact(NOW + 50 * MINUTE, True)}
    group = step(Group(), ready("b", "c"), NOW, SETTINGS, 0.0, pending).group
    group = replace(group, turn=replace(group.turn, state="done"))
    found = {step(group, ready("b", "c"), NOW, SETTINGS, draw / 10, pending).group.turn.holder for draw in range(10)}
    assert "c" in found


# -- clocks


def test_a_clock_is_judged_once_its_marks_are_far_enough_apart() -> None:
    begun = replica(first=(1000, NOW), second=(1000, NOW))
    assert judge_rate(begun, 1000, NOW + 29_000, 0.3)[2] == "", "too soon to tell"
    assert judge_rate(begun, 1000, NOW + 30_000, 0.3)[2] == "slow"
    assert judge_rate(begun, 1000 + 60_000, NOW + 30_000, 0.3)[2] == "fast"
    assert judge_rate(begun, 1000 + 10_000, NOW, 0.3)[2] == "fast", "a leap shows at once"
    for run in (21_000, 30_000, 42_800):
        assert judge_rate(begun, 1000 + run, NOW + 30_000, 0.3)[2] == ""


def test_a_machine_that_slept_is_trusted_again_once_its_clock_runs() -> None:
    known, now, mono = replica(first=(1000, NOW), second=(1000, NOW)), NOW, 1000
    faults = []
    for seconds, ran in [(5, 5)] * 30 + [(600, 0)] + [(5, 5)] * 40:
        now, mono = now + seconds * 1000, mono + ran * 1000
        first, second, fault = judge_rate(known, mono, now, 0.3)
        known = replace(known, first=first, second=second, fault=fault)
        faults.append(fault)
    assert set(faults[:30]) == {""} and faults[30] == "slow"
    assert 5 <= faults[30:].count("slow") <= 7 and faults[-1] == "", "half a minute later"


# -- alarms


def test_a_fleet_whose_secondaries_are_all_unfit_is_stuck_only_when_somebody_waits() -> None:
    group, late = Group(since=NOW), NOW + 3 * MINUTE
    lost = {"b": replica(at=NOW)}
    assert stuck_reason(group, lost, late - 1, SETTINGS) == "" and stuck_reason(group, lost, late, SETTINGS)
    assert stuck_reason(group, {"b": replica(ready=False)}, late, SETTINGS) == ""
    assert stuck_reason(group, {"a": replica(role="primary")}, late, SETTINGS) == ""
    assert stuck_reason(replace(group, turn=replace(TURN, granted=late)), lost, late, SETTINGS) == "", "a turn goes on"
    assert stuck_reason(replace(group, misses=3), {}, NOW, SETTINGS)


# -- rows


def test_rows_come_back_as_they_were_stored() -> None:
    group = rules.scan(FleetTurns(Group(TURN), {}), NOW + 20 * MINUTE, SETTINGS, 0.5).group
    heard = rules.receive(
        FleetTurns(group, {}), "b", ReplicaReport(1, "primary", 9, 77, 5, 1, 0.5, 2, 3, 4, False, "x"), NOW + 20 * MINUTE, SETTINGS, 0.5
    )
    assert isinstance(heard, AcceptedReport)
    assert parse_group(heard.group.props()) == heard.group
    assert parse_replica(Row("p", replica_key("b"), heard.replica.props(), "", 0, 0)) == heard.replica
    latest = LatestCheckpoint(4, "b", 5, "x", 6, NOW)
    assert parse_latest(latest.props()) == latest


def test_a_checkpoint_published_after_the_report_that_named_it_counts() -> None:
    view = FleetTurns(Group(TURN), {"b": replica(last_checkpoint=101)})
    done = rules.publish(view, 4, None, Publication("b", 101, "x", 1), NOW + MINUTE, SETTINGS)
    assert isinstance(done, Published) and (done.group.turn.state, done.group.turn.sequence, done.is_latest) == ("done", 101, True)
    again = rules.publish(
        FleetTurns(done.group, view.replicas, done.latest), 4, None, Publication("b", 101, "x", 1), NOW + MINUTE, SETTINGS
    )
    assert isinstance(again, Published) and again.group is done.group and again.is_latest
