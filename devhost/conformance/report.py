"""The output of the command: a line for each check, the estimate and the figures; and the same as JSON."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, NamedTuple, TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shared.storage.azure.account import Service

USD_PER_OPERATION: Final[Mapping[Service, float]] = {"table": 0.00036 / 10_000, "queue": 0.004 / 10_000}
"""List prices of locally redundant storage, as an example; they differ by region."""

type Outcome = Literal["ok", "FAILED", "note", "left out"]


class Noted(Exception):
    """Raised by a check that found a difference that is no failure; the message describes it."""


class Line(NamedTuple):
    """The outcome of one check."""

    name: str
    outcome: Outcome
    detail: str


def cost(operations: Mapping[Service, float]) -> float:
    """Return the price of operations by service, in USD."""
    return sum(count * USD_PER_OPERATION[service] for service, count in operations.items())


def usd(amount: float) -> str:
    """Return a price as text."""
    return f"{amount:.4f} USD" if amount < 0.1 else f"{amount:.2f} USD"


def priced(operations: Mapping[Service, float]) -> str:
    """Return operations by service and their price as text."""
    return f"{round(operations['table']):,} table and {round(operations['queue']):,} queue operations: {usd(cost(operations))}"


def percentile(sorted_values: Sequence[float], share: float) -> float:
    """Return the value below which `share` of the values lie; 0 if there is none."""
    return sorted_values[min(len(sorted_values) - 1, int(share * len(sorted_values)))] if sorted_values else 0.0


@dataclass(frozen=True)
class Percentiles:
    """A distribution, in milliseconds."""

    count: int
    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """Return the percentiles of values in any order."""
        found = sorted(values)
        return cls(len(found), *(round(percentile(found, share), 2) for share in (0.5, 0.99, 1.0)))


@dataclass
class Report:
    """Collects the results, and prints each as it arrives."""

    output: TextIO
    lines: list[Line] = field(default_factory=list)
    latencies: dict[str, Percentiles] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._progress: Progress | None = None
        self._task: TaskID | None = None

    @property
    def failed(self) -> int:
        """The number of failed checks."""
        return sum(line.outcome == "FAILED" for line in self.lines)

    def text(self, text: str = "") -> None:
        """Print a line, above the progress bar."""
        if self._progress is not None and self._progress.live.is_started:
            self._progress.console.print(text, markup=False, highlight=False, soft_wrap=True)
        else:
            print(text, file=self.output, flush=True)

    def add(self, name: str, outcome: Outcome, detail: str) -> None:
        """Print and keep the outcome of a check."""
        self.lines.append(Line(name, outcome, detail))
        self.text(f"{outcome:<9}{name}: {detail}")

    async def run(self, name: str, check: Awaitable[str]) -> None:
        """Run a check, and report its line."""
        try:
            self.add(name, "ok", await check)
        except Noted as difference:
            self.add(name, "note", str(difference))
        except Exception as error:  # a check that cannot go on has failed
            what = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            self.add(name, "FAILED", " ".join(what.split())[:300])

    def table(self, title: str, rows: Mapping[str, Percentiles]) -> None:
        """Print and keep distributions."""
        self.latencies.update(rows)
        self.text()
        self.text(f"{title + ', ms':<34}{'count':>9}{'p50':>10}{'p99':>10}{'max':>10}")
        for name, row in rows.items():
            self.text(f"  {name:<32}{row.count:>9,}{row.p50:>10.1f}{row.p99:>10.1f}{row.max:>10.1f}")
        self.text()

    def progress(self, what: str, done: float, total: float) -> None:
        """Show the progress of a step: a bar on a terminal, nothing elsewhere."""
        if not self.output.isatty():
            return
        if self._progress is None:
            columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"), TimeElapsedColumn())
            self._progress = Progress(*columns, console=Console(file=self.output), transient=True)
            self._progress.start()
        if self._task is None:
            self._task = self._progress.add_task(what, total=total)
        self._progress.update(self._task, description=what, completed=done, total=total)

    def end_progress(self) -> None:
        """Take the progress bar away."""
        if self._progress is not None:
            self._progress.stop()
        self._progress = self._task = None

    def document(self) -> dict[str, Any]:
        """Return everything as data."""
        return {
            **self.facts,
            "checks": [line._asdict() for line in self.lines],
            "milliseconds": {name: asdict(row) for name, row in self.latencies.items()},
            "failed": self.failed,
        }


def standard_report(*, json: bool) -> Report:
    """Return a report on standard output, or on standard error if that is for JSON."""
    return Report(sys.stderr if json else sys.stdout)
