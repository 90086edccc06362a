"""`python -m bench`: the table of figures; `bench cost`: the costs on Azure; `bench cold`: the start of a process;
`bench flex`: lateness where instances go to zero; `bench profile`: CPU time by layer."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import sys
import warnings
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from devhost.loops import chosen_loop, loop_factory

from . import report
from .registry import BENCHES, Bench
from .report import Figure
from .tools import machine
from .tools.instance import add_option, held_to
from .tools.stage import Run

EPILOG = """\
python -m bench cost computes what Azure would bill, python -m bench cold what a process takes to start, python -m bench flex how late
events are where instances go to zero, and python -m bench profile to which layers the CPU time goes; see their own --help.
--json prints an object: `machine`, and `figures`, a list of rows with `bench` (the NAME), `name`, `value` (null: not measured), `unit`,
`target` ("" without one), `verdict` (reached, missed, not measured, failed; null without a target), `note` and `details`.

The exit code is 0 when all was measured, whether targets are reached or missed; 1 when a benchmark failed; 2 for wrong arguments.
"""


def parse(arguments: list[str]) -> argparse.Namespace:
    width = max(map(len, BENCHES))
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measures the figures of performance.md, on this machine alone.\n\nnames:\n"
        + "\n".join(f"  {name:<{width}}  {bench.about}" for name, bench in BENCHES.items()),
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="some benchmarks only (default: all)")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="the same")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and events: a few minutes, rougher figures")
    scale = (
        "events of `cluster` (1,000,000; with --quick a tenth), and of each instance of `cluster-throughput` (60,000); "
        "a further number of open events of `growth`"
    )
    parser.add_argument("--scale", type=int, metavar="EVENTS", help=scale)
    add_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON, details included")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table as Markdown")
    given = parser.parse_args(arguments)
    given.names = list(dict.fromkeys([*given.names, *given.only])) or list(BENCHES)
    if given.scale is not None and given.scale < 1000:
        parser.error("--scale must be 1,000 or more")
    if unknown := set(given.names) - BENCHES.keys():
        parser.error(f"no such benchmarks: {', '.join(sorted(unknown))}; there are {', '.join(BENCHES)}")
    return given


async def run_all(given: argparse.Namespace, console: Console) -> list[Figure]:
    """Measure one after the other. A failure is a line of the table and does not stop the others."""
    names: list[str] = given.names
    figures: list[Figure] = []
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True) as progress:
        whole = progress.add_task("all", total=len(names))
        for name in names:
            part = progress.add_task(name, total=1)

            def report_progress(what: str, done: float, total: float, part: int = part) -> None:
                progress.update(part, description=what, completed=done, total=total)  # type: ignore[arg-type]

            bench = BENCHES[name]
            try:
                found = await _measure(bench, Run(given.quick, report_progress, given.scale), given.size)
            except Exception as error:
                logging.getLogger("bench").exception("%s could not be measured", name)
                found = [Figure(name, None, note=f"{report.FAILED} {type(error).__name__}: {str(error)[:200]}")]
            figures += [replace(figure, bench=name) for figure in found]
            progress.remove_task(part)
            progress.advance(whole)
    return figures


async def _measure(bench: Bench, run: Run, size: int | None) -> list[Figure]:
    with held_to(size) as held:
        found = await asyncio.wait_for(bench.measure(run), bench.limit)
        if held is None:
            return found
        how = f"held to an instance of {size:,} MB, paused for {held.paused():.1f} s" if held.processes else "not held: no app of its own"
    return [replace(found[0], note=f"{found[0].note}; {how}"), *found[1:]]


def main() -> int:
    if sys.argv[1:2] == ["cost"]:
        from .cost import command

        return command.main(sys.argv[2:])
    if sys.argv[1:2] == ["cold"]:
        from .cold import command as cold

        return cold.main(sys.argv[2:])
    if sys.argv[1:2] == ["flex"]:
        from .flex import command as flex

        return flex.main(sys.argv[2:])
    if sys.argv[1:2] == ["profile"]:
        from .profile import command as profile

        return profile.main(sys.argv[2:])
    given = parse(sys.argv[1:])
    warnings.simplefilter("ignore", ResourceWarning)
    logging.basicConfig(level=logging.WARNING)
    for noisy in ("azure", "shared"):
        logging.getLogger(noisy).setLevel(logging.ERROR)
    about = machine.describe()
    # With --json stdout is the document's alone.
    work = run_all(given, Console(stderr=True))
    figures = asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))
    if given.markdown is not None:
        given.markdown.write_text(report.as_markdown(figures, about))
    if given.json:
        print(report.as_json(figures, about))
    else:
        report.print_table(figures, about, Console(width=None if sys.stdout.isatty() else 200))
    # People judge a missed target, on their machine. Only a figure that could not be measured is an error.
    return 1 if any(figure.failed for figure in figures) else 0


if __name__ == "__main__":
    sys.exit(main())
