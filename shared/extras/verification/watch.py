"""Verifies a process's own trace while it runs, and raises an alarm about an illegal step.

A process sees its own transactions, and the rows that it had read for them. What other processes wrote between is a gap to it: it finds
unconditional writes, changes that no rule makes of the row as it was read, epochs with two owners that it has seen itself, and wrong counts
of shards that it made and finished alone. That two processes did what only one may do is found by `tocsin verify-trace`, in the lines of
both.
"""

from __future__ import annotations

import logging
from collections import Counter, OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...storage.transition_trace import MARK
from .lines import TraceLine, parse_line
from .verify import TraceVerdict, verify

log = logging.getLogger(__name__)

KEPT: Final = 200
KEPT_OPS: Final = 3_000
"""Lines of a partition, and operations in them, that are kept. Older ones become a gap. A line has up to 100 operations, and to verify
3,000 takes about 20 ms, in which the process does nothing else."""
EVERY: Final = 50
EVERY_OPS: Final = 1_000
"""New lines of a partition, or operations in them, after which it is verified."""
MOST_PARTITIONS: Final = 500
"""Partitions whose lines are kept. Beyond it, the one whose latest line is the oldest is verified and forgotten."""
MOST_OPS: Final = 200_000
"""Operations in all lines that are kept: about 100 MB. A line has up to 100, so the bounds above alone would allow 10 million."""
AFTER: Final = 30.0
"""Seconds after which a partition with new lines is verified at the next line of any partition."""
MOST_REPORTED: Final = 1000
"""Illegal steps that are remembered, so that each raises one alarm."""


class _NewLines(NamedTuple):
    """The lines of a partition that are not verified yet. since: monotonic seconds of the first. ops: operations in them."""

    since: float
    lines: int = 0
    ops: int = 0


@dataclass(slots=True)
class _KeptLines:
    """The latest lines of a partition, and the number of operations in them."""

    lines: deque[TraceLine] = field(default_factory=deque)
    ops: int = 0

    def add(self, line: TraceLine) -> int:
        """Add a line, and forget the oldest ones. Return by how many operations there are more."""
        before = self.ops
        self.lines.append(line)
        self.ops += len(line.ops)
        while len(self.lines) > KEPT or (self.ops > KEPT_OPS and len(self.lines) > 1):
            self.ops -= len(self.lines.popleft().ops)
        return self.ops - before


class TraceWatch:
    """Takes the lines of a trace. Each call verifies at most one partition, of at most `KEPT` lines, and never raises.

    monotonic: seconds. counters: `trace_verified` counts lines, `trace_illegal` illegal steps.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        # From the beginning: an alert on an increase does not see a series that begins with 1.
        self.counters: Counter[str] = Counter(trace_verified=0, trace_illegal=0)
        self._monotonic = monotonic
        self._lines: OrderedDict[tuple[str, str], _KeptLines] = OrderedDict()
        self._new: OrderedDict[tuple[str, str], _NewLines] = OrderedDict()
        """By partition with lines that are not verified yet; the oldest first."""
        self._reported: OrderedDict[str, None] = OrderedDict()
        self._ops = 0

    def take(self, text: str) -> None:
        """Take a line as it is logged."""
        try:
            line = parse_line(text.removeprefix(MARK))
            key = line.kind, line.partition
            self._ops += self._lines.setdefault(key, _KeptLines()).add(line)
            self._lines.move_to_end(key)
            now = self._monotonic()
            before = self._new.get(key, _NewLines(now))
            new = self._new[key] = before._replace(lines=before.lines + 1, ops=before.ops + len(line.ops))
            if new.lines >= EVERY or new.ops >= EVERY_OPS:
                self._verify(key)
            elif len(self._lines) > MOST_PARTITIONS or (self._ops > MOST_OPS and len(self._lines) > 1):
                oldest = next(iter(self._lines))
                self._verify(oldest)
                self._ops -= self._lines.pop(oldest).ops
            elif self._new[first := next(iter(self._new))].since + AFTER <= now:
                self._verify(first)
        except Exception:
            log.exception("a step of the trace could not be verified", extra={"action": "protocol_watch_failed"})

    def flush(self) -> None:
        """Verify what has not been verified yet, as at the end of a process."""
        for key in list(self._new):
            self._verify(key)

    def _verify(self, key: tuple[str, str]) -> None:
        found = self._new.pop(key, None)
        if found is None:
            return
        self.counters["trace_verified"] += found.lines
        self._report(verify(self._lines[key].lines))

    def _report(self, verdict: TraceVerdict) -> None:
        for step in verdict.illegal:
            mark = f"{step.kind} {step.partition} {step.step}"
            if mark in self._reported:
                continue
            self._reported[mark] = None
            if len(self._reported) > MOST_REPORTED:
                self._reported.popitem(last=False)
            self.counters["trace_illegal"] += 1
            log.error(
                "Illegal step of %s %s: %s. The step: %s. Before it: %s. Run tocsin verify-trace on the logs of all processes.",
                step.kind,
                step.partition,
                "; ".join(step.rules),
                step.step,
                "; ".join(step.before) or "nothing that this process saw",
                extra={"action": "protocol_violation", "kind": step.kind, "partition": step.partition},
            )
