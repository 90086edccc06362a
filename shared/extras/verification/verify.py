"""Verifies a trace: a judge checks the steps of each partition up to the first illegal one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from .gates import GateJudge
from .history import PartitionHistory, by_partition, ordered
from .leases import LeaseJudge
from .lines import TraceLine
from .spool import PARTS, LineNumbers, TraceSpool
from .turns import TurnJudge

JUDGES: Final[dict[str, Callable[[PartitionHistory], GateJudge | LeaseJudge | TurnJudge]]] = {
    "gate": GateJudge,
    "lease": LeaseJudge,
    "turn": TurnJudge,
}
NEIGHBOURS: Final = 2
"""Steps that are shown before and after an illegal one."""


@dataclass(frozen=True, slots=True)
class IllegalStep:
    """The first illegal step of a partition. rules: sentences about the broken rules. at: wall time in milliseconds. before, after: its
    neighbours in the order that ETags prove. gaps: number of gaps before it, in this partition."""

    kind: str
    partition: str
    rules: tuple[str, ...]
    step: str
    at: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    gaps: int


@dataclass(slots=True)
class TraceVerdict:
    """The result. steps, partitions: numbers by kind. gaps: places where the trace lacks the step before. missing: lines that a process has
    numbered and that were not found. inferred: transactions whose answer was lost and that were applied, as later readings show."""

    steps: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JUDGES, 0))
    partitions: dict[str, int] = field(default_factory=lambda: dict.fromkeys(JUDGES, 0))
    processes: int = 0
    gaps: int = 0
    inferred: int = 0
    missing: int = 0
    illegal: list[IllegalStep] = field(default_factory=list)

    def document(self) -> dict[str, Any]:
        """Return the result for programs."""
        return {**asdict(self), "legal": not self.illegal}


def verify(lines: Collection[TraceLine]) -> TraceVerdict:
    """Verify lines that are in memory."""
    numbers = LineNumbers()
    for line in lines:
        numbers.add(line.by, line.number)
    return _verify((lines,), numbers)


def verify_spool(spool: TraceSpool, progress: Callable[[int, int], object] = lambda done, total: None) -> TraceVerdict:
    """Verify lines in temporary files. progress: is called with the files done, and all of them."""

    def parts() -> Iterator[Collection[TraceLine]]:
        for done, part in enumerate(spool.parts()):
            progress(done, PARTS)
            yield part

    return _verify(parts(), spool.numbers)


def _verify(parts: Iterable[Collection[TraceLine]], numbers: LineNumbers) -> TraceVerdict:
    verdict = TraceVerdict(processes=numbers.processes, missing=numbers.missing)
    for part in parts:
        for (kind, _), some in sorted(by_partition(part).items()):
            _verify_partition(kind, some, verdict)
    verdict.illegal.sort(key=lambda step: (step.at, step.partition))
    return verdict


def _verify_partition(kind: str, some: Sequence[TraceLine], verdict: TraceVerdict) -> None:
    verdict.partitions[kind] += 1
    history = PartitionHistory(some)
    judge = JUDGES[kind](history)
    steps = ordered(some)
    verdict.steps[kind] += len(steps)
    for at, line in enumerate(steps):
        gaps = history.gaps
        changes = history.replay(line)
        if broken := list(_broken(history, judge, line, changes)):
            verdict.illegal.append(_illegal(steps, at, broken, gaps))
            break
    else:
        # Counts are judged when all changes of rows are known.
        for line, sentence in judge.finish():
            verdict.illegal.append(_illegal(steps, steps.index(line), [sentence], history.gaps))
    verdict.gaps += history.gaps
    verdict.inferred += history.inferred


def _illegal(steps: Sequence[TraceLine], at: int, rules: Sequence[str], gaps: int) -> IllegalStep:
    before = tuple(each.text() for each in steps[max(0, at - NEIGHBOURS) : at])
    after = tuple(each.text() for each in steps[at + 1 : at + 1 + NEIGHBOURS])
    line = steps[at]
    return IllegalStep(line.kind, line.partition, tuple(rules), line.text(), line.at, before, after, gaps)


def _broken(history: PartitionHistory, judge: GateJudge | LeaseJudge | TurnJudge, line: TraceLine, changes: Any) -> Iterator[str]:
    if history.broken:
        yield history.broken
    yield from judge.judge(line, changes)
