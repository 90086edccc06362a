"""When a turn ends, when the next one is granted, and to whom it is handed out: pure decisions, which `rules` puts together.

A turn that was handed out may be taken until its time is over, whatever its holder has said since, with one exception: `idle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from . import timeouts
from .rows import EndReason, Group, ReplicaRow, TurnRow
from .selection import Candidate, choose, health

REPORT: Final[Millis] = 5000
"""How often a replica is to report; a tenth of the silence after which it is down, where that is less."""

STEP: Final[Millis] = 1000
"""The store's time goes in steps of so much."""
MISSES: Final = 3
"""Turns that time out one after the other before it is an alarm."""
PATIENCE: Final = 3
"""Silences of a fleet for which nobody may be fit for a turn before it is one."""

type DownReason = Literal["", "silent", "clock"]
type SkipReason = Literal["", "primary", "down", "not ready", "taking", "lag", "maintenance"]


@dataclass(frozen=True, slots=True)
class TurnTerms:
    """What the fleet's definition says of turns. Milliseconds; drift: how much faster or slower than true time a replica's clock may run;
    interval: least time from one grant to the next."""

    initial: Millis = 600_000
    least: Millis = 60_000
    most: Millis = 3_600_000
    drift: float = 0.3
    silence: Millis = 60_000
    max_lag: int | None = None
    interval: Millis = 0

    @property
    def report(self) -> Millis:
        """How often a replica is to report."""
        return min(REPORT, self.silence // 10)


class PendingImpact(NamedTuple):
    """Maintenance that is to come to a node. at: not before then. loses_disk: what is not in a checkpoint is lost."""

    at: Millis
    loses_disk: bool


NO_PENDING: Final[Mapping[str, PendingImpact]] = {}


class TurnStep(NamedTuple):
    """What a step made of the group, and the turn that makes room for the next, if one was granted."""

    group: Group
    over: TurnRow | None


def step(
    group: Group,
    replicas: Mapping[str, ReplicaRow],
    now: Millis,
    terms: TurnTerms,
    draw: float,
    pending: Mapping[str, PendingImpact] = NO_PENDING,
) -> TurnStep:
    """End the turn if it is over, and grant the next if one may have it."""
    group = settle(group, replicas.get(group.turn.holder), now, terms)
    turn = group.turn
    if not free(turn, replicas.get(turn.holder), now) or (turn.epoch and now - turn.granted < terms.interval):
        return TurnStep(group, None)
    timeout = timeouts.bounded(group.next_timeout or terms.initial, terms.least, terms.most)
    why = {each.node: unfit(each, now, terms, timeout, pending.get(each.node), group) for _, each in sorted(replicas.items())}
    fit = [replicas[node] for node, reason in why.items() if not reason]
    if not fit:
        return TurnStep(group, None)
    # Whose disk is about to be lost goes first, but not twice in a row.
    hurried = [each for each in fit if (soon := pending.get(each.node)) and soon.loses_disk and each.node != turn.holder]
    candidates = [_candidate(each, terms) for each in hurried or fit]
    # The last holder has not said yet, as a rule, that it has finished.
    rest = [_candidate(replicas[node], terms) for node, reason in why.items() if reason in ("", "taking")]
    chosen, shares = choose(candidates, group.shares, draw, [each for each in rest if each not in candidates])
    if (soon := pending.get(chosen)) is not None:
        timeout = min(timeout, max(terms.least, soon.at - now))
    granted = TurnRow(turn.epoch + 1, chosen, "granted", granted=now, timeout=timeout)
    shares = tuple(share for share in shares if share.node in replicas)
    return TurnStep(replace(group, turn=granted, shares=shares), turn if turn.epoch else None)


def _candidate(replica: ReplicaRow, terms: TurnTerms) -> Candidate:
    return Candidate(replica.node, health(replica.lag, replica.failures, replica.load, terms.max_lag))


def settle(group: Group, holder: ReplicaRow | None, now: Millis, terms: TurnTerms) -> Group:
    """The group once what is known of the holder is applied to its turn. holder: its row, as it is now."""
    turn = group.turn
    if not turn.open:
        return group
    age = now - turn.granted
    if age >= turn.timeout:
        return _timed_out(group, _why(turn, holder, now, terms), now, terms)
    if turn.attempt and holder is not None:
        if _finished(turn, holder):
            return finished(group, 0, now, terms)
        if turn.state == "taking" and idle(turn, holder):
            return _timed_out(group, _gave_up(turn, holder), now, terms)
        if turn.state == "granted" and (holder.life, holder.taking) == (turn.handed_life, turn.epoch):
            turn = replace(turn, state="taking")
            group = replace(group, turn=turn)
    if not turn.attempt and (reason := _unfetched(holder, now, terms)):
        return _timed_out(group, reason, now, terms)
    # Nobody can take it any more: too little is left to be handed out.
    if 2 * age > turn.timeout and turn.state == "granted" and _untaken(turn, holder):
        return _timed_out(group, "short", now, terms)
    return group


def _finished(turn: TurnRow, holder: ReplicaRow) -> bool:
    """Whether the holder has a later checkpoint than before its turn, though no publish has told of it. Over a restart too: what keeps
    its last checkpoint has ended the body before."""
    since = idle(turn, holder) or (holder.life > turn.handed_life and not holder.taking and holder.role == "secondary" and not holder.fault)
    return since and holder.last_checkpoint > turn.handed_last


def _unfetched(holder: ReplicaRow | None, now: Millis, terms: TurnTerms) -> EndReason:
    """Why a turn that was never handed out will not be fetched; '' while it may. A holder that became primary is waited out in any case."""
    if holder is None or silent(holder, now, terms):
        return "silent"
    return "short" if holder.role == "secondary" and not may_begin(holder) else ""


def _untaken(turn: TurnRow, holder: ReplicaRow | None) -> bool:
    return holder is not None and (idle(turn, holder) if turn.attempt else holder.role == "secondary")


def _why(turn: TurnRow, holder: ReplicaRow | None, now: Millis, terms: TurnTerms) -> EndReason:
    if holder is None or silent(holder, now, terms) or (holder.life, holder.seq) == (turn.handed_life, turn.handed_seq):
        return "silent"
    if holder.role == "primary":
        return "promoted"
    if turn.attempt and holder.life != turn.handed_life:
        return "restarted"
    if turn.state == "taking":
        return _gave_up(turn, holder) if idle(turn, holder) else "limit"
    return "short"


def _gave_up(turn: TurnRow, holder: ReplicaRow) -> EndReason:
    """Why a holder takes nothing any more, by its own clock, on which it counted its limit."""
    return "limit" if holder.mono - turn.handed_mono >= turn.limit else "failed"


def finished(group: Group, sequence: int, now: Millis, terms: TurnTerms) -> Group:
    """The turn is done, with the checkpoint `sequence`, 0 when it was not published."""
    durations = (*group.durations, now - group.turn.granted)[-timeouts.MOST_KEPT :]
    timeout = timeouts.settled(group.next_timeout or group.turn.timeout, durations, terms.drift, terms.least, terms.most)
    turn = replace(group.turn, state="done", sequence=sequence, ended=now)
    return replace(group, turn=turn, durations=durations, next_timeout=timeout, misses=0)


def _timed_out(group: Group, reason: EndReason, now: Millis, terms: TurnTerms) -> Group:
    turn = replace(group.turn, state="timed-out", reason=reason, ended=now)
    # Only who was at work to the end shows that the time is too short.
    before = group.next_timeout or turn.timeout
    timeout = timeouts.grown(before, terms.least, terms.most) if reason == "limit" else group.next_timeout
    return replace(group, turn=turn, next_timeout=timeout, misses=group.misses + 1)


def free(turn: TurnRow, holder: ReplicaRow | None, now: Millis) -> bool:
    """Whether nobody can be at work in a turn that is not open, so that the next can be granted."""
    if turn.state != "revoked":
        return not turn.open
    return not turn.attempt or now - turn.granted >= turn.timeout or (holder is not None and idle(turn, holder))


def may_be_taken(turn: TurnRow, holder: ReplicaRow | None, now: Millis) -> bool:
    """Whether the holder may be at work."""
    return turn.attempt > 0 and (turn.open or not free(turn, holder, now))


# -- who may have a turn


def silent(replica: ReplicaRow, now: Millis, terms: TurnTerms) -> bool:
    """Whether the replica has not been heard of for too long."""
    # Of that time a second may be the store's step.
    return now - replica.at >= terms.silence + STEP


def down(replica: ReplicaRow, now: Millis, terms: TurnTerms) -> DownReason:
    """Why the replica counts as down."""
    return "silent" if silent(replica, now, terms) else "clock" if replica.fault else ""


def unfit(replica: ReplicaRow, now: Millis, terms: TurnTerms, timeout: Millis, pending: PendingImpact | None, group: Group) -> SkipReason:
    """Why the replica gets no turn of `timeout` now."""
    if replica.role == "primary":
        return "primary"
    if down(replica, now, terms):
        return "down"
    if replica.taking:
        return "taking"
    if not replica.ready:
        return "not ready"
    if terms.max_lag is not None and replica.lag > terms.max_lag:
        return "lag"
    if pending is not None and pending.at < now + timeout and not _in_time(pending, now, terms, timeout, group):
        return "maintenance"
    return ""


def _in_time(pending: PendingImpact, now: Millis, terms: TurnTerms, timeout: Millis, group: Group) -> bool:
    """Whether a checkpoint is worth a try before the disk is lost."""
    needed = timeouts.fitting(group.durations, terms.drift) if group.durations else timeout
    return pending.loses_disk and pending.at - now >= max(needed, terms.least)


def stuck(group: Group, replicas: Mapping[str, ReplicaRow], now: Millis, terms: TurnTerms) -> str:
    """What a person should look at; '' while turns come and go. Those who are well get one with their next report, or the next scan."""
    turn = group.turn
    if group.misses >= MISSES:
        return f"{group.misses} turns in a row timed out"
    since = max(turn.ended, turn.granted + terms.interval if turn.epoch else group.since)
    waits = any(each.role == "secondary" and each.ready for each in replicas.values())
    if waits and not turn.open and free(turn, replicas.get(turn.holder), now) and now - since >= PATIENCE * terms.silence:
        return "no secondary is fit for a turn"
    return ""


# -- handing out


def hand_out(group: Group, replica: ReplicaRow, now: Millis, terms: TurnTerms) -> tuple[Group, Millis | None]:
    """Hand the turn out in the answer to the report that was just stored, if it is the replica's: the group after it, and the limit."""
    turn = group.turn
    if turn.state != "granted" or turn.holder != replica.node or not may_begin(replica):
        return group, None
    age = now - turn.granted
    if (turn.attempt and not idle(turn, replica)) or 2 * age > turn.timeout:
        return group, None
    limit = timeouts.limit(turn.timeout, age, terms.drift)
    if not limit:
        return group, None
    handed = replace(
        turn,
        attempt=turn.attempt + 1,
        handed=now,
        handed_seq=replica.seq,
        handed_life=replica.life,
        handed_mono=replica.mono,
        handed_last=replica.last_checkpoint,
        limit=limit,
    )
    return replace(group, turn=handed), limit


def may_begin(replica: ReplicaRow) -> bool:
    """Whether the replica, by its own report, could begin a turn."""
    return replica.role == "secondary" and replica.ready and not replica.taking and not replica.fault


def idle(turn: TurnRow, holder: ReplicaRow) -> bool:
    """Whether the holder of a turn that was handed out certainly does not take it, nor ever will.

    Its own process said so, as a secondary, after the report whose answer brought the turn: and that answer counts for nothing once a later
    report was made. A clock out of its bounds may be that of another process.
    """
    return (
        holder.life == turn.handed_life
        and holder.seq > turn.handed_seq
        and not holder.taking
        and holder.role == "secondary"
        and not holder.fault
    )
