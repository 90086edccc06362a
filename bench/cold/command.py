"""`python -m bench cold`: shows what a process imports and computes before it serves."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from devhost.loops import chosen_loop, loop_factory

from ..tools import machine
from .stages import STAGES, Used, WorkerFailed, measure

TITLES: Final = {
    "floor": "floor: worker library, identity, pydantic",
    "indexed": "until indexed",
    "queue": "until a queue message is served",
    "http": "until a call is answered",
    "exporters": "exporters, beside them",
}
LARGEST: Final = 12
"""Packages that the table shows of each stage."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench cold",
        description="Starts processes from a package as deployed, and shows their CPU time, modules and memory: the floor, and what the "
        "app takes on top of it until it is indexed, has served a queue message, or has answered a call.",
    )
    parser.add_argument("--rounds", type=int, default=5, help="processes of each kind, of which the least counts (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON, with all packages")
    given = parser.parse_args(arguments)
    if given.rounds < 1:
        parser.error("--rounds must be 1 or more")
    return given


def as_dict(used: Used) -> dict[str, Any]:
    """Return a stage as plain data. The packages' seconds are of one run in which the imports were timed."""
    packages = {
        name: {"modules": modules, "cpu_seconds": round(cpu, 4)}
        for name, (modules, cpu) in sorted(used.packages.items(), key=lambda each: -each[1][1])
    }
    return {"cpu_seconds": round(used.cpu, 3), "modules": used.modules, "mb": round(used.mb, 1), "packages": packages}


def print_table(found: dict[str, Used], console: Console) -> None:
    """Print the table for people."""
    table = Table(pad_edge=False)
    table.add_column("stage")
    for name in ("CPU s", "modules", "MB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("imports: modules, CPU ms", overflow="fold", style="dim")
    for name in ("floor", *STAGES):
        used = found[name]
        largest = sorted(used.packages.items(), key=lambda each: -each[1][1])[:LARGEST]
        packages = ", ".join(f"{package} {modules}, {cpu * 1000:.0f}" for package, (modules, cpu) in largest)
        table.add_row(TITLES[name], f"{used.cpu:.2f}", str(used.modules), f"{used.mb:.0f}", packages)
    console.print(table)


def main(arguments: list[str]) -> int:
    """The command. Returns 1 if a process could not be measured."""
    given = parse(arguments)
    about = machine.describe()
    console = Console(stderr=True)
    try:
        with tempfile.TemporaryDirectory() as folder, console.status("compile") as status:
            work = measure(Path(folder), given.rounds, status.update)
            found = asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))
    except WorkerFailed as error:
        print(f"bench cold: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({"machine": about, "stages": {name: as_dict(each) for name, each in found.items()}}, indent=2))
    else:
        print_table(found, Console(width=None if sys.stdout.isatty() else 200))
    return 0
