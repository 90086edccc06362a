"""`python -m bench cost`: computes what Azure would bill for each load."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import statistics
import sys
import warnings
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from devhost.loops import chosen_loop, loop_factory

from ..report import number
from ..tools import machine
from . import deployed, page, prices, rules
from .loads import ALONE, LOADS, Bulk, run
from .prices import PriceError, Prices
from .rules import Bill, Record

SIZES: Final = (512, 2048)
LIMIT: Final = 900.0
"""Seconds that a measurement of one load may take."""


@dataclass(slots=True)
class Line:
    """A load on instances of one size."""

    load: str
    title: str
    bill: Bill
    unit: str
    record: Record
    notes: dict[str, object]


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench cost", description="Runs the app under each load on this machine, and computes what Azure would bill."
    )
    parser.add_argument("--only", nargs="+", metavar="LOAD", choices=LOADS, help=f"measure these loads only: {', '.join(LOADS)}")
    sizes = "sizes of the instances in MB (default: both)"
    parser.add_argument("--memory", nargs="+", type=int, choices=SIZES, default=list(SIZES), help=sizes)
    parser.add_argument("--minutes", type=int, default=3, help="minutes for which each load is measured (default: 3)")
    parser.add_argument("--together", type=int, default=2, help="number of loads that are measured side by side (default: 2)")
    parser.add_argument("--quick", action="store_true", help="measure each load for one minute; the figures are less exact")
    parser.add_argument("--json", action="store_true", help="print JSON: USD, GB-s, executions and transactions, with details")
    parser.add_argument("--page", action="store_true", help="also write the figures into bench/cost/results.json and the documentation")
    parser.add_argument("--prices", type=Path, metavar="FILE", help="a JSON object with prices that replace those of bench/cost/prices.py")
    given = parser.parse_args(arguments)
    if min(given.minutes, given.together) < 1:
        parser.error("--minutes and --together must be 1 or more")
    return given


async def run_all(given: argparse.Namespace, costs: Prices, console: Console) -> tuple[list[Line], dict[str, str]]:
    """Measure some loads side by side, in both sizes. Return the lines, and the failures by load."""
    lines: list[Line] = []
    failed: dict[str, str] = {}
    fixed = deployed.load()
    names, seconds = given.only or list(LOADS), 60.0 * (1 if given.quick else given.minutes)
    columns = (TextColumn("{task.description:<52}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        whole = progress.add_task("all loads", total=len(names))

        async def measure(name: str, size: int) -> Line:
            load = LOADS[name]
            part = progress.add_task(load.title, total=1)
            try:
                async with asyncio.timeout(LIMIT):
                    record, notes = await run(
                        load, size, seconds, lambda what, done, total: progress.update(part, description=what, completed=done, total=total)
                    )
            finally:
                progress.remove_task(part)
            if isinstance(load, Bulk):
                return Line(name, load.title, rules.bill(rules.per_million(record, costs), None, size, costs), "million", record, notes)
            return Line(name, load.title, rules.bill(rules.month(record, costs), fixed, size, costs), "month", record, notes)

        places = asyncio.Semaphore(given.together)

        async def measure_sizes(name: str) -> list[Line | BaseException]:
            found: list[Line | BaseException] = []
            async with places:
                # A load that fills an instance is measured alone on the machine.
                for sizes in [[size] for size in given.memory] if name in ALONE else [given.memory]:
                    found += await asyncio.gather(*(measure(name, size) for size in sizes), return_exceptions=True)
            progress.advance(whole)
            return found

        shared = [name for name in names if name not in ALONE]
        results = dict(zip(shared, await asyncio.gather(*map(measure_sizes, shared)), strict=True))
        results |= {name: await measure_sizes(name) for name in names if name in ALONE}
    for name in names:
        for size, each in zip(given.memory, results[name], strict=True):
            if isinstance(each, Line):
                lines.append(each)
            elif isinstance(each, Exception):
                logging.getLogger("bench").error("%s, %d MB could not be measured", name, size, exc_info=each)
                failed[f"{name}, {size} MB"] = f"{type(each).__name__}: {str(each)[:200]}"
            else:
                raise each
    return lines, failed


def durations(record: Record) -> dict[str, list[float]]:
    """Return the mean and the longest seconds of an invocation, by function."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for each in record.invocations:
        if each.end >= record.window[0]:
            found[each.function].append(each.end - each.start)
    return {name: [round(statistics.fmean(each), 4), round(max(each), 4)] for name, each in sorted(found.items())}


def as_dict(line: Line) -> dict[str, Any]:
    """Return a line as plain data."""
    bill = line.bill
    usage = bill.usage
    return {
        "load": line.load,
        "title": line.title,
        "memory_mb": bill.memory_mb,
        "unit": line.unit,
        "usd": round(bill.usd, 4),
        "usd_before_free": round(bill.before_free, 4),
        "gb_seconds": round(bill.gb_seconds),
        "executions": round(sum(usage.executions.values())),
        "transactions": round(usage.transactions),
        "parts": {name: round(usd, 4) for name, usd in bill.parts.items()},
        "billed_seconds": {group: round(seconds) for group, seconds in usage.billed_seconds.items()},
        "executions_by_function": {name: round(count) for name, count in usage.executions.items()},
        "seconds_by_function": durations(line.record),
        "operations": {"table": round(usage.table), "queue": round(usage.queue), "polls": round(usage.polls), "blob": round(usage.blob)},
        "log_mb": {kind: round(size / 1e6, 1) for kind, size in usage.log_bytes.items()},
        "measured": {
            "seconds": round(line.record.seconds, 1),
            "invocations": sum(each.end >= line.record.window[0] for each in line.record.invocations),
            "table": line.record.operations.table,
            "queue": line.record.operations.queue,
            "polls": dict(line.record.operations.polls),
            "events": line.record.events,
            "requests": dict(sorted(line.record.operations.targets.items(), key=lambda each: -each[1])),
        },
        **line.notes,
    }


def as_document(lines: Sequence[Line], failed: dict[str, str], costs: Prices, about: dict[str, str]) -> dict[str, Any]:
    """Return everything as plain data."""
    return {"machine": about, "prices": prices.as_dict(costs), "loads": [as_dict(line) for line in lines], "failed": failed}


def print_table(lines: Sequence[Line], failed: dict[str, str], console: Console) -> None:
    """Print the table for people."""
    table = Table(pad_edge=False)
    table.add_column("load")
    for name in ("MB", "USD", "before free", "GB-s", "executions", "transactions"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("of which", overflow="fold", style="dim")
    for line in lines:
        bill = line.bill
        parts = ", ".join(f"{name} {usd:.2f}" for name, usd in bill.parts.items() if usd >= 0.005)
        row = (f"{bill.usd:,.2f}", f"{bill.before_free:,.2f}", f"{bill.gb_seconds:,.0f}", number(sum(bill.usage.executions.values())))
        table.add_row(f"{line.title}, a {line.unit}", str(bill.memory_mb), *row, number(bill.usage.transactions), parts)
    console.print(table)
    for name, why in failed.items():
        console.print(f"[red]{name}: {why}[/]")


def main(arguments: list[str]) -> int:
    """The command. Returns 1 if a load could not be measured, 2 for prices that cannot be used."""
    given = parse(arguments)
    warnings.simplefilter("ignore", ResourceWarning)
    logging.basicConfig(level=logging.WARNING)
    for noisy in ("azure", "shared"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    try:
        costs = prices.load(given.prices)
    except PriceError as error:
        print(f"bench cost: {error}", file=sys.stderr)
        return 2
    about = machine.describe()
    # With --json, only the document goes to stdout.
    work = run_all(given, costs, Console(stderr=True))
    lines, failed = asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))
    document = as_document(lines, failed, costs, about)
    if given.page and lines:
        results = page.merged(page.read(), document)
        page.RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        page.write(results)
    if given.json:
        print(json.dumps(document, indent=2))
    else:
        print_table(lines, failed, Console(width=None if sys.stdout.isatty() else 200))
    return 1 if failed else 0
