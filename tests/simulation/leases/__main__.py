"""`python -m tests.simulation.leases`: many histories of fleets, or one again."""

from __future__ import annotations

import argparse
import gc
import sys
import time
from collections import Counter
from contextlib import nullcontext

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from .delivering import simulate_deliveries
from .delivering_planted import PLANTED as DELIVERIES_PLANTED
from .history import ROLLBACK, STYLES, simulate
from .planted import PLANTED, ROLLBACK_PLANTED, planted
from .report import Report

COLLECT_EVERY = 50
"""Histories between two collections of the garbage."""
TAIL = 60
"""Lines of a violation's trace without --verbose."""
SHOWN = 240
"""Characters of a trace's line without --verbose."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.leases", description="Seeded histories of fleets on virtual time.")
    parser.add_argument("--seeds", type=int, default=1000, help="how many histories (default 1000)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--style", choices=(*STYLES, ROLLBACK), help="this kind of trouble only")
    parser.add_argument("--deliveries", action="store_true", help="deliveries to the owners of partitions, with resizes and maintenance")
    bugs = PLANTED | ROLLBACK_PLANTED | DELIVERIES_PLANTED
    parser.add_argument("--planted", choices=bugs, metavar="BUG", help=f"with a known bug: {'; '.join(PLANTED | DELIVERIES_PLANTED)}")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    parser.add_argument("--verbose", action="store_true", help="print the whole trace")
    asked = parser.parse_args(arguments)
    with planted(asked.planted) if asked.planted else nullcontext():
        return run(asked)


def run(asked: argparse.Namespace) -> int:
    """All seeds asked for."""
    console = Console()
    seeds = [asked.seed] if asked.seed is not None else range(asked.start, asked.start + asked.seeds)
    counts: Counter[str] = Counter()
    gaps: dict[str, list[float]] = {}
    broken: list[Report] = []
    virtual, played, healed, began = 0.0, 0, 0.0, time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    gc.disable()
    with Progress(*columns, console=console, disable=len(seeds) == 1) as progress:
        bar = progress.add_task("histories", total=len(seeds))
        for seed in seeds:
            report = simulate_deliveries(seed) if asked.deliveries else simulate(seed, asked.style)
            played += 1
            counts.update(report.counts)
            counts[f"histories: {report.style}"] += 1
            virtual += report.world.time.seconds
            healed = max(healed, report.healed)
            for what, found in report.gaps.items():
                gaps.setdefault(what, []).extend(found)
            progress.advance(bar)
            if report.violation is not None:
                broken.append(report)
                if not asked.keep_going:
                    break
            elif asked.verbose and len(seeds) == 1:
                show(console, report, whole=True)
            if played % COLLECT_EVERY == 0:
                gc.collect()
    took = time.perf_counter() - began
    for report in broken:
        show(console, report, whole=asked.verbose)
        bug = f' --planted "{asked.planted}"' if asked.planted else ""
        style = f" --style {asked.style}" if asked.style else " --deliveries" if asked.deliveries else ""
        console.print(f"[red]seed {report.seed} ({report.style}): {report.violation}[/red]", highlight=False)
        console.print(f"again: python -m tests.simulation.leases --seed {report.seed}{style}{bug} --verbose\n", highlight=False)
    console.print(", ".join(f"{name} {count:,}" for name, count in sorted(counts.items())), highlight=False)
    for what, found in sorted(gaps.items()):
        found.sort()
        middle, late = found[len(found) // 2], found[len(found) * 99 // 100]
        console.print(f"not served after {what}: {middle:.2f} s median, {late:.2f} s p99, {found[-1]:.2f} s at most, of {len(found):,}")
    console.print(f"well again {healed:.1f} s after all trouble at most")
    console.print(f"{played:,} histories in {took:.1f} s ({played / took:.0f}/s), {virtual / 3600:.1f} hours of virtual time")
    if not broken:
        console.print("[green]every promise was kept[/green]")
    return 1 if broken else 0


def show(console: Console, report: Report, *, whole: bool) -> None:
    """The history, or its end."""
    lines = report.world.texts()
    if not whole and len(lines) > TAIL:
        console.print(f"... {len(lines) - TAIL} lines before; --verbose shows them")
        lines = lines[-TAIL:]
    for line in lines:
        console.print(line if whole else line[:SHOWN], markup=False, highlight=False, soft_wrap=True)


if __name__ == "__main__":
    sys.exit(main())
