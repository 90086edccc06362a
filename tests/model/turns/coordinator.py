"""The coordinator of turns: by the production rules, it derives the rows to write and the answer from the rows that it has read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from shared.checkpoints import rules, transition_rules
from shared.checkpoints.rows import LATEST, REPLICAS, TURN, Group, LatestCheckpoint, ReplicaRow, TurnRow, replica_key
from tests.model.checking.checker import Violation

from .state import DRIFT, START, Answer, Change, Forget, Play, Publish, ReplicaReport, Request, Revoke

type Rows = Mapping[str, Any]


def turn_settings(play: Play) -> rules.TurnSettings:
    """The fleet's settings in a play: one time-out, so that what it has learnt does not tell states apart."""
    timeout = play.timeout * 1000
    return rules.TurnSettings(timeout, timeout, timeout, DRIFT, play.silence * 1000)


def view(rows: Rows) -> rules.FleetTurns:
    replicas = {row.node: row for row in rows.values() if isinstance(row, ReplicaRow)}
    return rules.FleetTurns(rows.get(TURN, Group()), replicas, rows.get(LATEST))


def decide(play: Play, rows: Rows, request: Request, date: int, draw: float) -> tuple[Change | None, Answer | None]:
    """Return the rows to write and the answer to a report. None for nothing to write, and for requests without an answer."""
    seen = view(rows)
    match request:
        case ReplicaReport():
            report = rules.ReplicaReport(
                request.seq,
                "primary" if request.role == "primary" else "secondary",
                request.term,
                request.life * 1000,
                last_checkpoint=request.last,
                taking=request.taking,
                ready=request.ready,
                incarnation=str(request.life),
            )
            found = rules.receive(seen, request.node, report, date, turn_settings(play), draw)
            if isinstance(found, str):
                return None, Answer(request.node, request.life, request.seq, refused=found)
            epoch, limit = found.answer.turn or (0, 0)
            answer = Answer(request.node, request.life, request.seq, epoch, limit, found.answer.revoked)
            return change(play, rows, {TURN: found.group, replica_key(request.node): found.replica}, found.over), answer
        case Publish(node, epoch, sequence):
            published = rules.publish(seen, epoch, None, rules.Publication(node, sequence, "", 0), date, turn_settings(play))
            if isinstance(published, str):
                return None, None
            wanted: dict[str, Any] = {TURN: published.group}
            if isinstance(published, rules.Published) and published.latest is not None:
                wanted[LATEST] = published.latest
            return change(play, rows, wanted), None
        case Revoke(epoch):
            revoked = rules.revoke(seen, epoch, "", "", date)
            if isinstance(revoked, str) or revoked.turn is None:
                return None, None
            return change(play, rows, {TURN: with_turn(seen.group, revoked.turn)}), None
        case Forget():
            return change(play, rows, {TURN: rules.forget_claim(seen.group)}), None
        case _:
            stepped = rules.scan(seen, date, turn_settings(play), draw)
            return change(play, rows, {TURN: stepped.group}, stepped.over), None


def with_turn(group: Group, turn: TurnRow) -> Group:
    return Group(turn, group.primary, group.term, group.lives, group.next_timeout, (), group.shares, 0, group.since)


def change(play: Play, rows: Rows, wanted: Mapping[str, Any], over: TurnRow | None = None) -> Change | None:
    """Return the rows that differ, each on the condition that the stored row is still the one that was read. over: the ended turn."""
    plain = {rk: lasting(play, row) for rk, row in wanted.items()}
    found = tuple((rk, rows.get(rk), row) for rk, row in sorted(plain.items()) if rows.get(rk) != row)
    return Change(found, judge(rows, wanted, over)) if found else None


def judge(rows: Rows, wanted: Mapping[str, Any], over: TurnRow | None) -> str:
    """Return the rule that a write breaks, by the functions that judge traces of production."""
    if TURN not in wanted or TURN not in rows:
        return ""
    before: TurnRow = rows[TURN].turn
    holder = wanted.get(replica_key(before.holder), rows.get(replica_key(before.holder)))
    return transition_rules.judge_step(before, over, wanted[TURN].turn, holder, DRIFT)


def lasting(play: Play, row: Any) -> Any:
    """Without what no decision of these plays rests on: with one time-out for all turns, what was learnt of them; how clocks run; in
    plays too short for anybody to fall silent, when a replica was heard of."""
    if isinstance(row, Group):
        row = with_turn(row, replace(row.turn, handed=0, handed_mono=0, limit=0, ended=0))
        # With nothing owed, anybody may be drawn who is not forced: more than can happen, and fewer states.
        return replace(row, shares=tuple(share._replace(debt=0.0) for share in row.shares)) if play.endless else row
    if isinstance(row, ReplicaRow):
        mark = (row.mono, row.at if play.endless else START * 1000)
        return replace(row, at=mark[1], first=mark, second=mark)
    return row


def open_epoch(rows: Rows) -> int:
    """The epoch of the turn that goes on, 0 for none."""
    turn = view(rows).group.turn
    return turn.epoch if turn.open else 0


def handed(rows: Rows, epoch: int) -> tuple[str, bool]:
    """Return the holder of the turn, '' when another turn has followed, and whether it was handed out."""
    turn = view(rows).group.turn
    return (turn.holder, turn.attempt > 0) if turn.epoch == epoch else ("", True)


def over(rows: Rows, sent: ReplicaReport) -> bool:
    """Return whether a report has no effect any more, whenever it is handled."""
    row = rows.get(replica_key(sent.node))
    return row is not None and row.incarnation == str(sent.life) and row.seq >= sent.seq


def check_latest(before: Rows, after: Rows, request: Request) -> None:
    """Raise `Violation` when a write published a checkpoint that is older, or not of the current turn."""
    was, now = before.get(LATEST), after.get(LATEST)
    if was == now:
        return
    assert isinstance(now, LatestCheckpoint)
    if broken := transition_rules.judge_latest(was, now, view(before).group.turn):
        raise Violation(broken)
    if not isinstance(request, Publish):
        raise Violation(f"published without a publish: {now.epoch}")


def describe(change: Change) -> str:
    """A readable line for traces."""
    parts = []
    for rk, _, row in change.rows:
        if isinstance(row, Group):
            turn = row.turn
            shown = f"turn {turn.epoch} of {turn.holder} {turn.state}" + (f" ({turn.reason})" if turn.reason else "")
            parts.append(shown + (f", handed out at {turn.handed_seq}" if turn.attempt else ""))
        elif isinstance(row, ReplicaRow):
            parts.append(f"{rk[len(REPLICAS[0]) :]} at {row.seq}" + (f" taking {row.taking}" if row.taking else ""))
        else:
            parts.append(f"latest {row.sequence}")
    return ", ".join(parts)
