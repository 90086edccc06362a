"""Decides about a fleet's turns, from the rows that were read. Pure. docs/explain/checkpoints.md explains why these rules are safe.

    receive       applies a replica's report: stores it, ends the turn or grants the next one, and answers
    scan          does what is due without a report
    publish       takes a finished checkpoint
    revoke        takes a turn back for an operator
    forget_claim  drops the highest claim to be primary for an operator

`now` is the storage service's own time, from the answer that brought the view. Every write is conditional on the ETags of that view, the
turn's row above all, so that only one of two concurrent decisions counts.

`turns` decides when a turn ends and which replica gets the next one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from ..core.clock import Millis
from . import timeouts
from .clock_rate import judge_rate
from .rows import MAX_REPLICAS, ClockFault, Group, LatestCheckpoint, ReplicaRow, Role, TurnRow
from .turns import NO_PENDING, PendingImpact, TurnSettings, TurnStep, finish_turn, hand_out, is_free, settle, step

type ReportRefusal = Literal["unknown-replica", "stale-seq", "stale-term", "term-conflict", "too-many-replicas"]


@dataclass(frozen=True, slots=True)
class FleetTurns:
    """A fleet's turns as they were read."""

    group: Group
    replicas: Mapping[str, ReplicaRow]
    latest: LatestCheckpoint | None = None


@dataclass(frozen=True, slots=True)
class ReplicaReport:
    """A replica's report. taking: an epoch, 0 for none. ready: it would take a turn. mono: its own clock, milliseconds."""

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
    """The answer to a report. turn: epoch, and limit in milliseconds. revoked: epochs that the replica must not take, or no longer."""

    turn: tuple[int, Millis] | None
    revoked: tuple[int, ...]


class AcceptedReport(NamedTuple):
    """The outcome of a report: the rows after it, the turn that the next one replaces, and the answer.

    A row that does not change is the same object as before.
    """

    group: Group
    replica: ReplicaRow
    over: TurnRow | None
    answer: TurnAnswer


class Publication(NamedTuple):
    """A finished checkpoint, as its node publishes it. size: bytes."""

    node: str
    sequence: int
    location: str
    size: int


class Published(NamedTuple):
    """The publication counts. latest: the row to store, None when it stays as it is. is_latest: the answer."""

    group: Group
    latest: LatestCheckpoint | None
    is_latest: bool


class LatePublication(NamedTuple):
    """The turn was over: the publication does not count, and the turn is marked `late`. past: the marked turn, when it is not the
    group's."""

    group: Group
    past: TurnRow | None


class Revoked(NamedTuple):
    """The outcome of a revocation.

    turn: after it, None when it was revoked before. free_after: largest number of milliseconds until the next turn can be granted.
    """

    turn: TurnRow | None
    free_after: Millis


# -- reports


def receive(
    view: FleetTurns,
    node: str,
    report: ReplicaReport,
    now: Millis,
    settings: TurnSettings,
    draw: float,
    pending: Mapping[str, PendingImpact] = NO_PENDING,
) -> AcceptedReport | ReportRefusal:
    """Apply a report of `node`. draw: a random number in [0, 1) for the next grant."""
    before, group = view.replicas.get(node), view.group
    kind = _classify(before, report)
    if kind == "again":
        assert before is not None
        # A repeated report is not stored. Its sender gets a turn only if it could begin one.
        turn = _repeat_grant(group.turn, before, now, settings) if report.role == "secondary" and not report.taking else None
        return AcceptedReport(group, before, None, TurnAnswer(turn, _revoked_epochs(group.turn, before)))
    if kind == "new" and before is None and len(view.replicas) >= MAX_REPLICAS:
        return "too-many-replicas"
    if kind != "new" and kind != "next":
        return kind
    if report.role == "primary":
        claimed = _apply_claim(group, node, report.term)
        if not isinstance(claimed, Group):
            return claimed
        group = claimed
    if kind == "new":
        group = replace(group, lives=group.lives + 1, since=group.since or now)
    replica = _updated_replica(before if kind == "next" else None, node, report, now, settings, group.lives)
    stepped = step(group, {**view.replicas, node: replica}, now, settings, draw, pending)
    group, limit = hand_out(stepped.group, replica, now, settings)
    turn = None if limit is None else (group.turn.epoch, limit)
    return AcceptedReport(group, replica, stepped.over, TurnAnswer(turn, _revoked_epochs(group.turn, replica)))


def _classify(before: ReplicaRow | None, report: ReplicaReport) -> Literal["new", "next", "again"] | ReportRefusal:
    """Compare a report with the stored one of its node: of a new process, the next of the same process, or a repetition."""
    if report.seq == 1:
        if before is None or (before.incarnation, before.born) != (report.incarnation, report.mono):
            return "new"
        if before.seq == 1:
            return "again"
        # With an incarnation: a late first report of the process whose later reports are stored. Without one it may be another process
        # whose clock started at the same value, and that process must get in. If it does not exist, its new life is only waited for.
        return "stale-seq" if report.incarnation else "new"
    if before is None or before.incarnation != report.incarnation:
        return "unknown-replica"
    if report.seq == before.seq:
        return "again"
    if report.seq < before.seq:
        return "stale-seq"
    # A clock that went back belongs to another process, which must not report for this one.
    return "unknown-replica" if report.mono < before.mono else "next"


def _apply_claim(group: Group, node: str, term: int) -> Group | ReportRefusal:
    if term < group.term:
        return "stale-term"
    if term == group.term and group.primary not in ("", node):
        return "term-conflict"
    # The same object where nothing is new: most reports of a primary leave the turn's row unchanged.
    return group if (group.primary, group.term) == (node, term) else replace(group, primary=node, term=term)


def _updated_replica(
    before: ReplicaRow | None, node: str, report: ReplicaReport, now: Millis, settings: TurnSettings, lives: int
) -> ReplicaRow:
    mark = (report.mono, now)
    fault: ClockFault = ""
    first, second = mark, mark
    if before is not None:
        first, second, fault = judge_rate(before, report.mono, now, settings.drift)
    return ReplicaRow(
        node,
        lives if before is None else before.life,
        report.seq,
        report.role,
        report.term,
        now,
        report.mono,
        report.mono if before is None else before.born,
        report.incarnation,
        report.applied,
        report.lag,
        report.load,
        report.failures,
        report.last_checkpoint,
        report.taking,
        report.ready,
        first,
        second,
        fault,
    )


def _repeat_grant(turn: TurnRow, replica: ReplicaRow, now: Millis, settings: TurnSettings) -> tuple[int, Millis] | None:
    """Return the turn that the first answer to a repeated report handed out, with the time that is left now."""
    if turn.state != "granted" or turn.holder != replica.node or replica.role == "primary" or not turn.attempt:
        return None
    if (turn.handed_life, turn.handed_seq) != (replica.life, replica.seq):
        return None
    left = timeouts.turn_limit(turn.timeout, now - turn.granted, settings.drift)
    return (turn.epoch, left) if left else None


def _revoked_epochs(turn: TurnRow, replica: ReplicaRow) -> tuple[int, ...]:
    """Return the epoch that the replica reports as taken and must stop: another's turn, one that is over, or any turn of a primary."""
    if not replica.taking:
        return ()
    mine = (turn.epoch, turn.holder) == (replica.taking, replica.node)
    # A turn that is done needs no stopping: its end and this report have crossed.
    fine = mine and (turn.open or turn.state == "done") and replica.role == "secondary"
    return () if fine else (replica.taking,)


# -- steps


def scan(view: FleetTurns, now: Millis, settings: TurnSettings, draw: float, pending: Mapping[str, PendingImpact] = NO_PENDING) -> TurnStep:
    """Do what is due without a report."""
    return step(view.group, view.replicas, now, settings, draw, pending)


# -- publishing and revoking


def publish(
    view: FleetTurns, epoch: int, past: TurnRow | None, publication: Publication, now: Millis, settings: TurnSettings
) -> Published | LatePublication | Literal["missing", "not-holder"]:
    """Take the finished checkpoint of turn `epoch`. past: that turn, when it is not the group's.

    'missing': there is no such turn. 'not-holder': another node holds it now, or it was not handed out yet.
    """
    group, current = view.group, epoch == view.group.turn.epoch
    if current:
        # A turn is lost when its time is over, even if no decision has been made since.
        group = settle(group, view.replicas.get(group.turn.holder), now, settings)
    turn = group.turn if current else past
    if not 0 < epoch <= group.turn.epoch:
        return "missing"
    if turn is None:
        # The turn is so old that its row was removed.
        return LatePublication(group, None)
    if turn.holder != publication.node or not turn.attempt:
        return "not-holder" if current else LatePublication(group, None)
    if turn.state == "done" and turn.sequence == publication.sequence:
        return Published(view.group, None, view.latest is not None and view.latest.epoch == epoch)
    if not current:
        return LatePublication(group, None if turn.late else replace(turn, late=True))
    if turn.open:
        group = finish_turn(group, publication.sequence, now, settings)
    elif turn.state == "done" and not turn.sequence:
        group = replace(group, turn=replace(turn, sequence=publication.sequence))
    else:
        return LatePublication(group if turn.late else replace(group, turn=replace(turn, late=True)), None)
    newest = view.latest is None or publication.sequence > view.latest.sequence
    return Published(
        group,
        LatestCheckpoint(epoch, publication.node, publication.sequence, publication.location, publication.size, now) if newest else None,
        newest,
    )


def revoke(view: FleetTurns, epoch: int, note: str, author: str, now: Millis) -> Revoked | Literal["missing", "already-ended"]:
    """Take turn `epoch` back. 'already-ended': it is not the group's turn any more, or has ended."""
    turn = view.group.turn
    if epoch > turn.epoch or not epoch:
        return "missing"
    if epoch != turn.epoch or (not turn.open and turn.state != "revoked"):
        return "already-ended"
    after = turn if turn.state == "revoked" else replace(turn, state="revoked", ended=now, note=note, author=author)
    waits = 0 if is_free(after, view.replicas.get(turn.holder), now) else max(0, turn.granted + turn.timeout - now)
    return Revoked(after if after is not turn else None, waits)


def forget_claim(group: Group) -> Group:
    """Return the group without the highest claim to be primary, so that any claim counts again; the same object where there is none.

    A primary is kept from turns by its own last report, which stays, and not by this claim.
    """
    return replace(group, primary="", term=0) if group.primary or group.term else group
