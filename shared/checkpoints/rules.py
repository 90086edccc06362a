"""What becomes of turns: pure decisions over what was read of a fleet. See docs/checkpoints.md for why they are safe.

    receive   a replica's report: what is stored of it, whether the turn ends or the next one is granted, and the answer
    scan      the same without a report
    publish   a finished checkpoint
    revoke    an operator takes a turn back
    forgotten an operator takes back what was claimed

`now` is the storage service's own time, as the answer said that brought the view; every write rests on the ETags of that view, the turn's
row above all, so that of two decisions at once one counts.

`turning` says when a turn ends and who gets the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..core.clock import Millis
from . import timeouts
from .clock_rate import rated
from .rows import MAX_REPLICAS, ClockFault, Group, LatestCheckpoint, ReplicaRow, Role, TurnRow
from .turns import NO_PENDING, PendingImpact, TurnStep, TurnTerms, finished, free, hand_out, settle, step

type ReportRefusal = Literal["unknown-replica", "stale-seq", "stale-term", "term-conflict", "too-many-replicas"]


@dataclass(frozen=True, slots=True)
class FleetTurns:
    """What is known of a fleet's turns, as it was read."""

    group: Group
    replicas: Mapping[str, ReplicaRow]
    latest: LatestCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """What a replica says of itself. taking: an epoch, 0 for none. ready: it would take a turn. mono: its own clock, milliseconds."""

    seq: int
    role: Role
    term: int
    mono: Millis
    applied: int = 0
    lag: int = 0
    load: float = 0.0
    failures: int = 0
    last_checkpoint: int = 0
    taking: int = 0
    ready: bool = True
    incarnation: str = ""


class TurnAnswer(NamedTuple):
    """What a replica is told. turn: epoch and limit in milliseconds. revoked: epochs that it must not take (any more)."""

    turn: tuple[int, Millis] | None
    revoked: tuple[int, ...]


class AcceptedReport(NamedTuple):
    """A report's outcome: the rows as they are then (the same object where one does not change), a turn that makes room, the answer."""

    group: Group
    replica: ReplicaRow
    over: TurnRow | None
    answer: TurnAnswer


class Publication(NamedTuple):
    """A finished checkpoint, as its node tells."""

    node: str
    sequence: int
    location: str
    size: int


class Published(NamedTuple):
    """It counts. group: as it is then. latest: to be stored, None when it stays. is_latest: the answer."""

    group: Group
    latest: LatestCheckpoint | None
    is_latest: bool


class LatePublication(NamedTuple):
    """The turn was lost: nothing counts, it gets its mark. group: as it is then. past: the marked turn, when it is not the group's."""

    group: Group
    past: TurnRow | None


class Revoked(NamedTuple):
    """turn: as it is then, None when it was revoked before. free_after: milliseconds until the next one can be granted, at most."""

    turn: TurnRow | None
    free_after: Millis


# -- reports


def receive(
    view: FleetTurns,
    node: str,
    told: ReplicaReport,
    now: Millis,
    terms: TurnTerms,
    draw: float,
    pending: Mapping[str, PendingImpact] = NO_PENDING,
) -> AcceptedReport | ReportRefusal:
    """A report of `node`. draw: chance in [0, 1) for the next grant."""
    before, group = view.replicas.get(node), view.group
    heard = _heard(before, told)
    if heard == "again":
        assert before is not None
        # Nothing of a repeat is stored, but a turn is not for one that could not begin it.
        turn = _again(group.turn, before, now, terms) if told.role == "secondary" and not told.taking else None
        return AcceptedReport(group, before, None, TurnAnswer(turn, _revoked(group.turn, before)))
    if heard == "new" and before is None and len(view.replicas) >= MAX_REPLICAS:
        return "too-many-replicas"
    if heard != "new" and heard != "next":
        return heard
    if told.role == "primary":
        claimed = _claimed(group, node, told.term)
        if not isinstance(claimed, Group):
            return claimed
        group = claimed
    if heard == "new":
        group = replace(group, lives=group.lives + 1, since=group.since or now)
    replica = _stored(before if heard == "next" else None, node, told, now, terms, group.lives)
    stepped = step(group, {**view.replicas, node: replica}, now, terms, draw, pending)
    group, limit = hand_out(stepped.group, replica, now, terms)
    turn = None if limit is None else (group.turn.epoch, limit)
    return AcceptedReport(group, replica, stepped.over, TurnAnswer(turn, _revoked(group.turn, replica)))


def _heard(before: ReplicaRow | None, told: ReplicaReport) -> Literal["new", "next", "again"] | ReportRefusal:
    """What a report is to what its node said before."""
    if told.seq == 1:
        if before is None or (before.incarnation, before.born) != (told.incarnation, told.mono):
            return "new"
        if before.seq == 1:
            return "again"
        # It comes late, of the very process whose later reports are stored. One without a name may be another process whose clock began
        # alike: that must get in, and a new life that nobody lives is only waited for.
        return "stale-seq" if told.incarnation else "new"
    if before is None or before.incarnation != told.incarnation:
        return "unknown-replica"
    if told.seq == before.seq:
        return "again"
    if told.seq < before.seq:
        return "stale-seq"
    # A clock that went back is another process's: it must not speak for this one.
    return "unknown-replica" if told.mono < before.mono else "next"


def _claimed(group: Group, node: str, term: int) -> Group | ReportRefusal:
    if term < group.term:
        return "stale-term"
    if term == group.term and group.primary not in ("", node):
        return "term-conflict"
    # The same group where nothing is new: most reports of a primary leave the turn's row alone.
    return group if (group.primary, group.term) == (node, term) else replace(group, primary=node, term=term)


def _stored(before: ReplicaRow | None, node: str, told: ReplicaReport, now: Millis, terms: TurnTerms, lives: int) -> ReplicaRow:
    mark = (told.mono, now)
    fault: ClockFault = ""
    first, second = mark, mark
    if before is not None:
        first, second, fault = rated(before, told.mono, now, terms.drift)
    return ReplicaRow(
        node,
        lives if before is None else before.life,
        told.seq,
        told.role,
        told.term,
        now,
        told.mono,
        told.mono if before is None else before.born,
        told.incarnation,
        told.applied,
        told.lag,
        told.load,
        told.failures,
        told.last_checkpoint,
        told.taking,
        told.ready,
        first,
        second,
        fault,
    )


def _again(turn: TurnRow, replica: ReplicaRow, now: Millis, terms: TurnTerms) -> tuple[int, Millis] | None:
    """What the answer to a report that is repeated hands out: what it did the first time, for as long as is left now."""
    if turn.state != "granted" or turn.holder != replica.node or replica.role == "primary" or not turn.attempt:
        return None
    if (turn.handed_life, turn.handed_seq) != (replica.life, replica.seq):
        return None
    left = timeouts.limit(turn.timeout, now - turn.granted, terms.drift)
    return (turn.epoch, left) if left else None


def _revoked(turn: TurnRow, replica: ReplicaRow) -> tuple[int, ...]:
    """What the replica says it takes and must not: not its turn, or over, or not for a primary."""
    if not replica.taking:
        return ()
    mine = (turn.epoch, turn.holder) == (replica.taking, replica.node)
    # One that is done needs no stopping: its end and this report have crossed.
    fine = mine and (turn.open or turn.state == "done") and replica.role == "secondary"
    return () if fine else (replica.taking,)


# -- steps


def scan(view: FleetTurns, now: Millis, terms: TurnTerms, draw: float, pending: Mapping[str, PendingImpact] = NO_PENDING) -> TurnStep:
    """What is due, without a report."""
    return step(view.group, view.replicas, now, terms, draw, pending)


# -- publishing and revoking


def publish(
    view: FleetTurns, epoch: int, past: TurnRow | None, told: Publication, now: Millis, terms: TurnTerms
) -> Published | LatePublication | Literal["missing", "not-holder"]:
    """A finished checkpoint of turn `epoch`. past: that turn, when it is not the group's.

    'missing': there is no such turn. 'not-holder': it is another node's now, or was not handed out yet.
    """
    group, current = view.group, epoch == view.group.turn.epoch
    if current:
        # A turn whose time is over is lost, whether anybody has looked since or not.
        group = settle(group, view.replicas.get(group.turn.holder), now, terms)
    turn = group.turn if current else past
    if not 0 < epoch <= group.turn.epoch:
        return "missing"
    if turn is None:
        # So old that it is forgotten.
        return LatePublication(group, None)
    if turn.holder != told.node or not turn.attempt:
        return "not-holder" if current else LatePublication(group, None)
    if turn.state == "done" and turn.sequence == told.sequence:
        return Published(view.group, None, view.latest is not None and view.latest.epoch == epoch)
    if not current:
        return LatePublication(group, None if turn.late else replace(turn, late=True))
    if turn.open:
        group = finished(group, told.sequence, now, terms)
    elif turn.state == "done" and not turn.sequence:
        group = replace(group, turn=replace(turn, sequence=told.sequence))
    else:
        return LatePublication(group if turn.late else replace(group, turn=replace(turn, late=True)), None)
    newest = view.latest is None or told.sequence > view.latest.sequence
    return Published(group, LatestCheckpoint(epoch, told.node, told.sequence, told.location, told.size, now) if newest else None, newest)


def revoke(view: FleetTurns, epoch: int, note: str, author: str, now: Millis) -> Revoked | Literal["missing", "already-ended"]:
    """Take turn `epoch` back. It is the group's turn, or over."""
    turn = view.group.turn
    if epoch > turn.epoch or not epoch:
        return "missing"
    if epoch != turn.epoch or (not turn.open and turn.state != "revoked"):
        return "already-ended"
    after = turn if turn.state == "revoked" else replace(turn, state="revoked", ended=now, note=note, author=author)
    waits = 0 if free(after, view.replicas.get(turn.holder), now) else max(0, turn.granted + turn.timeout - now)
    return Revoked(after if after is not turn else None, waits)


def forgotten(group: Group) -> Group:
    """The group without the highest claim to be primary: any claim counts again. The same group where there is none.

    Nothing that keeps a primary from a turn rests on it: that is what a replica's own last report says, which stays.
    """
    return replace(group, primary="", term=0) if group.primary or group.term else group
