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
from typing import Final

from ...storage.transition_trace import MARK
from .lines import TraceLine, parse_line
from .verify import TraceVerdict, verify

log = logging.getLogger(__name__)

KEPT: Final = 200
"""Lines of a partition that are kept. Older ones become a gap."""
EVERY: Final = 50
"""New lines of a partition after which it is verified."""
MOST_PARTITIONS: Final = 500
"""Partitions whose lines are kept. Beyond it, the one whose latest line is the oldest is verified and forgotten."""
MOST_OPS: Final = 200_000
"""Operations in all lines that are kept: about 100 MB. A line has up to 100, so the bounds above alone would allow 10 million."""
AFTER: Final = 30.0
"""Seconds after which a partition with new lines is verified at the next line of any partition."""
MOST_REPORTED: Final = 1000
"""Illegal steps that are remembered, so that each raises one alarm."""


class TraceWatch:
    """Takes the lines of a trace. Each call verifies at most one partition, of at most `KEPT` lines, and never raises.

    monotonic: seconds. counters: `trace_verified` counts lines, `trace_illegal` illegal steps.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        # From the beginning: an alert on an increase does not see a series that begins with 1.
        self.counters: Counter[str] = Counter(trace_verified=0, trace_illegal=0)
        self._monotonic = monotonic
        self._lines: OrderedDict[tuple[str, str], deque[TraceLine]] = OrderedDict()
        self._new: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()
        """By partition with lines that are not verified yet: the time of the first of them, and their number; the oldest first."""
        self._reported: OrderedDict[str, None] = OrderedDict()
        self._ops = 0

    def take(self, text: str) -> None:
        """Take a line as it is logged."""
        try:
            line = parse_line(text.removeprefix(MARK))
            key = line.kind, line.partition
            kept = self._lines.setdefault(key, deque())
            kept.append(line)
            self._ops += len(line.ops)
            if len(kept) > KEPT:
                self._ops -= len(kept.popleft().ops)
            self._lines.move_to_end(key)
            now = self._monotonic()
            since, number = self._new.get(key, (now, 0))
            self._new[key] = since, number + 1
            if number + 1 >= EVERY:
                self._verify(key)
            elif len(self._lines) > MOST_PARTITIONS or (self._ops > MOST_OPS and len(self._lines) > 1):
                oldest = next(iter(self._lines))
                self._verify(oldest)
                self._ops -= sum(len(line.ops) for line in self._lines.pop(oldest))
            elif self._new[first := next(iter(self._new))][0] + AFTER <= now:
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
        self.counters["trace_verified"] += found[1]
        self._report(verify(self._lines[key]))

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
