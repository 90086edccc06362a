"""`python -m bench profile`: shows where the CPU time of one POST, one delivery and one storage transaction goes."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import warnings
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from devhost.loops import chosen_loop, loop_factory

from ..tools import machine
from ..tools.instance import NotHeldError, add_option, held_to
from .jobs import JOBS, Spent


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench profile",
        description="Samples the worker process each millisecond of its CPU time while it serves, and divides the microseconds of one POST "
        "and one delivery among its layers; beside them the floor: what the same costs without the app.",
        epilog="example: python -m bench profile post --json | jq '.profiles[0].layers'",
    )
    parser.add_argument("names", nargs="*", choices=[*JOBS, []], metavar="NAME", help=f"some of {', '.join(JOBS)} (default: all)")
    add_option(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    given = parser.parse_args(arguments)
    given.names = list(dict.fromkeys(given.names)) or list(JOBS)
    return given


async def measure(names: list[str], size: int | None, console: Console) -> list[Spent]:
    """Measure one after the other. Raises `NotHeldError`."""
    found = []
    with console.status("start") as status:
        for name in names:
            with held_to(size):
                found.append(await JOBS[name](status.update))
    return found


def print_table(found: list[Spent], console: Console) -> None:
    """Print a column for each job: microseconds by layer, the floor, and the factor between them."""
    table = Table(pad_edge=False)
    table.add_column("CPU us")
    for each in found:
        table.add_column(each.job, justify="right")
    layers = sorted({name for each in found for name in each.layers}, key=lambda name: -max(each.layers.get(name, 0.0) for each in found))
    for name in layers:
        table.add_row(name, *(f"{each.layers[name]:.0f}" if name in each.layers else "" for each in found))
    table.add_section()
    table.add_row("all of the worker", *(f"{each.whole:.0f}" for each in found))
    table.add_row("the devhost, in place of the Functions host", *(f"{each.host:.0f}" if each.host else "" for each in found))
    table.add_row("floor", *(f"{each.floor:.0f}" for each in found))
    table.add_row("all of the worker / floor", *(f"{each.whole / each.floor:.1f}" for each in found))
    console.print(table)
    for each in found:
        console.print(f"{each.job}: {each.count:,} of them, {each.samples:,} samples; floor: {each.floor_is}", style="dim", highlight=False)


def main(arguments: list[str]) -> int:
    """The command. Returns 1 if the processes could not be held to a size."""
    given = parse(arguments)
    about = machine.describe()
    warnings.simplefilter("ignore", ResourceWarning)
    try:
        work = measure(given.names, given.size, Console(stderr=True))
        found = asyncio.run(work, loop_factory=loop_factory(chosen_loop(os.environ)))
    except NotHeldError as error:
        print(f"bench profile: {error}", file=sys.stderr)
        return 1
    if given.json:
        print(json.dumps({"machine": about, "profiles": [{**asdict(each), "whole": each.whole} for each in found]}, indent=2))
    else:
        print_table(found, Console(width=None if sys.stdout.isatty() else 120))
    return 0
