"""`python -m bench`: the table of figures; `python -m bench cost`: the costs on Azure."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import warnings
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from devhost.loops import chosen_loop, loop_factory

from . import report
from .events import batch, conditions, event_rows, firing, importing, quiet, singles, stream, transactions, twin
from .leases import azurite, virtual_time
from .report import Figure
from .tools import machine
from .tools.stage import Run

type Measure = Callable[[Run], Awaitable[list[Figure]]]

LIMIT = 420.0
"""Seconds a group of figures may take."""

FIGURES: dict[str, Measure] = {
    "transactions": transactions.measure,
    "batch": batch.measure,
    "import": importing.measure,
    "singles": singles.posts,
    "cancels": singles.cancels,
    "lateness": firing.lateness,
    "herd": firing.herd,
    "conditions": conditions.measure,
    "throttling": conditions.throttling,
    "stream": stream.measure,
    "quiet": quiet.measure,
    "cpu": twin.cpu,
    "memory": twin.memory,
    "backlog": twin.backlog,
    "rows": event_rows.measure,
    "leases": virtual_time.measure,
    "leases-fast": virtual_time.of("fast"),
    "leases-economy": virtual_time.of("economy"),
    "leases-seed": virtual_time.of("seed"),
    "leases-azurite": azurite.measure,
}


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the figures of performance.md, on this machine alone.",
        epilog="python -m bench cost computes what Azure would bill; see its own --help.",
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="some figures only, as with --only")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=FIGURES, help=f"some of: {', '.join(FIGURES)}")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and events: a few minutes, rougher figures")
    parser.add_argument("--json", action="store_true", help="print JSON, details included")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as Markdown")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - FIGURES.keys():
        parser.error(f"no such figures: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    given.only = [*given.names, *(given.only or [])]
    return given


async def run_all(names: list[str], quick: bool, console: Console) -> list[Figure]:
    """Measure one after the other. A failure is a line of the table and does not stop the others."""
    figures: list[Figure] = []
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        whole = progress.add_task("all", total=len(names))
        for name in names:
            part = progress.add_task(name, total=1)

            def report_progress(what: str, done: float, total: float, part: int = part) -> None:
                progress.update(part, description=what, completed=done, total=total)  # type: ignore[arg-type]

            try:
                figures += await asyncio.wait_for(FIGURES[name](Run(quick, report_progress)), LIMIT)
            except Exception as error:
                logging.getLogger("bench").exception("%s could not be measured", name)
                figures.append(Figure(name, None, note=f"failed: {type(error).__name__}: {str(error)[:200]}"))
            progress.remove_task(part)
            progress.advance(whole)
    return figures


def main() -> int:
    if sys.argv[1:2] == ["cost"]:
        from .cost import command

        return command.main(sys.argv[2:])
    given = parse(sys.argv[1:])
    warnings.simplefilter("ignore", ResourceWarning)
    logging.basicConfig(level=logging.WARNING)
    for noisy in ("azure", "shared"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    about = machine.describe()
    # With --json stdout is the document's alone.
    work = run_all(given.only or list(FIGURES), given.quick, Console(stderr=True))
    figures = asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))
    if given.markdown is not None:
        given.markdown.write_text(report.as_markdown(figures, about))
    if given.json:
        print(report.as_json(figures, about))
    else:
        report.print_table(figures, about, Console(width=None if sys.stdout.isatty() else 200))
    # People judge a missed target, on their machine. Only a figure that could not be measured is an error.
    return 1 if any(figure.note.startswith("failed:") for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
