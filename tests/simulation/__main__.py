"""`python -m tests.simulation`: many histories, or one again."""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections import Counter

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from .history import Report, simulate
from .planted import PLANTED, planted
from .profile import STYLES
from .world.added import simulate_added
from .world.bulk import simulate_bulk
from .world.fanned import simulate_fanouts
from .world.keyed_histories import simulate_keys
from .world.labelled import simulate_labels
from .world.overlapping import simulate_overlap
from .world.pair import simulate_pair
from .world.schedules import simulate_schedules
from .world.woken import simulate_woken

KINDS = {
    "pair": simulate_pair,
    "schedules": simulate_schedules,
    "keys": simulate_keys,
    "overlap": simulate_overlap,
    "labels": simulate_labels,
    "jobs": simulate_bulk,
    "fanouts": simulate_fanouts,
    "wakes": simulate_woken,
    "facet": simulate_added,
}
"""Histories of other kinds, by the option that asks for them."""
COLLECT_EVERY = 50
"""Histories between two collections of the garbage."""
SHOWN = 400
"""Characters of a trace's line."""
TAIL = 60
"""Lines of a violation's trace without --verbose."""


def main(arguments: list[str] | None = None) -> int:
    """Exit code 1 when a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description="Seeded histories of the scheduler on virtual time.")
    parser.add_argument("--seeds", type=int, default=100, help="how many histories (default 100)")
    parser.add_argument("--start", type=int, default=0, help="the first seed (default 0)")
    parser.add_argument("--seed", type=int, help="this one only")
    parser.add_argument("--style", choices=STYLES, help="this kind of trouble only")
    parser.add_argument("--pair", action="store_true", help="of a mirrored pair of accounts")
    parser.add_argument("--schedules", action="store_true", help="with recurring schedules")
    parser.add_argument("--keys", action="store_true", help="with ordering keys")
    parser.add_argument("--overlap", action="store_true", help="with schedules whose occurrences do not overlap")
    parser.add_argument("--fanouts", action="store_true", help="with fan-outs to several channels")
    parser.add_argument("--jobs", action="store_true", help="with bulk jobs of searchable labels")
    parser.add_argument("--labels", action="store_true", help="with searchable labels")
    parser.add_argument("--wakes", action="store_true", help="with planned wakes and without timers")
    parser.add_argument("--facet", action="store_true", help="with a facet that the service does not have")
    parser.add_argument("--planted", choices=PLANTED, metavar="BUG", help=f"with a known bug: {'; '.join(PLANTED)}")
    parser.add_argument("--keep-going", action="store_true", help="do not stop at the first violation")
    parser.add_argument("--verbose", action="store_true", help="print the whole trace")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON, and nothing else")
    asked = parser.parse_args(arguments)
    if asked.planted:
        with planted(asked.planted):
            return run(asked)
    return run(asked)


def run(asked: argparse.Namespace) -> int:
    """All seeds asked for."""
    console = Console(stderr=asked.json)
    play = next((play for name, play in KINDS.items() if getattr(asked, name)), simulate)
    seeds = [asked.seed] if asked.seed is not None else range(asked.start, asked.start + asked.seeds)
    counts: Counter[str] = Counter()
    styles: Counter[str] = Counter()
    broken: list[Report] = []
    virtual, began = 0.0, time.perf_counter()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=asked.json or len(seeds) == 1) as progress:
        bar = progress.add_task("histories", total=len(seeds))
        for number, seed in enumerate(seeds):
            report = play(seed, asked.style)
            counts.update(report.counts)
            styles[report.profile.style] += 1
            virtual += report.seconds
            progress.advance(bar)
            if report.violation is not None:
                broken.append(report)
                if not asked.keep_going:
                    break
            if asked.verbose and report.violation is None and len(seeds) == 1:
                _trace(console, report, whole=True)
            if number % COLLECT_EVERY == COLLECT_EVERY - 1:
                gc.collect()
    took = time.perf_counter() - began
    played = sum(styles.values())
    if asked.json:
        document = {
            "histories": played,
            "seconds": round(took, 3),
            "virtual_seconds": round(virtual),
            "styles": styles,
            "counts": dict(sorted(counts.items())),
            "violations": [{"seed": each.seed, "violation": each.violation} for each in broken],
        }
        print(json.dumps(document, indent=2))
        return 1 if broken else 0
    for report in broken:
        _violation(console, report, asked)
    _summary(console, counts, styles)
    console.print(f"{played} histories in {took:.1f} s ({played / took:.0f}/s), {virtual / 3600:.1f} hours of virtual time")
    if not broken:
        console.print("[green]every promise was kept[/green]")
    return 1 if broken else 0


def _violation(console: Console, report: Report, asked: argparse.Namespace) -> None:
    _trace(console, report, whole=asked.verbose)
    style = f" --style {asked.style}" if asked.style else ""
    kind = next((name for name in KINDS if getattr(asked, name)), "")
    bug = f' --planted "{asked.planted}"' if asked.planted else f" --{kind}" if kind else ""
    console.print(f"[red]seed {report.seed} ({report.profile.style}): {report.violation}[/red]", highlight=False)
    console.print(f"again: python -m tests.simulation --seed {report.seed}{style}{bug} --verbose\n", highlight=False)


def _trace(console: Console, report: Report, *, whole: bool) -> None:
    lines = list(report.trace.texts())
    if not whole and len(lines) > TAIL:
        console.print(f"... {len(lines) - TAIL} lines before; --verbose shows them")
        lines = lines[-TAIL:]
    for line in lines:
        console.print(line if whole else line[:SHOWN], markup=False, highlight=False, soft_wrap=True)


def _summary(console: Console, counts: Counter[str], styles: Counter[str]) -> None:
    groups: dict[str, list[str]] = {"histories": [f"{name} {count:,}" for name, count in sorted(styles.items())]}
    titles = {"fault": "faults", "refused": "refusals", "end": "events end as", "schedules": "changes of schedules"}
    for name, count in sorted(counts.items()):
        head, colon, tail = name.partition(": ")
        if count and name != "seconds until quiet":
            groups.setdefault(titles.get(head, head) if colon else "what happened", []).append(f"{tail or head} {count:,}")
    table = Table(show_header=False, show_edge=False, pad_edge=False)
    for group, cells in groups.items():
        table.add_row(group, ", ".join(cells))
    console.print(table)


if __name__ == "__main__":
    sys.exit(main())
