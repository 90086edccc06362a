"""What a replica does about its turns: pure decisions, for which the readings of its own steady clock are arguments.

Three rules make a replica safe, whatever gets lost or late on the way:

- A turn's limit counts from the SEND of the very report whose answer brought it.
- Only the answer to the latest report counts. A later report has said that nothing is taken, and the coordinator may have given the turn to
  another since then.
- What is held is told in every report until it is over, so "takes nothing" is never said while something is taken.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, replace
from typing import Final, Literal

type StopReason = Literal["limit", "revoked", "promoted", "forgotten", "stopped"]
"""Why a turn was lost: its time is over; an operator took it back; this replica is primary; the coordinator does not know this replica any
more; the participant ends."""

LEAST: Final = 1.0
"""Seconds a turn must have left to be begun."""


@dataclass(frozen=True, slots=True)
class HeldTurn:
    """A turn in hand. until: from this moment of the steady clock on, in seconds, nothing is taken."""

    epoch: int
    until: float


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """What one life of a replica knows of itself.

    seq: of its latest report, 0 before the first. sent: a moment not later than that at which the latest report left, in seconds of the
    steady clock; None when its answer has come or counts no more. held: the turn that it takes, until its outcome is told. begun: the
    highest epoch that this process has begun: none is begun twice, for the publish of the first try may still be under way.
    """

    seq: int = 0
    sent: float | None = None
    held: HeldTurn | None = None
    begun: int = 0


@dataclass(frozen=True, slots=True)
class ReportReply:
    """What a report was answered. turn: epoch and limit in seconds. revoked: epochs that must not be taken any more."""

    turn: tuple[int, float] | None = None
    revoked: Set[int] = frozenset()


@dataclass(frozen=True, slots=True)
class BeginTurn:
    """Take the checkpoint of this turn."""

    held: HeldTurn


@dataclass(frozen=True, slots=True)
class StopTurn:
    """End what is taken, now."""

    reason: StopReason


def asking(me: ReplicaState, now: float) -> ReplicaState:
    """The next report leaves: no answer to an earlier one counts from here on. now: read before it is sent."""
    return replace(me, seq=me.seq + 1, sent=now)


def unanswered(me: ReplicaState) -> ReplicaState:
    """No answer to the latest report has come, and none is waited for."""
    return replace(me, sent=None)


def answered(
    me: ReplicaState, seq: int, answer: ReportReply, now: float, *, may: bool, spare: float = 0.0
) -> tuple[ReplicaState, BeginTurn | StopTurn | None]:
    """The answer to report `seq` is here. may: right now this replica wants a turn and is a secondary. spare: seconds before the limit at
    which a turn is ended."""
    if me.sent is None or seq != me.seq:
        return me, None
    sent, me = me.sent, replace(me, sent=None)
    if me.held is not None:
        return me, StopTurn("revoked") if me.held.epoch in answer.revoked else None
    if answer.turn is None or not may:
        return me, None
    epoch, limit = answer.turn
    until = sent + limit
    if epoch <= me.begun or epoch in answer.revoked or now + spare + LEAST > until:
        # The next report says that nothing is taken.
        return me, None
    held = HeldTurn(epoch, until)
    return replace(me, held=held, begun=epoch), BeginTurn(held)


def must_stop(me: ReplicaState, now: float, *, primary: bool, spare: float = 0.0) -> StopReason | None:
    """Why what is taken must end now; None while it may go on. To be asked often: a machine may have been suspended in between."""
    if me.held is None:
        return None
    if primary:
        return "promoted"
    return "limit" if now + spare >= me.held.until else None


def over(me: ReplicaState) -> ReplicaState:
    """Nothing is taken any more: the body has ended, and what it made is published, refused or given up."""
    return replace(me, held=None)


def anew(me: ReplicaState) -> ReplicaState:
    """The coordinator knows nothing of this replica: it begins again, once nothing is taken any more."""
    return ReplicaState(begun=me.begun)
