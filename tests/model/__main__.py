"""`python -m tests.model [--full] [--play NAME] [--mutants] [--trace]`: run the checker and print what it found."""

from __future__ import annotations

import argparse
import sys

from rich.console import Console
from rich.status import Status
from rich.table import Table

from .checker import Report, explore
from .mutants import MUTANTS, hunt
from .plays import PLAYS
from .world import World

LIMIT = 5_000_000
"""States of one play: about 2 KiB each."""


def main() -> int:
    """0 when the protocol holds in every play and every mutant is caught; 1 otherwise."""
    parser = argparse.ArgumentParser(prog="python -m tests.model", description="Exhaustive checks of the shard protocol.")
    parser.add_argument("--full", action="store_true", help="the large plays: more faults at once (many minutes)")
    parser.add_argument("--play", choices=list(PLAYS), help="this play only")
    parser.add_argument("--mutants", action="store_true", help="the mutants only")
    parser.add_argument("--trace", action="store_true", help="print the mutants' traces")
    asked = parser.parse_args()
    console = Console()
    failed = 0
    if not asked.mutants:
        table = Table("play", "states", "depth", "seconds", "result", title="The shard protocol")
        for name in [asked.play] if asked.play else PLAYS:
            with console.status(f"exploring {name} ...") as status:
                try:
                    report = explore(World(PLAYS[name](int(asked.full))), limit=LIMIT, progress=_teller(status, name))
                except OverflowError as unfinished:
                    # Not a proof, and not to be taken for one.
                    failed += 1
                    table.add_row(name, str(unfinished), "", "", "NOT FINISHED")
                    continue
            failed += report.violation is not None
            table.add_row(name, f"{report.states:,}", str(report.depth), f"{report.seconds:.1f}", report.violation or "holds")
            if report.violation:
                console.print(str(report))
        console.print(table)
    if not asked.play:
        table = Table("left out", "play", "caught as", "steps", "states", title="Mutants")
        for mutant in MUTANTS:
            report = hunt(mutant)
            failed += report.violation is None
            caught = (report.violation or "NOT CAUGHT").partition(":")[0]
            table.add_row(mutant.name, mutant.play, caught, str(report.steps), f"{report.states:,}")
            if asked.trace:
                console.print(f"[b]{mutant.name}[/b]\n{report}", highlight=False)
        console.print(table)
    return 1 if failed else 0


def _teller(status: Status, name: str):  # type: ignore[no-untyped-def]
    def tell(report: Report) -> None:
        status.update(f"exploring {name}: {report.states:,} states, depth {report.depth}")

    return tell


if __name__ == "__main__":
    sys.exit(main())
