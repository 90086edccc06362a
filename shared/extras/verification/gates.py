"""Judges a shard's gate and event rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ...scheduler import transition_rules
from ...scheduler.keys import FIRST_EVENT
from ...scheduler.shard.gate import Gate, parse_gate
from ...storage.ports import ANY
from ...storage.transition_trace import GATE
from .history import PartitionHistory, RowChange
from .lines import TraceLine


class GateJudge:
    """Judges the transactions of one shard, in order."""

    def __init__(self, history: PartitionHistory) -> None:
        self._history = history
        self._epochs: dict[tuple[str, int], str] = {}
        self._begun = self._works = False
        self._done: tuple[TraceLine, Gate] | None = None

    def judge(self, line: TraceLine, changes: Sequence[RowChange]) -> Iterator[str]:
        """Yield the rules that a transaction breaks."""
        gate: Gate | None = None
        for change in changes:
            if change.op.rk == GATE:
                yield from self._gate(line, change)
                gate = _parsed(change.after)
        for change in changes:
            if change.op.verb == "d" and change.known and change.op.required != ANY:
                yield from filter(None, [transition_rules.judge_removal(change.op.rk, change.before)])
            elif change.op.rk.startswith(FIRST_EVENT) and change.after is not None:
                yield from self._event(change, gate)
        if gate is not None:
            self._done = (line, gate) if gate.state == "done" and self._done is None else self._done
            yield from self._rests(gate)

    def _gate(self, line: TraceLine, change: RowChange) -> Iterator[str]:
        after, before = _parsed(change.after), _parsed(change.before)
        if change.op.verb == "u" or (change.op.required == ANY and change.op.verb != "d"):
            yield "the gate is written whatever its ETag: a process that has lost the shard could do so too"
        if change.op.verb == "i":
            self._begun = True
        if change.op.verb == "d" or after is None:
            return
        seen = change.seen
        if seen is not None and (known := _parsed(seen.props)) is not None:
            yield from filter(None, [transition_rules.judge_owner(self._epochs, line.partition, known)])
            self._epochs.setdefault((line.partition, known.epoch), known.holder)
        if before is not None or change.op.verb == "i":
            yield from filter(None, [transition_rules.judge_gate(before, after, seen.age if seen is not None else None)])
        yield from filter(None, [transition_rules.judge_owner(self._epochs, line.partition, after)])
        if after.epoch and after.holder:
            self._epochs.setdefault((line.partition, after.epoch), after.holder)

    def _event(self, change: RowChange, gate: Gate | None) -> Iterator[str]:
        assert change.after is not None
        before = change.before if change.known else None
        if "state" not in change.after:
            return
        yield from filter(None, [transition_rules.judge_event(change.op.rk, before, change.after, gate)])
        works = bool(before and before.get("work"))
        self._works = self._works or works or bool(change.after.get("work"))
        broken = transition_rules.judge_settlement(change.op.rk, before, change.after, gated=gate is not None, works=works)
        yield from filter(None, [broken])

    def _rests(self, gate: Gate) -> Iterator[str]:
        """Judge the counts of a rest, where every change since the shard's creation is known. Only its owner delivers or gives up."""
        if self._begun and self._history.whole and not self._works and gate.state == "resting":
            yield from filter(None, [transition_rules.judge_rest(gate, self._states())])

    def finish(self) -> Iterator[tuple[TraceLine, str]]:
        """Judge the counts of a done gate, after all changes of rows: final states stay, and no ETag orders them against the gate."""
        if self._done is not None and self._begun and self._history.whole and not self._works:
            line, gate = self._done
            if broken := transition_rules.judge_done(gate, self._states(), complete=False):
                yield line, broken

    def _states(self) -> list[str]:
        """Return the last state of each event row, also of removed ones."""
        rows = [props for rk, props in self._history.last.items() if rk.startswith(FIRST_EVENT)]
        return [str(props["state"]) for props in rows if "state" in props]


def _parsed(props: dict[str, Any] | None) -> Gate | None:
    """Return a gate; None if the trace does not have all of it."""
    try:
        return parse_gate(props) if props else None
    except (KeyError, TypeError, ValueError):
        return None
