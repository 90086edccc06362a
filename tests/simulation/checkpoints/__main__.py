"""`python -m tests.simulation.checkpoints`: many days of replica groups, or one history again."""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from contextlib import nullcontext

from rich.console import Console

from .history import STYLES, Report, simulate
from .planted import PLANTED, planted


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.checkpoints", description="Seeded days of replica groups.")
    parser.add_argument("--seeds", type=int, default=100, help="how many histories (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--style", choices=STYLES, help="this kind of days only")
    parser.add_argument("--hours", type=float, default=24.0, help="of virtual time, each (default 24)")
    parser.add_argument("--members", type=int, default=5, help="of a group, the primary included (default 5)")
    parser.add_argument("--every", type=float, default=30.0, help="seconds between two reports of a member (default 30)")
    parser.add_argument("--planted", choices=PLANTED, metavar="BUG", help=f"with a known bug: {'; '.join(PLANTED)}")
    asked = parser.parse_args(arguments)
    console, began = Console(), time.perf_counter()
    found: list[Report] = []
    with planted(asked.planted) if asked.planted else nullcontext():
        for seed in [asked.seed] if asked.seed is not None else range(asked.start, asked.start + asked.seeds):
            report = simulate(seed, asked.style, hours=asked.hours, members=asked.members, every=asked.every)
            found.append(report)
            if report.violation is not None:
                for line in report.world.trace:
                    console.print(line, markup=False, highlight=False, soft_wrap=True)
                console.print(f"[red]seed {seed} ({report.style}): {report.violation}[/red]", highlight=False)
                return 1
    show(console, found)
    hours = sum(report.seconds for report in found) / 3600
    console.print(f"{len(found)} histories, {hours:,.0f} hours of virtual time, in {time.perf_counter() - began:.0f} s", highlight=False)
    console.print("[green]every promise was kept[/green]")
    return 0


def show(console: Console, found: list[Report]) -> None:
    """The figures, by style."""
    for style in STYLES:
        some = [report for report in found if report.style == style]
        if not some:
            continue
        ends = sum((report.ends for report in some), start=Counter[str]())
        counts = sum((report.world.counts for report in some), start=Counter[str]())
        spread, used = max(report.spread for report in some), sum(report.utilisation for report in some) / len(some)
        console.print(
            f"{style}: {ends.total():,} turns taken, {used:.0%} of all time in checkpoints that finished, spread {spread} at most; "
            f"{', '.join(f'{what} {count:,}' for what, count in sorted(ends.items()))}; "
            f"{', '.join(f'{what} {count:,}' for what, count in sorted(counts.items()))}",
            highlight=False,
        )


if __name__ == "__main__":
    sys.exit(main())
