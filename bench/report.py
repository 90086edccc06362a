"""Figures, and the table that shows them."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table

FAILED = "failed:"
"""The first words of the note of a benchmark that ended with an error."""
_HOLDS = {"<=": operator.le, ">=": operator.ge, "==": operator.eq, ">": operator.gt}


@dataclass(slots=True)
class Figure:
    """One line of the table. Without a `limit` it is there for information; with `value` None it could not be measured."""

    name: str
    value: float | None
    unit: str = ""
    sign: str = ""
    limit: float | None = None
    note: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)
    bench: str = ""
    """The benchmark's name."""

    @property
    def reached(self) -> bool | None:
        """True if the limit is kept; None without a limit."""
        if self.limit is None or self.value is None:
            return None
        return bool(_HOLDS[self.sign](self.value, self.limit))

    @property
    def failed(self) -> bool:
        """True if the benchmark ended with an error."""
        return self.note.startswith(FAILED)

    @property
    def shown(self) -> str:
        return "-" if self.value is None else f"{number(self.value)} {self.unit}".strip()

    @property
    def wanted(self) -> str:
        return f"{self.sign} {number(self.limit)} {self.unit}".strip() if self.limit is not None else ""

    @property
    def verdict(self) -> str:
        return {True: "yes", False: "NO", None: ""}[self.reached]


def number(value: float) -> str:
    """Return the number with three significant digits, and commas between thousands."""
    if value == 0 or abs(value) >= 100:
        return f"{value:,.0f}"
    for digits in (1, 2, 3, 4):
        if abs(value) >= 10.0 ** (2 - digits):
            return f"{value:,.{digits}f}"
    return f"{value:.2g}"


def print_table(figures: Sequence[Figure], machine: Mapping[str, str], console: Console) -> None:
    """Return the table for people."""
    for name, value in machine.items():
        console.print(f"[dim]{name:<9}[/] {value}", highlight=False, soft_wrap=True)
    table = Table(show_lines=False, pad_edge=False)
    table.add_column("figure", overflow="fold", ratio=5)
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("target", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("", overflow="fold", ratio=6, style="dim")
    for figure in figures:
        colour = {True: "green", False: "bold red", None: ""}[figure.reached]
        verdict = f"[{colour}]{figure.verdict}[/]" if colour else ""
        name = figure.name if figure.limit is not None else f"[dim]{figure.name}[/]"
        table.add_row(name, figure.shown, figure.wanted, verdict, figure.note)
    console.print(table)


def as_json(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """Return all figures as JSON."""
    rows = [{**asdict(figure), "reached": figure.reached, "target": figure.wanted, "verdict": _verdict(figure)} for figure in figures]
    return json.dumps({"machine": dict(machine), "figures": rows}, indent=2, default=str)


def _verdict(figure: Figure) -> str | None:
    if figure.failed:
        return "failed"
    if figure.limit is None:
        return None
    return {True: "reached", False: "missed", None: "not measured"}[figure.reached]


def as_markdown(figures: Sequence[Figure], machine: Mapping[str, str]) -> str:
    """Return the table for docs/explain/performance.md."""
    lines = [f"- {name}: {value}" for name, value in machine.items()]
    lines += ["", "| figure | measured | target | reached | |", "| --- | ---: | ---: | --- | --- |"]
    for figure in figures:
        cells = (figure.name, figure.shown, figure.wanted, figure.verdict.lower(), figure.note)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"
