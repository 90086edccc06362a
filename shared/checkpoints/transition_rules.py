"""Judges which changes of a fleet's turn are legal. Pure: the model checker judges its worlds by these functions, and `tocsin verify-trace`
judges what production has logged. Each returns a sentence that names the broken rule, or ''.
"""

from __future__ import annotations

from ..core.clock import Millis
from .rows import LatestCheckpoint, ReplicaRow, TurnRow
from .timeouts import turn_limit
from .turns import is_idle, made_checkpoint


def judge_step(
    before: TurnRow, over: TurnRow | None, after: TurnRow, holder: ReplicaRow | None, drift: float, *, known: bool = True
) -> str:
    """Judge a write of the turn's row that may end a turn and grant the next one at once. over: the row of the ended turn that the same
    transaction files. The others are those of `judge_turn`."""
    if over is not None and over.epoch == before.epoch and after.epoch != before.epoch:
        if broken := judge_turn(before, over, holder, drift, known=known):
            return broken
        before = over
    return judge_turn(before, after, holder, drift, known=known)


def judge_turn(before: TurnRow, after: TurnRow, holder: ReplicaRow | None, drift: float, *, known: bool = True) -> str:
    """Judge a write of the turn's row.

    before: the turn that was read. after: the stored one. holder: the row of the holder of `before`, as it was read, or as the transaction
    stores it. drift: the fleet's; the smallest possible one if it is not known. known: False if the holder's row is not in the trace.
    """
    if after.epoch == before.epoch:
        return _judge_same(before, after, holder, drift, known=known)
    if after.epoch != before.epoch + 1:
        return f"the turn goes from {before.epoch} to {after.epoch}: each grant adds 1"
    if after.state != "granted":
        return f"turn {after.epoch} begins {after.state}: a turn begins granted"
    if known and before.epoch and before.attempt and not _is_over(before, holder, after.granted):
        return f"turn {after.epoch} is granted to {after.holder} while {before.holder} may work on turn {before.epoch}"
    if after.attempt:
        return _judge_limit(after, drift)
    return ""


def _judge_same(before: TurnRow, after: TurnRow, holder: ReplicaRow | None, drift: float, *, known: bool) -> str:
    if after.holder != before.holder or after.granted != before.granted or after.timeout != before.timeout:
        return f"turn {after.epoch} of {before.holder} changes hands, or its time, after the grant"
    if not before.open and after.open:
        return f"turn {after.epoch} is {after.state} after it was {before.state}"
    if not before.open and after.state != before.state:
        return f"turn {after.epoch} ends twice: {before.state}, then {after.state}"
    published = after.state == "done" and after.sequence
    ends = before.open and after.state in ("done", "timed-out") and not published
    if ends and before.attempt and known and not _is_over(before, holder, after.ended):
        return f"turn {after.epoch} is {after.state} while {before.holder} may work on it"
    if after.attempt > before.attempt:
        if before.attempt and known and holder is not None and not is_idle(before, holder):
            return f"turn {after.epoch} is handed out again to {before.holder}, which may work on it"
        return _judge_limit(after, drift)
    if after.attempt < before.attempt:
        return f"turn {after.epoch} was handed out {before.attempt} times, and now {after.attempt}"
    return ""


def _judge_limit(turn: TurnRow, drift: float) -> str:
    most = turn_limit(turn.timeout, turn.handed - turn.granted, drift)
    if turn.limit > most:
        return f"turn {turn.epoch} is handed out for {turn.limit} ms, and {most} ms are left of its time"
    return ""


def _is_over(turn: TurnRow, holder: ReplicaRow | None, now: Millis) -> bool:
    """Return True if the holder of a turn that was handed out has certainly stopped working on it."""
    if turn.state in ("done", "timed-out") or now - turn.granted >= turn.timeout:
        return True
    return holder is not None and (is_idle(turn, holder) or made_checkpoint(turn, holder))


def judge_latest(before: LatestCheckpoint | None, after: LatestCheckpoint, turn: TurnRow | None) -> str:
    """Judge a write of the latest checkpoint. turn: the one that was read; None if it is not known."""
    if before is not None and after.sequence < before.sequence:
        return f"the latest checkpoint goes back from sequence {before.sequence} to {after.sequence}"
    if turn is None:
        return ""
    if (turn.epoch, turn.holder) != (after.epoch, after.node) or turn.state not in ("granted", "taking", "done"):
        return f"a lost turn is published: {after.epoch} of {after.node}, while {turn.epoch} of {turn.holder} is {turn.state}"
    return ""
