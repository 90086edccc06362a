"""`python -m bench flex`: lateness and bill on Flex Consumption, by load, by setting and by platform."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from itertools import product
from math import inf
from typing import Any, Final, get_args, get_type_hints

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from .. import report
from ..cost import page as cost
from ..report import Figure
from ..tools import machine
from . import page
from .loads import FAR, LOADS, NEAR, Ahead
from .platform import Platform
from .run import MODES, Result, run

POLLS: Final = (5.0, 10.0, 30.0)
COLD: Final = (4.0, 6.0, 10.0, 15.0)
IDLE: Final = (30.0, 60.0, 300.0)
TIMERS: Final = ("ahead", "late", "dead", "stopped")
QUICK: Final = (((10.0,), (6.0, 15.0), (30.0,), ("ahead", "dead")), ((30.0,), (15.0,), (30.0,), ("stopped",)))
"""Values of some cells: all combinations of each."""
TIMELY: Final = [name for name, load in LOADS.items() if load.timely]
MOST_LATE: Final = 0.1
"""Target in percent for events that are stored two minutes ahead or more."""
MOST_P99: Final = 20.0
MOST_NEAR_LATE: Final = 5.0
MOST_STUCK_LATE: Final = 1.0
MOST_STUCK_P99: Final = 100.0
STUCK: Final = 0.005
DEFAULTS: Final = Platform()
SHARE: Final = 0.2
"""Length of a run on each of many platforms, as a share of the load's."""
SHORT: Final = 20.0
"""Seconds without work after which an instance goes, on a platform for which wakes must come closer together."""
VOTES: Final = 3
"""Looks without a visible message after which the controller takes an instance, on a platform for which messages must come earlier."""


@dataclass(frozen=True, slots=True)
class Task:
    """One run. part: the part of the figures that it belongs to."""

    part: str
    load: str
    platform: Platform = DEFAULTS
    mode: str = "auto"
    ahead: Ahead = FAR
    stage: int = 0
    share: float = 1.0
    """Length of the run as a share of the load's."""


def cells(*, quick: bool) -> list[Platform]:
    """Return the platforms for which the targets hold."""
    sets = QUICK if quick else ((POLLS, COLD, IDLE, TIMERS),)
    return [Platform(poll=poll, cold=cold, idle=idle, timers=timers) for each in sets for poll, cold, idle, timers in product(*each)]


def tasks(names: Sequence[str], *, quick: bool) -> list[Task]:
    """Return all runs for some loads."""
    timely = [name for name in names if name in TIMELY]
    found = [Task("load", name, mode=mode) for name in names for mode in MODES if not (name == "bulk" and mode == "always-ready")]
    found += [Task("cell", name, platform, share=SHARE) for name in timely for platform in cells(quick=quick)]
    # Whether the timer is late or stops half-way makes no difference for them.
    near = [platform for platform in cells(quick=quick) if platform.timers in ("ahead", "dead")]
    found += [Task("near", name, platform, ahead=NEAR, share=3 * SHARE) for name in timely for platform in near]
    found += [Task("short", name, replace(DEFAULTS, idle=SHORT), stage=1) for name in timely]
    found += [Task("votes", name, replace(DEFAULTS, votes=VOTES), stage=2) for name in timely]
    found += [Task("stuck", name, replace(DEFAULTS, stuck=STUCK)) for name in timely]
    return found


def carry_out(task: Task) -> Result:
    """Do one run."""
    return run(task.load, task.platform, task.mode, task.ahead, seconds=LOADS[task.load].seconds * task.share, stage=task.stage)


def named(platform: Platform) -> str:
    """Return the cell's name."""
    return f"poll {platform.poll:g} s, cold {platform.cold:g} s, idle {platform.idle:g} s, timers {platform.timers}"


def figures(done: Sequence[tuple[Task, Result]]) -> list[Figure]:
    """Return the figures with their targets."""
    found: list[Figure] = []
    for name, load in LOADS.items():
        own = [(task, result) for task, result in done if task.load == name]
        if own:
            found += _bulk(own) if name == "bulk" else [_bill(task, result) for task, result in own if task.part == "load"]
        if name == "tenants":
            found += [
                Figure(
                    f"{load.title}: most instances that deliver",
                    result.instances,
                    "",
                    "<=",
                    1,
                    f"wakes {task.mode}; up to {result.most_messages} messages",
                )
                for task, result in own
                if task.mode == "auto"
            ]
        found += _lateness(load.title, "stored 2 to 15 min ahead", [each for each in own if each[0].part == "cell"], MOST_LATE, MOST_P99)
        found += _lateness(load.title, "stored 25 to 120 s ahead", [each for each in own if each[0].part == "near"], MOST_NEAR_LATE, None)
        found += _lateness(load.title, f"idle {SHORT:g} s", [each for each in own if each[0].part == "short"], MOST_LATE, MOST_P99)
        found += _lateness(load.title, f"{VOTES} votes", [each for each in own if each[0].part == "votes"], MOST_LATE, MOST_P99)
        found += _lateness(
            load.title, f"{STUCK:.1%} stuck", [each for each in own if each[0].part == "stuck"], MOST_STUCK_LATE, MOST_STUCK_P99
        )
    return found


def _bill(task: Task, result: Result) -> Figure:
    load = LOADS[task.load]
    groups = ", ".join(f"{name} {amount:.0f}" for name, amount in result.kilo_gb_seconds.items() if amount >= 0.5)
    note = f"kGB-s: {groups}; {result.wakes_a_minute:.1f} wakes a minute"
    if result.events:
        times = f"p50 {result.p50:.0f}, p99 {result.p99:,.0f}, max {result.longest:,.0f} ms"
        note = f"{100 * result.late:.1f} % of {result.events:,} later than 100 ms; {times}; {note}"
    limit = load.usd if task.mode == "auto" else None
    return Figure(f"{load.title}, {task.mode}: a month", result.usd, "USD", "<=", limit, note, details(task, result))


def _bulk(own: Sequence[tuple[Task, Result]]) -> list[Figure]:
    by_mode = {task.mode: result for task, result in own}
    least = by_mode["off"].first_instances
    note = f"{least} without wakes"
    return [Figure(f"{LOADS['bulk'].title}: instances wanted at the first message", by_mode["auto"].first_instances, "", ">=", least, note)]


def _lateness(title: str, what: str, own: Sequence[tuple[Task, Result]], most: float, p99: float | None) -> list[Figure]:
    """Return the worst share of late events, and the worst p99, of some runs."""
    if not own:
        return []
    task, worst = max(own, key=lambda each: (each[1].late, each[1].p99))
    missed = [each for each in own if 100 * each[1].late > most]
    of = f"{len(missed)} of {len(own)} platforms over it" if len(own) > 1 else ""
    median = sorted(each[1].late for each in own)[len(own) // 2]
    where = f"{named(task.platform)}; {worst.events:,} events, max {worst.longest:,.0f} ms" if worst.late else ""
    parts = [of, f"median {100 * median:.1f} %" if len(own) > 1 and worst.late else "", f"worst: {where}" if where else ""]
    note = "; ".join(part for part in parts if part)
    rows = {"runs": [details(*each) for each in own]}
    found = [Figure(f"{title}, {what}: later than 100 ms", 100 * worst.late, "%", "<=", most, note, rows)]
    slowest = max(own, key=lambda each: each[1].p99)
    limit = Figure(
        f"{title}, {what}: p99", slowest[1].p99, "ms", "<=", p99, named(slowest[0].platform) if slowest[1].p99 > (p99 or 0) else ""
    )
    return [*found, limit]


def details(task: Task, result: Result) -> dict[str, Any]:
    """Return a run as plain data."""
    changed = {
        field.name: value for field in dataclasses.fields(Platform) if (value := getattr(task.platform, field.name)) != field.default
    }
    return {"load": task.load, "mode": task.mode, "ahead": task.ahead, "platform": changed, **dataclasses.asdict(result)}


def parameters() -> list[tuple[str, object, str, str]]:
    """Return name, default, meaning and source of each parameter of the platform."""
    hints = get_type_hints(Platform, include_extras=True)
    return [(field.name, field.default, *get_args(hints[field.name])[1:]) for field in dataclasses.fields(Platform)]


def _epilog() -> str:
    lines = [f"  {name:<13} {value!s:<7} {meaning} [{source}]" for name, value, meaning, source in parameters()]
    return "parameters of the platform, with their defaults and sources (seconds unless said; prices: bench/cost/prices.py):\n" + "\n".join(
        lines
    )


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench flex",
        description="Runs production's decisions about wakes on virtual time, against a model of Flex Consumption at 512 MB.\n"
        "Nothing was measured on Azure: the figures are as good as the parameters below.",
        epilog=_epilog(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--only", nargs="+", metavar="LOAD", choices=LOADS, help=f"these loads only: {', '.join(LOADS)}")
    parser.add_argument("--quick", action="store_true", help="five platforms instead of 144: a minute")
    parser.add_argument("--jobs", type=int, default=2, help="number of processes (default: 2)")
    parser.add_argument("--json", action="store_true", help="print JSON, each run included")
    parser.add_argument(
        "--page",
        action="store_true",
        help="also write the figures into bench/flex/results.json and the pages about wakes and costs",
    )
    parser.add_argument("--set", nargs="+", default=[], metavar="NAME=VALUE", help="run the loads alone, with these parameters")
    given = parser.parse_args(arguments)
    if given.page and (given.only or given.quick or given.set):
        parser.error("--page keeps the figures of a whole run: leave out --only, --quick and --set")
    if given.jobs < 1:
        parser.error("--jobs must be 1 or more")
    try:
        given.platform = changed(given.set)
    except ValueError as error:
        parser.error(f"--set: {error}")
    return given


def changed(texts: Sequence[str]) -> Platform:
    """Return the platform with parameters of the form NAME=VALUE. Raises ValueError."""
    values: dict[str, Any] = {}
    known = {field.name: field.default for field in dataclasses.fields(Platform)}
    hints = get_type_hints(Platform, include_extras=True)
    for text in texts:
        name, _, value = text.partition("=")
        if name not in known:
            raise ValueError(f"no parameter is called {name!r}; there are {', '.join(known)}")
        if name == "timers":
            if value not in TIMERS:
                raise ValueError(f"timers must be one of {', '.join(TIMERS)}, such as timers=dead")
            values[name] = value
        else:
            values[name] = get_args(hints[name])[0](value)
            least = 0.001 if name in ("poll", "per_instance", "longest_poll", "first_poll") else 0
            if not least <= values[name] < inf:
                raise ValueError(f"{name} must be a number from {least:g}, such as {name}={known[name]}")
    return replace(DEFAULTS, **values)


def run_all(work: Sequence[Task], jobs: int, console: Console) -> list[tuple[Task, Result]]:
    """Do all runs, some side by side."""
    columns = (TextColumn("{task.description:<44}"), BarColumn(), TextColumn("{task.completed}/{task.total}"), TimeElapsedColumn())
    done: list[tuple[Task, Result]] = []
    with Progress(*columns, console=console, transient=True) as progress, ProcessPoolExecutor(jobs) as pool:
        bar = progress.add_task("runs", total=len(work))
        for task, result in zip(work, pool.map(carry_out, work), strict=True):
            done.append((task, result))
            progress.update(bar, advance=1, description=f"{LOADS[task.load].title}, {task.part}")
    return done


def main(arguments: list[str]) -> int:
    """The command. Returns 0: people judge a missed target."""
    given = parse(arguments)
    names = given.only or list(LOADS)
    work = tasks(names, quick=given.quick)
    if given.set:
        work = [replace(task, platform=given.platform) for task in work if task.part == "load"]
    found = figures(run_all(work, given.jobs, Console(stderr=True)))
    about: Mapping[str, str] = machine.describe()
    if given.page:
        page.write(page.as_results(found, {name: value for name, value, _, _ in parameters()}))
        cost.write(cost.read())
    if given.json:
        print(report.as_json(found, about))
    else:
        report.print_table(found, about, Console(width=None if sys.stdout.isatty() else 200))
    return 0
