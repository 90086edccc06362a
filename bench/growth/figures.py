"""The sizes of `python -m bench growth`, and the rows of its table."""

from __future__ import annotations

import asyncio
import json
import operator
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..report import Figure, number
from ..tools.stage import Run, child
from .cell import Cell, Spent

KINDS: Final = {
    "events": "open events",
    "tenants": "tenants",
    "schedules": "schedules of one tenant",
    "channels": "channels of one tenant",
}
EVENTS: Final = (10_000, 100_000)
OTHERS: Final = (1, 100, 10_000)
QUICK_EVENTS: Final = (1_000, 10_000)
QUICK_OTHERS: Final = (1, 100)
FULL_PAGE: Final = 100
"""Entries of a page of a list: shorter lists are not compared with longer ones."""
MOST: Final = 1.2
"""Target: the factor by which CPU and transactions of a request or an event may grow from the smallest size to the largest."""
MOST_LATE: Final = 100.0
LONGEST: Final = 3_000.0
"""Seconds that one step of a size may take."""


@dataclass(frozen=True, slots=True)
class Measure:
    """A row of the table for each kind. least: the smallest size that is compared with the largest. limit: of the factor between them."""

    name: str
    of: Callable[[Cell], float]
    unit: str = ""
    limit: float | None = None
    least: int = 1


def _cpu(name: str) -> Callable[[Cell], float]:
    return operator.attrgetter(f"{name}.cpu")


def _whole(name: str) -> Callable[[Cell], float]:
    """Return the CPU with that of storage, which searches."""

    def whole(cell: Cell) -> float:
        spent: Spent = getattr(cell, name)
        return spent.cpu + spent.storage

    return whole


def _transactions(name: str) -> Callable[[Cell], float]:
    return operator.attrgetter(f"{name}.transactions")


MEASURES: Final = (
    Measure("CPU of a POST", _cpu("post"), "us", MOST),
    Measure("function calls of a POST", operator.attrgetter("post_calls"), "", MOST),
    Measure("transactions of a POST", _transactions("post"), "", MOST),
    Measure("CPU of a POST, spread", _cpu("spread"), "us"),
    Measure("transactions of a POST, spread", _transactions("spread")),
    Measure("CPU of an event of a herd", _cpu("herd"), "us", MOST),
    Measure("function calls of an event of a herd", operator.attrgetter("herd_calls"), "", MOST),
    Measure("transactions of an event of a herd", _transactions("herd"), "", MOST),
    Measure("CPU of a list's first page", _whole("listed"), "us", MOST, FULL_PAGE),
    Measure("transactions of a list's first page", _transactions("listed"), "", MOST, FULL_PAGE),
    Measure("CPU of one tenant's GET /events", _whole("events"), "us", MOST),
    Measure("CPU of one tenant's GET /stats", _whole("stats"), "us"),
    Measure("CPU of a sweep", _cpu("sweep"), "us"),
    Measure("transactions of a sweep", _transactions("sweep")),
    Measure("CPU of the hourly job", _cpu("hourly"), "us"),
    Measure("transactions of the hourly job", _transactions("hourly")),
    Measure("memory of the process", lambda cell: cell.memory / 2**20, "MiB"),
)


def sizes(run: Run) -> list[tuple[str, int]]:
    """Return all kinds and sizes. `run.scale` is a further number of open events."""
    events = {*run.pick(EVENTS, QUICK_EVENTS), *([run.scale] if run.scale else [])}
    others = run.pick(OTHERS, QUICK_OTHERS)
    return [("events", size) for size in sorted(events)] + [(kind, size) for kind in KINDS if kind != "events" for size in others]


async def measure(run: Run) -> list[Figure]:
    """Measure each size in a new folder and new processes."""
    found: list[Cell] = []
    work = sizes(run)
    for at, (kind, size) in enumerate(work):
        with tempfile.TemporaryDirectory(prefix="tocsin-growth-") as folder:
            for step, what in enumerate(("fill", "measure")):
                run.report_progress(f"{size:,} {KINDS[kind]}: {what}", 2 * at + step, 2 * len(work))
                printed = await _apart(what, kind, size, folder, *(["quick"] if run.quick else []))
        found.append(as_cell(json.loads(printed)))
    return figures(found)


async def _apart(what: str, kind: str, size: int, folder: str, *more: str) -> str:
    async with child("-m", "bench.growth.cell", what, kind, str(size), folder, *more) as process:
        printed, _ = await asyncio.wait_for(process.communicate(), LONGEST)
    if process.returncode:
        raise RuntimeError(f"{size:,} {KINDS[kind]}: {what} ended with {process.returncode}")
    return printed.decode()


def as_cell(found: dict[str, Any]) -> Cell:
    """Return a cell from its JSON."""
    values: dict[str, Any] = {name: Spent(**value) if isinstance(value, dict) else value for name, value in found.items()}
    return Cell(**values)


def figures(cells: Sequence[Cell]) -> list[Figure]:
    """Return the rows: for each kind and measure, the factor between the smallest and the largest size."""
    found: list[Figure] = []
    for kind, title in KINDS.items():
        own = sorted((each for each in cells if each.kind == kind), key=lambda each: each.size)
        if not own:
            continue
        found += [_factor(measure, own, title) for measure in MEASURES]
        late = ", ".join(f"{each.size:,}: {number(each.p50)} and {number(each.p99)}" for each in own)
        found.append(Figure(f"lateness p99, {own[-1].size:,} {title}", own[-1].p99, "ms", "<=", MOST_LATE, f"p50 and p99 with {late}"))
    return found


def _factor(measure: Measure, cells: Sequence[Cell], title: str) -> Figure:
    values = [measure.of(each) for each in cells]
    base = next((value for each, value in zip(cells, values, strict=True) if each.size >= measure.least), values[-1])
    shown = ", ".join(f"{each.size:,}: {number(value)}" for each, value in zip(cells, values, strict=True))
    note = f"{measure.unit + ' ' if measure.unit else ''}with {shown}"
    details = {"kind": cells[0].kind, "measure": measure.name, "sizes": [each.size for each in cells], "values": values, "base": base}
    factor = values[-1] / base if base else None
    sign = "<=" if measure.limit is not None else ""
    return Figure(f"{measure.name}, {title}: growth", factor, "times", sign, measure.limit, note, details)
