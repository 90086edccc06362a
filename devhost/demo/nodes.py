"""The five machines of the demonstrations, each with a lease keeper and an agent with hooks, and an emulated Azure with plans for them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from aiohttp import web
from rich.console import Console

from shared.extras.emulator import Emulator, scenario_of
from shared.extras.emulator.model import Happening
from shared.leases import HttpTables, LeaseKeeper

from .running import Child, DemoFailed
from .system import ADMIN_KEY, System

NODES: Final = {"n1": "0", "n2": "1", "n3": "2", "n4": "0", "n5": "1"}
"""Nodes and their fault domains."""
PARTITIONS: Final = 15
FLEET: Final[dict[str, Any]] = {
    "partitions": PARTITIONS,
    "profile": "fast",
    "limits": {"max_per_server": PARTITIONS, "moves_per_minute": 600, "drain": "PT1S"},
    "servers": {"minimum": 3},
    "maintenance": {"early": True, "lead": "PT10S", "catch_up": "PT1M"},
    "checkpoints": {"timeout": {"initial": "PT1M"}},
}
PROBE: Final[dict[str, Any]] = {"every": "PT0.25S", "timeout": "PT2S", "bound": {"p99_ms": 350, "failures": 0.01}}
READ: Final = 0.004
AWAY: Final = 0.02
BEHIND: Final = 0.2
"""Seconds that a read of the emulated database takes, and that it takes longer for each node that is out, or catches up. Two nodes that
catch up break the bound."""
LONGEST_PROBE: Final = 120.0
STAGES: Final = ("notice", "leases left", "prepared", "approved", "impact", "restored")
WIDTH: Final = 130
"""Columns of the output if it is not a terminal."""
HOOK: Final = 'echo "{kind} $TOCSIN_EVENT_ID" >> {diary}'
CATCH_UP: Final = 12
"""Seconds that a node needs to catch up after it was restored. Probes count between two reports in one phase; reports come every 5 s."""
CAUGHT_UP: Final = "test -e {mark} || exit 0; left=$(( $(stat -c %Y {mark}) + {seconds} - $(date +%s) )); test $left -le 0 || sleep $left"
"""Waits for it, so that the next fault domain need not wait for a later run of the hook."""


class _Screen(Console):
    def on_broken_pipe(self) -> None:
        # The reader of the output has ended: end in order, as after a signal. The console would end the process from within a task.
        with contextlib.suppress(SystemExit):
            super().on_broken_pipe()
        signal.raise_signal(signal.SIGTERM)


def console_of(quiet: bool) -> Console:
    """Return the console of a demonstration."""
    console = _Screen(highlight=False, quiet=quiet)
    if not console.is_terminal:
        console.width = WIDTH
    return console


def azure() -> Emulator:
    """Return Azure's metadata service for the machines, without planned events."""
    vms = [{"name": node, "scope": "set", "host": f"host-{node}", "fault_domain": int(domain)} for node, domain in NODES.items()]
    return Emulator(scenario_of({"vms": vms, "imds": {"rate": 1000, "first_call": "PT0S"}}))


@dataclass
class Story:
    """The times of each node's stages, in seconds since the beginning."""

    console: Console
    began: float = field(default_factory=time.monotonic)
    at: dict[str, dict[str, float]] = field(default_factory=lambda: {node: {} for node in NODES})
    down: set[str] = field(default_factory=set)
    restored: dict[str, float] = field(default_factory=dict)
    most_domains: int = 0
    unprepared: list[str] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    def tell(self, node: str, what: str, text: str = "") -> None:
        """Print a line and record the stage. After the notice, the first time of each stage counts, and the last one of `restored`."""
        stages = self.at[node]
        if what == "notice" or (what in STAGES and "notice" in stages):
            stages[what] = self.now if what == "restored" else stages.get(what, self.now)
        if what == "impact" and "prepared" not in stages:
            self.unprepared.append(node)
        if what in ("prepared", "restored"):
            self.restored[node] = self.now if what == "restored" else -CATCH_UP
            self.down.add(node) if what == "prepared" else self.down.discard(node)
            self.most_domains = max(self.most_domains, len({NODES[each] for each in self.down}))
        self.say(f"{node} [dim](domain {NODES[node]})[/]  {what}{f'  [dim]{text}[/]' if text else ''}")

    def say(self, text: str) -> None:
        """Print a line with the time."""
        self.console.print(f"[dim]{self.now:6.1f} s[/]  {text}")

    def next_chapter(self) -> None:
        """Forget the stages of the last chapter."""
        self.at = {node: {} for node in NODES}

    @property
    def behind(self) -> int:
        """Number of nodes that catch up."""
        return sum(self.now < at + CATCH_UP for at in self.restored.values())

    @property
    def done(self) -> bool:
        """True if each node has passed all stages."""
        return all(set(stages) >= set(STAGES) for stages in self.at.values())


class Database:
    """The emulated database of the machines: reads are slower while nodes are away, and more so while others send them what they missed."""

    def __init__(self, story: Story) -> None:
        self._story = story
        self._runner = web.ServerRunner(web.Server(self._read, access_log=None), shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen, and return host and port."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"127.0.0.1:{self._runner.addresses[0][1]}"

    async def close(self) -> None:
        """Stop."""
        await self._runner.cleanup()

    async def _read(self, _: web.BaseRequest) -> web.StreamResponse:
        typical = READ + AWAY * len(self._story.down) + BEHIND * self._story.behind
        await asyncio.sleep(typical * random.uniform(1.0, 1.3))
        return web.Response(text="a row")


class Node:
    """One machine: a lease keeper, an agent process, and the diary that its hooks write."""

    def __init__(self, name: str, system: System, imds: Emulator, story: Story, probed: str) -> None:
        """probed: host and port of the service that the agent may probe."""
        self.name, self._system, self._imds, self._story, self._probed = name, system, imds, story, probed
        self._folder = system.folder / name
        # The agent refuses what others can change, and the user's umask may allow that.
        self._folder.mkdir(mode=0o700)
        self._diary = self._folder / "diary"
        self._diary.touch()
        self._read = 0
        self._serves: bool | None = None
        self._agent = Child(self._folder / "agent.log")
        self._tables = HttpTables.from_connection_string(system.storage)
        self._keeper = LeaseKeeper("db", name, self._tables, tenant="demo", domain=NODES[name])

    async def start(self) -> None:
        """Join the fleet, and start the agent."""
        self._keeper.start()
        made = {"scopes": ["agent"], "fleet": "db", "node": self.name}
        key = await self._system.call("POST", "tenants/demo/keys", made, key=ADMIN_KEY)
        hooks = {kind: {"command": ["sh", "-c", HOOK.format(kind=kind, diary=self._diary)]} for kind in ("prepare", "restore", "verify")}
        mark = self._folder / "restored"
        hooks["verify"]["command"][2] += f"; touch {mark}"
        hooks["caught_up"] = {"command": ["sh", "-c", CAUGHT_UP.format(mark=mark, seconds=CATCH_UP)]}
        settings = {
            "state": str(self._folder / "state"),
            "node": {"name": self.name, "scope": "set", "location": "westeurope", "fault_domain": NODES[self.name]},
            "imds": {"url": self._imds.url(self.name), "poll_seconds": 0.5},
            "app": {"url": self._system.url, "fleet": "db"},
            "maintenance": {"lead_seconds": 10},
            "health": {"enabled": False},
            "probe": {"hosts": [self._probed]},
            "hooks": hooks,
        }
        config = self._folder / "agent.yaml"
        # JSON is YAML.
        config.touch(mode=0o600)
        config.write_text(json.dumps(settings))
        environment = {**os.environ, "TOCSIN_KEY": key["key"]}
        await self._agent.start("shared.cli", "agent", "--config", str(config), "--log", "json", environment=environment)

    def look(self) -> None:
        """Print changes of leases and hooks. Raises `DemoFailed` if the agent has ended."""
        if self._agent.ended:
            raise DemoFailed(f"the agent of {self.name} ended; its log is {self._agent.log}")
        serves = bool(self.held)
        # A node without partitions at its notice has already handed off its leases.
        stages = self._story.at[self.name]
        without = not serves and "notice" in stages and "leases left" not in stages
        if without or (self._serves is not None and serves != self._serves):
            self._story.tell(self.name, "serves again" if serves else "leases left")
        # A node that has had no partition yet is not worth a line.
        if serves or self._serves is not None:
            self._serves = serves
        lines = self._diary.read_text().splitlines()
        for line in lines[self._read :]:
            kind = line.split()[0]
            if kind in ("prepare", "verify"):
                self._story.tell(self.name, {"prepare": "prepared", "verify": "restored"}[kind], "by its hook")
        self._read = len(lines)

    async def stop(self) -> None:
        """End the agent and the keeper."""
        await self._agent.stop()
        await asyncio.to_thread(self._keeper.stop)
        self._tables.close()

    @property
    def held(self) -> int:
        """Number of partitions that the node owns."""
        return len(self._keeper.owned())


class DemoFleet:
    """The fleet `db` and its machines, as an async context manager that ends them."""

    def __init__(self, system: System, imds: Emulator, story: Story) -> None:
        self._system, self._imds, self._story = system, imds, story
        self._nodes: list[Node] = []
        self._planned: dict[str, list[str]] = {}
        self._database = Database(story)

    async def __aenter__(self) -> Self:
        host = await self._database.start()
        maintenance = {**FLEET["maintenance"], "probe": {**PROBE, "url": f"http://{host}/read"}}
        await self._system.call("PUT", "fleets/db", {**FLEET, "maintenance": maintenance})
        self._nodes += [Node(name, self._system, self._imds, self._story, host) for name in NODES]
        try:
            await asyncio.gather(*(node.start() for node in self._nodes))
        except BaseException:
            await self.__aexit__()
            raise
        self._imds.listen(self._tell)
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(node.stop() for node in self._nodes))
        await self._database.close()

    async def callers(self, name: str = "update") -> dict[str, dict[str, Any]]:
        """Return what callers noticed of the events planned under this name, once no agent probes for them any more."""
        ids = {self._imds.event(each).shown.id.lower(): each for each in self._planned if each.startswith(f"{name}-")}
        until = time.monotonic() + LONGEST_PROBE
        while True:
            found = (await self._system.call("GET", "fleets/db/maintenance/events"))["items"]
            probes = {ids[each["event_id"]]: each["probe"] for each in found if each["event_id"] in ids and "probe" in each}
            if len(probes) == len(ids) and all(probe["verdict"] != "pending" for probe in probes.values()):
                return dict(sorted(probes.items()))
            if time.monotonic() > until:
                raise DemoFailed(f"agents still probe after {LONGEST_PROBE:g} s")
            await asyncio.sleep(0.5)

    @property
    def whole(self) -> bool:
        """True if every partition is served, and each node serves at least one."""
        return sum(node.held for node in self._nodes) == PARTITIONS and all(node.held for node in self._nodes)

    def look(self) -> None:
        """Print changes of all nodes. Raises `DemoFailed` if an agent has ended."""
        for node in self._nodes:
            node.look()

    async def until(self, done: Callable[[], bool], seconds: float) -> None:
        """Print changes until `done()` is True. Raises `DemoFailed` after `seconds`."""
        until = time.monotonic() + seconds
        while not done():
            if time.monotonic() > until:
                raise DemoFailed(f"this takes longer than {seconds:g} s; the logs show more")
            await asyncio.sleep(0.1)
            self.look()

    def plan(self, name: str, nodes: list[str], **fields: Any) -> None:
        """Let Azure plan an event for machines, under a new name. fields: those of the emulator's scenarios."""
        self._planned[name] = nodes
        self._imds.do({"event": {"name": name, "vms": nodes, **fields}})

    def update(self, name: str = "update", duration: int = 3) -> None:
        """Let Azure plan a host update, one fault domain after the other, with long notice. Early approval makes it start early."""
        for domain in sorted(set(NODES.values())):
            nodes = [node for node, at in NODES.items() if at == domain]
            self.plan(f"{name}-{domain}", nodes, type="Freeze", duration=duration, notice=f"PT{5 + 5 * int(domain)}M", settles="PT2S")

    def over(self, name: str) -> bool:
        """Return True if all events planned under this name, or under it and a domain, have ended."""
        names = {each for each in self._planned if each == name or each.startswith(f"{name}-")}
        return names <= {event.name for event in self._imds.world.ended}

    def _tell(self, line: Happening) -> None:
        stages = {"scheduled": "notice", "approved": "approved", "impact-began": "impact"}
        # Print what hooks wrote before this line first.
        self.look()
        if line.kind in stages and line.event in self._planned:
            for node in self._planned[line.event] if line.kind != "impact-began" or not line.vm else [line.vm]:
                self._story.tell(node, stages[line.kind], line.event)
