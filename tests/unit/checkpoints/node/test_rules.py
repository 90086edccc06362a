"""The decisions of a replica about its turns."""

from __future__ import annotations

from shared.checkpoints.node.rules import (
    MIN_REMAINING,
    BeginTurn,
    HeldTurn,
    ReplicaState,
    ReportReply,
    StopTurn,
    apply_answer,
    end_turn,
    report_failed,
    start_report,
    stop_reason,
)

TURN = ReportReply((5, 40.0))


def test_limit_counts_from_the_sending_of_the_report_that_was_answered() -> None:
    me = start_report(ReplicaState(), 100.0)
    me, decision = apply_answer(me, 1, TURN, 108.0, may=True)
    assert decision == BeginTurn(HeldTurn(5, 140.0)) and me.held == HeldTurn(5, 140.0)


def test_answer_to_an_earlier_report_counts_no_more() -> None:
    me = start_report(start_report(ReplicaState(), 100.0), 105.0)
    assert apply_answer(me, 1, TURN, 106.0, may=True) == (me, None)


def test_answer_counts_once() -> None:
    me, first = apply_answer(start_report(ReplicaState(), 0.0), 1, TURN, 1.0, may=True)
    me = end_turn(me)
    assert isinstance(first, BeginTurn) and apply_answer(me, 1, ReportReply((6, 40.0)), 2.0, may=True) == (me, None)


def test_answer_that_was_given_up_counts_no_more() -> None:
    me = report_failed(start_report(ReplicaState(), 0.0))
    assert apply_answer(me, 1, TURN, 1.0, may=True) == (me, None)


def test_turn_with_too_little_left_is_not_begun() -> None:
    me = start_report(ReplicaState(), 0.0)
    assert apply_answer(me, 1, TURN, 40.0 - MIN_REMAINING - 2.0 + 0.01, may=True, spare=2.0)[1] is None
    assert isinstance(apply_answer(me, 1, TURN, 40.0 - MIN_REMAINING - 2.0, may=True, spare=2.0)[1], BeginTurn)


def test_the_primary_and_unwilling_replicas_begin_no_turn() -> None:
    me, decision = apply_answer(start_report(ReplicaState(), 0.0), 1, TURN, 0.0, may=False)
    assert decision is None and me.held is None


def test_turn_that_is_revoked_in_the_same_answer_is_not_begun() -> None:
    assert apply_answer(start_report(ReplicaState(), 0.0), 1, ReportReply((5, 40.0), frozenset({5})), 0.0, may=True)[1] is None


def test_turn_in_hand_is_stopped_when_revoked_and_not_replaced_by_another() -> None:
    me = start_report(ReplicaState(held=HeldTurn(5, 40.0)), 0.0)
    assert apply_answer(me, 1, ReportReply((6, 99.0)), 1.0, may=True)[0].held == HeldTurn(5, 40.0)
    assert apply_answer(me, 1, ReportReply(None, frozenset({4})), 1.0, may=True)[1] is None
    assert apply_answer(me, 1, ReportReply(None, frozenset({5})), 1.0, may=True)[1] == StopTurn("revoked")


def test_what_is_taken_ends_at_the_limit_less_what_it_needs_to_end_and_with_a_promotion() -> None:
    me = ReplicaState(held=HeldTurn(5, 40.0))
    assert stop_reason(me, 37.9, primary=False, spare=2.0) is None
    assert stop_reason(me, 38.0, primary=False, spare=2.0) == "limit"
    assert stop_reason(me, 1.0, primary=True) == "promoted"
    assert stop_reason(end_turn(me), 99.0, primary=True) is None
