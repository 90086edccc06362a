"""Judges a fleet's turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...checkpoints import transition_rules
from ...checkpoints.rows import (
    ENDED,
    LATEST,
    REPLICAS,
    TURN,
    LatestCheckpoint,
    ReplicaRow,
    TurnRow,
    parse_latest,
    parse_replica,
    parse_turn,
    replica_key,
)
from ...checkpoints.settings import read_turn_settings
from ...leases.rows import parse_fleet
from ...storage.ports import ANY, Row
from ...storage.transition_trace import SeenRow
from .history import PartitionHistory, RowChange
from .lines import TraceLine


class TurnJudge:
    """Judges the transactions of one fleet's turns, in order."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history
        self._holders: dict[int, str] = {}

    def judge(self, line: TraceLine, changes: Sequence[RowChange]) -> Iterator[str]:
        """Yield the rules that a transaction breaks."""
        written = {change.op.rk: change for change in changes}
        drift = _drift(line.seen.get("fleet"))
        turn = written.get(TURN)
        before: TurnRow | None = None
        if turn is not None:
            before = _turn(turn.before)
            yield from self._turn(line, turn, written, drift)
        latest = written.get(LATEST)
        if latest is not None and latest.after is not None and (after := _latest(latest.after)) is not None:
            yield from filter(None, [transition_rules.judge_latest(_latest(latest.before), after, before)])
        for rk, change in written.items():
            if rk.startswith(REPLICAS[0]) and change.after is not None:
                yield from self._replica(change)

    def finish(self) -> Iterator[tuple[TraceLine, str]]:
        """Return nothing: no rule is judged after the last step."""
        return iter(())

    def _turn(self, line: TraceLine, change: RowChange, written: dict[str, RowChange], drift: float) -> Iterator[str]:
        if change.op.required == ANY or change.op.verb == "u":
            yield "the turn is written whatever its ETag: two processes could grant two turns"
        before, after = _turn(change.before), _turn(change.after)
        if after is None:
            return
        if before is not None:
            rk = replica_key(before.holder)
            change_of_holder = written.get(rk)
            seen = line.seen.get(rk)
            holder = _replica(rk, change_of_holder.after if change_of_holder is not None else seen.props if seen is not None else None)
            known = holder is not None
            over = next((_turn(each.after) for name, each in written.items() if name.startswith(ENDED[0]) and each.op.verb == "i"), None)
            yield from filter(None, [transition_rules.judge_step(before, over, after, holder, drift, known=known)])
        yield from self._one_holder(after)

    def _one_holder(self, turn: TurnRow) -> Iterator[str]:
        if turn.epoch and self._holders.setdefault(turn.epoch, turn.holder) != turn.holder:
            yield f"turn {turn.epoch} has two holders: {self._holders[turn.epoch]} and {turn.holder}"

    def _replica(self, change: RowChange) -> Iterator[str]:
        after = _replica(change.op.rk, change.after)
        before = _replica(change.op.rk, change.before)
        if after is None:
            return
        if after.taking and self._holders.get(after.taking, after.node) != after.node:
            yield f"{after.node} takes turn {after.taking}, which {self._holders[after.taking]} holds"
        if before is not None and before.life == after.life and after.seq <= before.seq:
            yield f"the reports of {after.node} go back from {before.seq} to {after.seq}"
        if before is not None and before.life == after.life and before.incarnation != after.incarnation:
            yield f"report {after.seq} of {after.node} is that of another process than report {before.seq}"


def _turn(props: dict[str, Any] | None) -> TurnRow | None:
    try:
        return parse_turn(props) if props else None
    except (KeyError, TypeError, ValueError):
        return None


def _replica(rk: str, props: dict[str, Any] | None) -> ReplicaRow | None:
    try:
        return parse_replica(Row("", rk, {"load": 0.0, **props}, "", 0, 0)) if props else None
    except (KeyError, TypeError, ValueError):
        return None


def _latest(props: dict[str, Any] | None) -> LatestCheckpoint | None:
    try:
        return parse_latest({"location": "", "size": 0, **props}) if props else None
    except (KeyError, TypeError, ValueError):
        return None


def _drift(seen: SeenRow | None) -> float:
    """Return the fleet's drift; 0, the smallest one, if it is not known: a limit that is too long for it is too long for any."""
    try:
        return read_turn_settings(parse_fleet(seen.props)).drift if seen is not None else 0.0
    except (KeyError, TypeError, ValueError):
        return 0.0
