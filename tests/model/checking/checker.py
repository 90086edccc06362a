"""A small explicit-state model checker: breadth first, so that the first violation found has the shortest trace.

It knows nothing of the protocol. A model gives an initial state, the labelled successors of a state, a canonical key (symmetry), and checks
of a state; `explore` walks everything reachable.
"""

from __future__ import annotations

import gc
import time
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol


class Violation(Exception):
    """A property does not hold; raised by a model while it makes a step or checks a state. `steps`: what led there from that state."""

    def __init__(self, text: str, steps: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.steps = list(steps)


class Model[S](Protocol):
    """A model that the checker walks."""

    def initial(self) -> S: ...
    def successors(self, state: S) -> Iterable[tuple[str, Callable[[], S]]]:
        """Labelled steps; the callable makes the step, and may raise Violation."""

    def key(self, state: S) -> Hashable:
        """Equal for states that need not be distinguished."""

    def check(self, state: S) -> None:
        """Raises Violation when a property fails in this state."""


FROM_HERE = "(from here without faults"
"""Start of the label that separates the way to a state from the steps that were tried from it."""


@dataclass(slots=True)
class Report:
    """The result of a run."""

    states: int = 0
    depth: int = 0
    seconds: float = 0.0
    violation: str | None = None
    trace: list[str] = field(default_factory=list)
    """Labels from the initial state to the violation, the violating step last."""

    @property
    def steps(self) -> int:
        """Steps to the violation, or to the state from which there is no way to an end; what was tried from there does not count."""
        return next((number for number, label in enumerate(self.trace) if label.startswith(FROM_HERE)), len(self.trace))

    def __str__(self) -> str:
        head = f"{self.states:,} states, depth {self.depth}, {self.seconds:.1f} s"
        if self.violation is None:
            return f"{head}: holds"
        steps = "\n".join(f"  {number:3d}. {label}" for number, label in enumerate(self.trace, 1))
        return f"{head}: VIOLATED after {self.steps} steps: {self.violation}\n{steps}"


def explore[S](model: Model[S], *, limit: int = 5_000_000, progress: Callable[[Report], None] | None = None) -> Report:
    """Visit every reachable state once, breadth first; stop at the first violation.

    More than `limit` states raise OverflowError: a run that did not finish proves nothing.
    """
    report, start = Report(), time.perf_counter()
    first = model.initial()
    # Parents by number, for the trace.
    parents: list[tuple[int, str]] = [(-1, "")]
    seen = {model.key(first)}
    queue: deque[tuple[int, int, S]] = deque([(0, 0, first)])

    def trace(number: int) -> Iterator[str]:
        labels = []
        while number > 0:
            number, label = parents[number]
            labels.append(label)
        return reversed(labels)

    def finish(**changes: Any) -> Report:
        for name, value in changes.items():
            setattr(report, name, value)
        report.states, report.seconds = len(seen), time.perf_counter() - start
        return report

    with uncollected():
        while queue:
            number, depth, state = queue.popleft()
            report.depth = depth
            try:
                model.check(state)
            except Violation as found:
                return finish(violation=str(found), trace=[*trace(number), *found.steps])
            for label, make in model.successors(state):
                try:
                    after = make()
                except Violation as found:
                    return finish(violation=str(found), trace=[*trace(number), label])
                known = len(seen)
                # One look instead of two: the image of a state is large.
                seen.add(model.key(after))
                if len(seen) == known:
                    continue
                if known == limit:
                    raise OverflowError(f"more than {limit:,} states")
                parents.append((number, label))
                queue.append((len(parents) - 1, depth + 1, after))
                if progress is not None and len(seen) % 20_000 == 0:
                    progress(finish())
    return finish()


@contextmanager
def uncollected() -> Iterator[None]:
    """Without the search for cycles of garbage: states make none, and looking through millions of them takes a fifth of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
