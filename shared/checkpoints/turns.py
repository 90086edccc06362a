"""Decides when a turn ends, when the next one is granted, and whether it is handed out. Pure; `rules` combines these decisions.

The holder of a turn that was handed out may be working until the time of the turn is over, whatever it has reported since. The one
exception is `is_idle`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from . import timeouts
from .rows import EndReason, Group, ReplicaRow, TurnRow
from .selection import Candidate, choose, health_weight
from .timings import MISSES_BEFORE_ALARM, REPORT_INTERVAL, SILENCES_BEFORE_ALARM, STORE_CLOCK_STEP

type DownReason = Literal["", "silent", "clock"]
type SkipReason = Literal["", "primary", "down", "not ready", "taking", "lag", "maintenance"]


@dataclass(frozen=True, slots=True)
class TurnSettings:
    """A fleet's settings of turns, in milliseconds.

    initial, least, most: the timeout of the first turn, and the bounds of all. drift: largest relative deviation of a replica's clock from
    true time. silence: a replica that has not reported for this long is down. max_lag: None for no bound. interval: least time from one
    grant to the next.
    """

    initial: Millis = 600_000
    least: Millis = 60_000
    most: Millis = 3_600_000
    drift: float = 0.3
    silence: Millis = 60_000
    max_lag: int | None = None
    interval: Millis = 0

    @property
    def report(self) -> Millis:
        """Interval at which a replica reports."""
        return min(REPORT_INTERVAL, self.silence // 10)


class PendingImpact(NamedTuple):
    """The next maintenance of a node. at: not before this time. loses_disk: data that is in no checkpoint will be lost."""

    at: Millis
    loses_disk: bool


NO_PENDING: Final[Mapping[str, PendingImpact]] = {}


class TurnStep(NamedTuple):
    """The group after a step. over: the turn that the next one replaces, if one was granted."""

    group: Group
    over: TurnRow | None


def step(
    group: Group,
    replicas: Mapping[str, ReplicaRow],
    now: Millis,
    settings: TurnSettings,
    draw: float,
    pending: Mapping[str, PendingImpact] = NO_PENDING,
) -> TurnStep:
    """End the turn if it is over, and grant the next one if a replica may have it."""
    group = settle(group, replicas.get(group.turn.holder), now, settings)
    turn = group.turn
    if not is_free(turn, replicas.get(turn.holder), now) or (turn.epoch and now - turn.granted < settings.interval):
        return TurnStep(group, None)
    timeout = timeouts.clamp(group.next_timeout or settings.initial, settings.least, settings.most)
    why = {each.node: skip_reason(each, now, settings, timeout, pending.get(each.node), group) for _, each in sorted(replicas.items())}
    fit = [replicas[node] for node, reason in why.items() if not reason]
    if not fit:
        return TurnStep(group, None)
    # A replica that is about to lose its disk goes first, but not twice in a row.
    hurried = [each for each in fit if (soon := pending.get(each.node)) and soon.loses_disk and each.node != turn.holder]
    candidates = [_candidate(each, settings) for each in hurried or fit]
    # The last holder usually has not yet reported that it has finished.
    rest = [_candidate(replicas[node], settings) for node, reason in why.items() if reason in ("", "taking")]
    chosen, shares = choose(candidates, group.shares, draw, [each for each in rest if each not in candidates])
    if (soon := pending.get(chosen)) is not None:
        timeout = min(timeout, max(settings.least, soon.at - now))
    granted = TurnRow(turn.epoch + 1, chosen, "granted", granted=now, timeout=timeout)
    shares = tuple(share for share in shares if share.node in replicas)
    return TurnStep(replace(group, turn=granted, shares=shares), turn if turn.epoch else None)


def _candidate(replica: ReplicaRow, settings: TurnSettings) -> Candidate:
    return Candidate(replica.node, health_weight(replica.lag, replica.failures, replica.load, settings.max_lag))


def settle(group: Group, holder: ReplicaRow | None, now: Millis, settings: TurnSettings) -> Group:
    """Return the group after its turn was judged by the holder's latest row."""
    turn = group.turn
    if not turn.open:
        return group
    age = now - turn.granted
    if age >= turn.timeout:
        return _time_out(group, _timeout_reason(turn, holder, now, settings), now, settings)
    if turn.attempt and holder is not None:
        if made_checkpoint(turn, holder):
            return finish_turn(group, 0, now, settings)
        if turn.state == "taking" and is_idle(turn, holder):
            return _time_out(group, _idle_reason(turn, holder), now, settings)
        if turn.state == "granted" and (holder.life, holder.taking) == (turn.handed_life, turn.epoch):
            turn = replace(turn, state="taking")
            group = replace(group, turn=turn)
    if not turn.attempt and (reason := _unfetched_reason(holder, now, settings)):
        return _time_out(group, reason, now, settings)
    # No replica can take the turn any more: too little time is left to hand it out.
    if 2 * age > turn.timeout and turn.state == "granted" and _is_untaken(turn, holder):
        return _time_out(group, "short", now, settings)
    return group


def made_checkpoint(turn: TurnRow, holder: ReplicaRow) -> bool:
    """Return True if the holder has a later checkpoint than before its turn, although no publish has arrived.

    This holds over a restart too: the holder stores its last checkpoint only after its work has ended.
    """
    since = is_idle(turn, holder) or (
        holder.life > turn.handed_life and not holder.taking and holder.role == "secondary" and not holder.fault
    )
    return since and holder.last_checkpoint > turn.handed_last


def _unfetched_reason(holder: ReplicaRow | None, now: Millis, settings: TurnSettings) -> EndReason:
    """Return why a turn that was never handed out will not be fetched; '' while it may be.

    For a holder that became primary, the turn's time is waited out in any case.
    """
    if holder is None or is_silent(holder, now, settings):
        return "silent"
    return "short" if holder.role == "secondary" and not may_begin(holder) else ""


def _is_untaken(turn: TurnRow, holder: ReplicaRow | None) -> bool:
    return holder is not None and (is_idle(turn, holder) if turn.attempt else holder.role == "secondary")


def _timeout_reason(turn: TurnRow, holder: ReplicaRow | None, now: Millis, settings: TurnSettings) -> EndReason:
    if holder is None or is_silent(holder, now, settings) or (holder.life, holder.seq) == (turn.handed_life, turn.handed_seq):
        return "silent"
    if holder.role == "primary":
        return "promoted"
    if turn.attempt and holder.life != turn.handed_life:
        return "restarted"
    if turn.state == "taking":
        return _idle_reason(turn, holder) if is_idle(turn, holder) else "limit"
    return "short"


def _idle_reason(turn: TurnRow, holder: ReplicaRow) -> EndReason:
    """Return why an idle holder ended its work, judged by its own clock, on which it counted its limit."""
    return "limit" if holder.mono - turn.handed_mono >= turn.limit else "failed"


def finish_turn(group: Group, sequence: int, now: Millis, settings: TurnSettings) -> Group:
    """Return the group with its turn done. sequence: of the published checkpoint, 0 when none was published."""
    durations = (*group.durations, now - group.turn.granted)[-timeouts.MAX_DURATIONS :]
    timeout = timeouts.adjust(group.next_timeout or group.turn.timeout, durations, settings.drift, settings.least, settings.most)
    turn = replace(group.turn, state="done", sequence=sequence, ended=now)
    return replace(group, turn=turn, durations=durations, next_timeout=timeout, misses=0)


def _time_out(group: Group, reason: EndReason, now: Millis, settings: TurnSettings) -> Group:
    turn = replace(group.turn, state="timed-out", reason=reason, ended=now)
    # Only a holder that worked to the end shows that the timeout is too short.
    before = group.next_timeout or turn.timeout
    timeout = timeouts.lengthen(before, settings.least, settings.most) if reason == "limit" else group.next_timeout
    return replace(group, turn=turn, next_timeout=timeout, misses=group.misses + 1)


def is_free(turn: TurnRow, holder: ReplicaRow | None, now: Millis) -> bool:
    """Return true if the turn has ended and its holder certainly does not work on it, so that the next can be granted."""
    if turn.state != "revoked":
        return not turn.open
    return not turn.attempt or now - turn.granted >= turn.timeout or (holder is not None and is_idle(turn, holder))


def may_be_taken(turn: TurnRow, holder: ReplicaRow | None, now: Millis) -> bool:
    """Return true if the holder may be working on the turn."""
    return turn.attempt > 0 and (turn.open or not is_free(turn, holder, now))


# -- fitness of replicas


def is_silent(replica: ReplicaRow, now: Millis, settings: TurnSettings) -> bool:
    """Return true if the replica has not reported for longer than the fleet's `silence`."""
    # One step of the store's clock may be part of the measured age.
    return now - replica.at >= settings.silence + STORE_CLOCK_STEP


def down_reason(replica: ReplicaRow, now: Millis, settings: TurnSettings) -> DownReason:
    """Return why the replica counts as down; '' when it does not."""
    return "silent" if is_silent(replica, now, settings) else "clock" if replica.fault else ""


def skip_reason(
    replica: ReplicaRow, now: Millis, settings: TurnSettings, timeout: Millis, pending: PendingImpact | None, group: Group
) -> SkipReason:
    """Return why the replica gets no turn of `timeout` now; '' when it may get one."""
    if replica.role == "primary":
        return "primary"
    if down_reason(replica, now, settings):
        return "down"
    if replica.taking:
        return "taking"
    if not replica.ready:
        return "not ready"
    if settings.max_lag is not None and replica.lag > settings.max_lag:
        return "lag"
    if pending is not None and pending.at < now + timeout and not _in_time(pending, now, settings, timeout, group):
        return "maintenance"
    return ""


def _in_time(pending: PendingImpact, now: Millis, settings: TurnSettings, timeout: Millis, group: Group) -> bool:
    """Return true if a checkpoint can probably be finished before the disk is lost."""
    needed = timeouts.needed_timeout(group.durations, settings.drift) if group.durations else timeout
    return pending.loses_disk and pending.at - now >= max(needed, settings.least)


def stuck_reason(group: Group, replicas: Mapping[str, ReplicaRow], now: Millis, settings: TurnSettings) -> str:
    """Return the problem that an operator should look at; '' while turns come and go.

    A fit replica gets its turn with its next report or the next scan, so a long wait means that none is fit.
    """
    turn = group.turn
    if group.misses >= MISSES_BEFORE_ALARM:
        return f"{group.misses} turns in a row timed out"
    since = max(turn.ended, turn.granted + settings.interval if turn.epoch else group.since)
    waits = any(each.role == "secondary" and each.ready for each in replicas.values())
    if (
        waits
        and not turn.open
        and is_free(turn, replicas.get(turn.holder), now)
        and now - since >= SILENCES_BEFORE_ALARM * settings.silence
    ):
        return "no secondary is fit for a turn"
    return ""


# -- handing out


def hand_out(group: Group, replica: ReplicaRow, now: Millis, settings: TurnSettings) -> tuple[Group, Millis | None]:
    """Hand the turn out in the answer to the report that was just stored, if the replica holds it.

    Returns the group after that, and the limit; None for no limit when the turn is not handed out.
    """
    turn = group.turn
    if turn.state != "granted" or turn.holder != replica.node or not may_begin(replica):
        return group, None
    age = now - turn.granted
    if (turn.attempt and not is_idle(turn, replica)) or 2 * age > turn.timeout:
        return group, None
    limit = timeouts.turn_limit(turn.timeout, age, settings.drift)
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
    """Return true if the replica could begin a turn, by its own report."""
    return replica.role == "secondary" and replica.ready and not replica.taking and not replica.fault


def is_idle(turn: TurnRow, holder: ReplicaRow) -> bool:
    """Return true if the holder of a turn that was handed out certainly does not work on it and never will.

    Its own process reported so, as a secondary, after the report whose answer brought the turn; and that answer does not count once a later
    report was made. A clock out of its bounds may be the clock of another process, so such a report proves nothing.
    """
    return (
        holder.life == turn.handed_life
        and holder.seq > turn.handed_seq
        and not holder.taking
        and holder.role == "secondary"
        and not holder.fault
    )
