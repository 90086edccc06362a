"""`python -m devhost.demo.maintenance`: a rolling host update over five nodes in three fault domains, as a time-line.

Real parts: the app on Azurite, an agent process on each node, lease keepers, hooks that are programs; Azure's metadata service is the
emulator. The fleet approves early, one fault domain after the other, as the guard lets it. Exit code 1 when something was out of order.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from asyncio.subprocess import DEVNULL, Process
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table

from shared.emulator import Emulator, scenario_of
from shared.emulator.model import Happening
from shared.leases import HttpTables, LeaseKeeper

from ..azurite import ROOT
from .system import ADMIN_KEY, DemoFailed, System

NODES: Final = {"n1": "0", "n2": "1", "n3": "2", "n4": "0", "n5": "1"}
"""Nodes and their fault domains."""
PARTITIONS: Final = 15
FLEET: Final = {
    "partitions": PARTITIONS,
    "profile": "fast",
    "limits": {"max_per_server": PARTITIONS, "moves_per_minute": 600, "drain": "PT1S"},
    "servers": {"minimum": 3},
    "maintenance": {"early": True, "lead": "PT10S", "catch_up": "PT3S"},
}
STAGES: Final = ("notice", "leases left", "prepared", "approved", "impact", "restored")
WIDTH: Final = 130
"""Columns of what goes into a file."""
LONGEST: Final = 420.0
"""Seconds after which the demonstration is given up."""
HOOK: Final = 'echo "{kind} $TOCSIN_EVENT_ID" >> {diary}'


@dataclass
class Story:
    """What happened, by node and stage, in seconds since the beginning; and all of it, in order."""

    began: float = field(default_factory=time.monotonic)
    at: dict[str, dict[str, float]] = field(default_factory=lambda: {node: {} for node in NODES})
    down: set[str] = field(default_factory=set)
    most_domains: int = 0
    wrong: list[str] = field(default_factory=list)
    console: Console = field(default_factory=lambda: Console(highlight=False))
    quiet: bool = False

    def tell(self, node: str, what: str, text: str = "") -> None:
        """One line. The first time of each stage counts; restores the last."""
        now = time.monotonic() - self.began
        stages = self.at[node]
        if what in STAGES and (what not in stages or what == "restored"):
            stages[what] = now
        if what == "impact" and "prepared" not in stages:
            self.wrong.append(f"{node} was hit before it was prepared")
        if what in ("prepared", "restored"):
            self.down.add(node) if what == "prepared" else self.down.discard(node)
            self.most_domains = max(self.most_domains, len({NODES[each] for each in self.down}))
        if not self.quiet:
            self.console.print(f"[dim]{now:6.1f} s[/]  {node} [dim](domain {NODES[node]})[/]  {what}{f'  [dim]{text}[/]' if text else ''}")

    @property
    def done(self) -> bool:
        """Whether each node has been through it, and is back."""
        return all(set(stages) >= set(STAGES) for stages in self.at.values())

    def judge(self) -> list[str]:
        """What was out of order."""
        found = list(self.wrong)
        for node, stages in self.at.items():
            found += [f"{node}: no {stage}" for stage in STAGES if stage not in stages]
            known = [stage for stage in STAGES if stage in stages]
            found += [f"{node}: {later} before {first}" for first, later in itertools.pairwise(known) if stages[first] > stages[later]]
        if self.most_domains > 1:
            found.append(f"{self.most_domains} fault domains were out of service at once")
        return found


class Node:
    """One machine: a lease keeper, an agent process, and the diary that its hooks write."""

    def __init__(self, name: str, system: System, imds: Emulator, story: Story) -> None:
        self.name, self._system, self._imds, self._story = name, system, imds, story
        self._folder = system.folder / name
        self._folder.mkdir()
        self._diary = self._folder / "diary"
        self._diary.touch()
        self._read = 0
        self._agent: Process | None = None
        self._served = False
        tables = HttpTables.from_connection_string(system.storage)
        self._keeper = LeaseKeeper("db", name, tables, tenant="demo", domain=NODES[name])

    async def start(self) -> None:
        """Join the fleet, and start the agent."""
        await asyncio.to_thread(self._keeper.__enter__)
        key = await self._system.call(
            "POST", "tenants/demo/keys", {"scopes": ["agent"], "fleet": "db", "node": self.name}, key=ADMIN_KEY
        )
        hooks = {kind: {"command": ["sh", "-c", HOOK.format(kind=kind, diary=self._diary)]} for kind in ("prepare", "restore", "verify")}
        told = {
            "state": str(self._folder / "state"),
            "node": {"name": self.name, "scope": "set", "location": "westeurope", "fault_domain": NODES[self.name]},
            "imds": {"url": self._imds.url(self.name), "poll_seconds": 0.5},
            "app": {"url": self._system.url, "fleet": "db"},
            "maintenance": {"lead_seconds": 10},
            "health": {"enabled": False},
            "hooks": hooks,
        }
        config = self._folder / "agent.yaml"
        # JSON is YAML.
        config.write_text(json.dumps(told))
        with (self._folder / "agent.log").open("wb") as log:
            command = (sys.executable, "-m", "shared.cli", "agent", "--config", str(config), "--log", "json")
            environment = {**os.environ, "TOCSIN_KEY": key["key"]}
            self._agent = await asyncio.create_subprocess_exec(
                *command, cwd=ROOT, env=environment, stderr=log, stdout=DEVNULL, stdin=DEVNULL
            )

    def look(self) -> None:
        """Tell what is new of leases and hooks."""
        if self._agent is not None and self._agent.returncode is not None:
            raise DemoFailed(f"the agent of {self.name} ended; its log is {self._folder / 'agent.log'}")
        held = len(self._keeper.owned())
        if held and not self._served:
            self._served = True
        elif not held and self._served and "notice" in self._story.at[self.name]:
            self._served = False
            self._story.tell(self.name, "leases left")
        lines = self._diary.read_text().splitlines()
        for line in lines[self._read :]:
            kind = line.split()[0]
            if kind in ("prepare", "verify"):
                self._story.tell(self.name, {"prepare": "prepared", "verify": "restored"}[kind], "by its hook")
        self._read = len(lines)

    async def stop(self) -> None:
        """End both."""
        if self._agent is not None and self._agent.returncode is None:
            self._agent.send_signal(signal.SIGTERM)
            await self._agent.wait()
        await asyncio.to_thread(self._keeper.__exit__, None, None, None)

    @property
    def held(self) -> int:
        """Partitions that it has."""
        return len(self._keeper.owned())


def update(imds: Emulator) -> None:
    """Azure's plan: each domain in its turn, none of them soon. Who approves early is hit early."""
    for domain in sorted(set(NODES.values())):
        nodes = [node for node, at in NODES.items() if at == domain]
        notice = f"PT{5 + 5 * int(domain)}M"
        event = {"name": f"update-{domain}", "vms": nodes, "type": "Freeze", "duration": 3, "notice": notice, "settles": "PT2S"}
        imds.do({"event": event})


async def demonstrate(folder: Path, story: Story) -> list[str]:
    """Run it all; what was out of order. Raises `DemoFailed`."""
    vms = [{"name": node, "scope": "set", "host": f"host-{node}", "fault_domain": int(domain)} for node, domain in NODES.items()]
    async with System(folder) as system, Emulator(scenario_of({"vms": vms, "imds": {"rate": 1000, "first_call": "PT0S"}})) as imds:
        await system.call("PUT", "fleets/db", FLEET)
        nodes: list[Node] = []
        try:
            nodes += [Node(name, system, imds, story) for name in NODES]
            await asyncio.gather(*(node.start() for node in nodes))
            story.console.print(f"five nodes, three fault domains, {PARTITIONS} partitions; the app is at {system.url}")
            await _until(lambda: sum(node.held for node in nodes) == PARTITIONS and all(node.held for node in nodes), nodes)
            story.console.print("each node serves its part; Azure plans to update their hosts")
            names = {f"update-{domain}": [node for node, at in NODES.items() if at == domain] for domain in NODES.values()}
            imds.listen(lambda line: _tell(line, names, story, nodes))
            update(imds)
            await _until(lambda: story.done, nodes)
            await _until(lambda: sum(node.held for node in nodes) == PARTITIONS and all(node.held for node in nodes), nodes)
        finally:
            await asyncio.gather(*(node.stop() for node in nodes))
    return story.judge()


async def _until(done: object, nodes: list[Node]) -> None:
    until = time.monotonic() + LONGEST
    while True:
        for node in nodes:
            node.look()
        if done():  # type: ignore[operator]
            return
        if time.monotonic() > until:
            raise DemoFailed("it takes too long; the logs tell more")
        await asyncio.sleep(0.1)


def _tell(line: Happening, names: dict[str, list[str]], story: Story, nodes: list[Node]) -> None:
    stages = {"scheduled": "notice", "approved": "approved", "impact-began": "impact"}
    for each in nodes:
        # What hooks wrote before this comes before it.
        each.look()
    if line.kind in stages and line.event in names:
        for node in names[line.event] if line.kind != "impact-began" or not line.vm else [line.vm]:
            story.tell(node, stages[line.kind], line.event)


def table(story: Story) -> Table:
    """The time-line of each node: seconds since the beginning, and a bar of them."""
    shown = Table(title="A rolling host update (seconds since the beginning)")
    for column in ("node", "domain", *STAGES, "out of service"):
        shown.add_column(column, justify="left" if column in ("node", "out of service") else "right")
    end = max((at for stages in story.at.values() for at in stages.values()), default=1.0)
    for node, domain in NODES.items():
        stages = story.at[node]
        times = [f"{stages[stage]:.1f}" if stage in stages else "-" for stage in STAGES]
        shown.add_row(node, domain, *times, _bar(stages, end))
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
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m devhost.demo.maintenance", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--json", action="store_true", help="print the time-line as JSON, and nothing else")
    given = parser.parse_args(arguments)
    console = Console(highlight=False, quiet=given.json)
    if not console.is_terminal:
        console.width = WIDTH
    story = Story(quiet=given.json, console=console)
    folder = Path(tempfile.mkdtemp(prefix="tocsin-demo-"))
    try:
        wrong = asyncio.run(demonstrate(folder, story))
    except (DemoFailed, KeyboardInterrupt) as error:
        print(f"The demonstration ended: {error or 'interrupted'}. Logs are in {folder}", file=sys.stderr)
        return 1
    if not wrong:
        shutil.rmtree(folder)
    if given.json:
        print(json.dumps({"nodes": story.at, "domains": NODES, "most_domains_down": story.most_domains, "wrong": wrong}))
    else:
        story.console.print(table(story))
        legend = "▒ out of service   █ impact; one fault domain at a time"
        story.console.print(legend if not wrong else "\n".join([*wrong, f"Logs: {folder}"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
