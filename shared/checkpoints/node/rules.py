"""Decides for a replica about its turns. Pure; the readings of its own steady clock are arguments.

Three rules make a replica safe against lost and late messages:

- A turn's limit counts from the SEND of the very report whose answer brought it.
- Only the answer to the latest report counts. A later report has said that no turn is taken, and the coordinator may have granted the turn
  to another replica since.
- Every report carries the held turn until it is over, so no report says "no turn is taken" during a turn.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Literal

from .timings import MIN_REMAINING

type StopReason = Literal["limit", "revoked", "promoted", "forgotten", "stopped"]
"""Reason for which a turn is lost: its time is over, an operator revoked it, this replica is primary, the coordinator does not know this
replica any more, or the participant ends."""


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn that the replica holds. until: end of its time, in seconds of the steady clock."""

    epoch: int
    until: float


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """The state of one life of a replica.

    seq: of its latest report, 0 before the first. sent: not later than the moment the latest report left, in seconds of the steady clock;
    None once its answer has come or no longer counts. held: the turn that it takes, until its outcome is settled. begun: the highest epoch
    that this process has begun. No turn is begun twice, because the publish of the first attempt may still be under way.
    """

    seq: int = 0
    sent: float | None = None
    held: HeldTurn | None = None
    begun: int = 0


@dataclass(frozen=True, slots=True)
class ReportReply:
    """The answer to a report. turn: epoch, and limit in seconds. revoked: epochs that must not be taken any more."""

    turn: tuple[int, float] | None = None
    revoked: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BeginTurn:
    """Decision: take the checkpoint of this turn."""

    held: HeldTurn


@dataclass(frozen=True, slots=True)
class StopTurn:
    """Decision: end the held turn now."""

    reason: StopReason


def start_report(me: ReplicaState, now: float) -> ReplicaState:
    """Start the next report. From here on, no answer to an earlier one counts. now: read before the report is sent."""
    return replace(me, seq=me.seq + 1, sent=now)


def report_failed(me: ReplicaState) -> ReplicaState:
    """Note that the latest report failed: its answer is no longer awaited."""
    return replace(me, sent=None)


def apply_answer(
    me: ReplicaState, seq: int, answer: ReportReply, now: float, *, may: bool, spare: float = 0.0
) -> tuple[ReplicaState, BeginTurn | StopTurn | None]:
    """Apply the answer to report `seq`.

    may: at this moment the replica wants a turn and is a secondary. spare: seconds before the limit at which a turn is ended.
    """
    if me.sent is None or seq != me.seq:
        return me, None
    sent, me = me.sent, replace(me, sent=None)
    if me.held is not None:
        return me, StopTurn("revoked") if me.held.epoch in answer.revoked else None
    if answer.turn is None or not may:
        return me, None
    epoch, limit = answer.turn
    until = sent + limit
    if epoch <= me.begun or epoch in answer.revoked or now + spare + MIN_REMAINING > until:
        # The next report says that the turn is not taken.
        return me, None
    held = HeldTurn(epoch, until)
    return replace(me, held=held, begun=epoch), BeginTurn(held)


def stop_reason(me: ReplicaState, now: float, *, primary: bool, spare: float = 0.0) -> StopReason | None:
    """Return why the held turn must end now; None while it may go on. Call it often: the machine may have been suspended in between."""
    if me.held is None:
        return None
    if primary:
        return "promoted"
    return "limit" if now + spare >= me.held.until else None


def end_turn(me: ReplicaState) -> ReplicaState:
    """End the held turn: its body has ended, and its checkpoint is published, refused or given up."""
    return replace(me, held=None)


def restart(me: ReplicaState) -> ReplicaState:
    """Return the state of a new life, for a replica that the coordinator does not know. Only after the held turn has ended."""
    return ReplicaState(begun=me.begun)
