"""`python -m devhost.demo.maintenance`: a rolling host update over five nodes in three fault domains, as a time-line.

The parts are real: the app on Azurite, an agent process on each node, lease keepers, hooks that are programs. Azure's metadata service is
the emulator. The fleet approves early, one fault domain after the other, as the domain guard allows. Agents measure callers' latency; the
database that they ask is emulated, and two nodes that catch up at once make it too slow. The exit code is 1 if a step was out of order.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from shared.cli.fleets.maintenance import VERDICTS, latency_rows

from .nodes import NODES, PARTITIONS, PROBE, STAGES, DemoFleet, Story, azure, console_of
from .running import DemoFailed, run
from .system import System

LONGEST: Final = 420.0
"""Seconds after which the demonstration is given up."""


def judge(story: Story) -> list[str]:
    """Return a sentence for each step that was out of order."""
    found = [f"{node} was hit before it was prepared" for node in story.unprepared]
    for node, stages in story.at.items():
        found += [f"{node}: no {stage}" for stage in STAGES if stage not in stages]
        known = [stage for stage in STAGES if stage in stages]
        found += [f"{node}: {later} before {first}" for first, later in itertools.pairwise(known) if stages[first] > stages[later]]
    if story.most_domains > 1:
        found.append(f"{story.most_domains} fault domains were out of service at once")
    return found


async def demonstrate(folder: Path, console: Console, as_json: bool) -> None:
    """Run the demonstration and print it. Raises `DemoFailed`, also if a step was out of order."""
    story = Story(console)
    async with System(folder) as system, azure() as imds, DemoFleet(system, imds, story) as fleet:
        console.print(f"five nodes, three fault domains, {PARTITIONS} partitions; the app is at {system.url}")
        await fleet.until(lambda: fleet.whole, LONGEST)
        console.print("each node serves its part; Azure plans to update their hosts")
        fleet.update()
        await fleet.until(lambda: story.done, LONGEST)
        await fleet.until(lambda: fleet.whole, LONGEST)
        console.print("each node serves again; agents probe until the last node has caught up")
        callers = await fleet.callers()
    wrong = judge(story)
    console.print(table(story))
    console.print("▒ out of service   █ impact; one fault domain at a time")
    console.print(latencies(callers))
    console.print(f"█ p50   ▒ p99   │ the bound on p99: {PROBE['bound']['p99_ms']} ms")
    for name, probe in callers.items():
        console.print(f"{name}: {'; '.join(probe['passed']) or VERDICTS[probe['verdict']]}")
    if as_json:
        found = {"nodes": story.at, "domains": NODES, "most_domains_down": story.most_domains, "callers": callers, "wrong": wrong}
        print(json.dumps(found))
    if wrong:
        raise DemoFailed("; ".join(wrong))


def table(story: Story) -> Table:
    """Return the time-line of each node: seconds since the beginning, and a bar."""
    shown = Table(title="A rolling host update (seconds since the beginning)")
    for column in ("node", "domain", *STAGES, "out of service"):
        shown.add_column(column, justify="left" if column in ("node", "out of service") else "right")
    end = max((at for stages in story.at.values() for at in stages.values()), default=1.0)
    for node, domain in NODES.items():
        stages = story.at[node]
        times = [f"{stages[stage]:.1f}" if stage in stages else "-" for stage in STAGES]
        shown.add_row(node, domain, *times, _bar(stages, end))
    return shown


def latencies(callers: dict[str, dict[str, Any]]) -> Table:
    """Return callers' latency by event and phase, with a chart."""
    shown = Table(title="Callers' latency by phase of each event")
    for column in ("event", "phase", "probes", "failed", "p50", "p99", "p50 and p99"):
        shown.add_column(column, justify="left" if column in ("event", "phase", "p50 and p99") else "right")
    longest = max((found["p99_ms"] or 0 for probe in callers.values() for found in probe["phases"].values()), default=0)
    for name, probe in callers.items():
        for number, row in enumerate(latency_rows(probe, longest)):
            shown.add_row(name if not number else "", *(str(cell if cell is not None else "-") for cell in row))
        shown.add_section()
    return shown


def _bar(stages: dict[str, float], end: float, width: int = 40) -> str:
    def column(stage: str) -> int:
        return min(width - 1, round(stages[stage] / end * (width - 1)))

    bar = ["·"] * width
    if {"prepared", "restored"} <= stages.keys():
        for at in range(column("prepared"), column("restored") + 1):
            bar[at] = "▒"
    if "impact" in stages:
        bar[column("impact")] = "█"
    return "".join(bar)


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m devhost.demo.maintenance", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print the time-line as JSON, and nothing else")
    given = parser.parse_args(arguments)
    code = run(lambda folder: demonstrate(folder, console_of(given.json), given.json))
    return 130 if code is None else code


if __name__ == "__main__":
    sys.exit(main())
