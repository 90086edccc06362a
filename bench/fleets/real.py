"""A small part of the model for real: one fleet's agents and keepers on threads, the emulator of Scheduled Events, a devhost, Azurite.

Agents run their own hooks as processes and call the app over HTTP. Keepers call Azurite themselves; the app's requests go through a proxy
that counts them. The model of the same fleet, on virtual time, gives the figures that stand beside.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shared.core.clock import steady
from shared.extras.emulator import Emulator, scenario_of
from shared.extras.emulator.model import Happening
from shared.leases.node.keeper import LeaseKeeper
from shared.maintenance.agent.config.config import AppSettings, Config
from shared.maintenance.agent.config.settings import AgentSettings
from shared.maintenance.agent.hooks.runner import Hook
from shared.maintenance.agent.imds.client import API_VERSION
from shared.maintenance.agent.imds.identity import NodeSettings
from shared.maintenance.agent.model import HookKind
from shared.maintenance.agent.service import Agent
from shared.maintenance.agent.timings import LEAD, TICK
from shared.whatif.fleet.agents import HOOKS, IMPACT, TAKES

from ..leases.azurite import Line
from ..report import Figure
from ..tools.stage import KEY, TENANT, Host, Run, devhost, emulator
from ..tools.throttle import Throttling, start
from .figures import APPROVED_WITHIN, rate
from .world import DOMAINS, LOCATIONS, REACTION, WARM, Outcome, Wave, play

FLEET: Final = "cluster-000"
STARTS_WITHIN: Final = 120.0
"""Seconds until all agents have reported and the partitions are shared out."""
SETTLES: Final = 15.0
"""Seconds after that for which scanners still look at the partitions more often."""
ENDS_WITHIN: Final = 90.0
"""Seconds after NotBefore until no node has an open event."""
LISTED: Final = 10.0
"""Seconds from the start of an event until it is no longer listed."""


@dataclass(frozen=True, slots=True)
class Part:
    """A fleet and its wave. Times in seconds. quiet: measured before the wave. notice: from the announcement to NotBefore."""

    nodes: int = 50
    quiet: float = 20.0
    notice: float = 45.0
    seed: int = 1

    @property
    def partitions(self) -> int:
        """Two for each node."""
        return 2 * self.nodes

    @property
    def hit(self) -> list[int]:
        """The nodes of fault domain 0 in each region, as in the model."""
        return [number for number in range(self.nodes) if number // LOCATIONS % DOMAINS == 0]

    def model(self, length: float) -> Wave:
        """Return the same fleet and wave on virtual time."""
        return Wave(
            fleets=1,
            sample=1,
            nodes=self.nodes,
            partitions=self.partitions,
            announced=self.quiet,
            notice=self.notice,
            listed=LISTED,
            length=self.quiet + length,
            instances=1,
            seed=self.seed,
        )


@dataclass(slots=True)
class Seen:
    """The results of a run. app, keepers, reports: requests a second while quiet, and during the wave."""

    wave: float = 0.0
    """Seconds of the wave: from the announcement until each node is in service again."""
    app: list[float] = field(default_factory=list)
    keepers: list[float] = field(default_factory=list)
    reports: list[float] = field(default_factory=list)
    approved: list[float] = field(default_factory=list)
    """Seconds from the time at which a node prepares to its approval, sorted."""
    unapproved: int = 0
    unfinished: int = 0
    """Nodes that were not in service again at the end."""
    alarms: Counter[str] = field(default_factory=Counter)
    lost: int = 0
    cpu: float = 0.0
    """Share of a core that agents, keepers, emulator and proxy have used together."""


class FreezableLine(Line):
    """A server's way to the tables. While its machine is frozen, its requests wait."""

    frozen_until = 0.0

    def _through(self, kind: str) -> None:
        while (left := self.frozen_until - steady()) > 0:
            time.sleep(left)
        Line._through(self, kind)


class RealFleet:
    """The agents and keepers of one fleet, in this process."""

    def __init__(self, part: Part, connection: str, folder: Path) -> None:
        self._part, self._connection, self._folder = part, connection, folder
        self._chance = random.Random(part.seed)
        self.made: Counter[str] = Counter()
        self.keepers: dict[str, tuple[LeaseKeeper, FreezableLine]] = {}
        self.agents: dict[str, Agent] = {}
        self._threads: list[threading.Thread] = []

    def start(self, number: int, imds: str, app: str) -> None:
        """Start the node's keeper and agent."""
        name = f"n{number:03d}"
        line = FreezableLine(self._connection, self.made)
        keeper = LeaseKeeper(FLEET, name, line, tenant=TENANT)
        self.keepers[name] = keeper.start(), line
        takes: dict[HookKind, float] = {kind: self._chance.uniform(*span) for kind, span in TAKES.items()}
        settings = AgentSettings("", hooks={kind: HOOKS[kind] for kind in takes}, central=True, fleet=FLEET)
        config = Config(
            state=self._folder / name,
            node=NodeSettings(name=name),
            settings=settings,
            hooks={kind: Hook(("sleep", f"{span:.2f}"), deadline=HOOKS[kind]) for kind, span in takes.items()},
            imds=imds,
            api_version=API_VERSION,
            poll=TICK,
            app=AppSettings(app, FLEET, KEY),
            health=None,
        )
        agent = self.agents[name] = Agent(config)
        thread = threading.Thread(target=agent.run, name=f"agent-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def freeze(self, name: str) -> None:
        """Let the keeper's requests wait for the time of an impact. The agent goes on, so it learns of the impact by documents alone."""
        self.keepers[name][1].frozen_until = steady() + IMPACT

    def settled(self) -> bool:
        """Return true when each agent has reported, and the partitions are shared out evenly."""
        shares = [len(keeper.owned()) for keeper, _ in self.keepers.values()]
        return sum(shares) == self._part.partitions and max(shares) - min(shares) <= 1 and self.reports() >= len(shares)

    def served(self) -> int:
        """Return the number of partitions with an owner."""
        return sum(len(keeper.owned()) for keeper, _ in self.keepers.values())

    def reports(self) -> int:
        """Return the reports that were sent so far, with an answer or without."""
        text = "\n".join(agent.figures.text() for agent in self.agents.values())
        return round(sum(map(float, re.findall(r"^tocsin_agent_reports_total\S* (\S+)$", text, re.MULTILINE))))

    def busy(self) -> int:
        """Return the number of nodes that an event keeps out of service."""
        return sum(not agent.health().in_service for agent in self.agents.values())

    def end(self) -> None:
        """End all threads, all at once."""
        for agent in self.agents.values():
            agent.stop()
        stops = [threading.Thread(target=keeper.stop) for keeper, _ in self.keepers.values()]
        for thread in stops:
            thread.start()
        for thread in (*stops, *self._threads):
            thread.join(60)


async def measure(run: Run) -> list[Figure]:
    """Play the wave, and its model after it."""
    part = run.pick(Part(), Part(nodes=18))
    seen = await real(part, lambda what, done: run.report_progress(f"{part.nodes} agents and keepers: {what}", done, 5))
    run.report_progress("the model of the same fleet", 4, 5)
    return figures_of(part, seen, await asyncio.to_thread(play, part.model(seen.wave)))


async def real(part: Part, progress: Callable[[str, float], None] = lambda what, done: None) -> Seen:
    """Run the fleet through its wave. Raises TimeoutError if it does not start."""
    seen = Seen()
    vms = [
        {
            "name": f"n{number:03d}",
            "scope": f"region-{number % LOCATIONS}",
            "location": f"region-{number % LOCATIONS}",
            "fault_domain": number // LOCATIONS % DOMAINS,
        }
        for number in range(part.nodes)
    ]
    async with AsyncExitStack() as stack:
        azurite = stack.enter_context(emulator())
        counted = Throttling(0.0)
        ports = dict(re.findall(r"(Table)Endpoint=http://127\.0\.0\.1:(\d+)/", azurite.connection_string))
        runner, port = await start(int(ports["Table"]), counted, 1)
        stack.push_async_callback(runner.cleanup)
        host = await stack.enter_async_context(devhost(azurite.connection_string.replace(f":{ports['Table']}/", f":{port}/")))
        imds = await stack.enter_async_context(Emulator(scenario_of({"vms": vms, "imds": {"rate": 1000}})))
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        body = {"partitions": part.partitions, "servers": {"minimum": max(1, part.nodes // 2)}}
        await call(host, "PUT", f"fleets/{FLEET}", body)
        fleet = RealFleet(part, azurite.connection_string, folder)
        stack.push_async_callback(asyncio.to_thread, fleet.end)

        def freeze(happening: Happening) -> None:
            if happening.kind == "impact-began":
                fleet.freeze(happening.vm)

        imds.listen(freeze)
        progress("all start", 0)
        for number in range(part.nodes):
            fleet.start(number, imds.url(f"n{number:03d}"), host.url)
            await asyncio.sleep(0.05)
        await until(fleet.settled, STARTS_WITHIN, "the partitions are shared out, and all agents have reported")
        await asyncio.sleep(SETTLES)
        progress("quiet", 1)
        before, cpu = (time.monotonic(), counted.passed, requests(fleet), fleet.reports()), time.process_time()
        await asyncio.sleep(part.quiet)
        before = note(seen, before, (time.monotonic(), counted.passed, requests(fleet), fleet.reports()))
        progress("wave", 2)
        for number in part.hit:
            reaction = random.Random(f"{part.seed}/{number}").uniform(*REACTION)
            event = {"name": f"e{number:03d}", "vms": [f"n{number:03d}"], "duration": round(IMPACT), "notice": f"PT{part.notice:g}S"}
            imds.do({"event": event | {"delay": f"PT{reaction:.1f}S", "impact": f"PT{IMPACT:g}S", "settles": f"PT{LISTED:g}S"}})
        names = [f"e{number:03d}" for number in part.hit]
        with suppress(TimeoutError):
            over = part.notice + ENDS_WITHIN
            await until(lambda: all(imds.event(name).ended_at for name in names) and not fleet.busy(), over, "the wave is over")
        before = note(seen, before, (time.monotonic(), counted.passed, requests(fleet), fleet.reports()))
        seen.cpu = (time.process_time() - cpu) / (part.quiet + seen.wave)
        progress("figures", 3)
        seen.unfinished = fleet.busy()
        await rest(seen, part, fleet, host, imds)
    return seen


def requests(fleet: RealFleet) -> int:
    """Return the requests of all keepers so far."""
    return fleet.made["get"] + fleet.made["query"] + fleet.made["write"]


type Counted = tuple[float, int, int, int]
"""The time in seconds, and the requests of the app, requests of keepers, and reports so far."""


def note(seen: Seen, before: Counted, after: Counted) -> Counted:
    """Note the rates between two moments. Return the later one."""
    seen.wave = after[0] - before[0]
    for found, one, two in zip((seen.app, seen.keepers, seen.reports), before[1:], after[1:], strict=True):
        found.append((two - one) / seen.wave)
    return after


async def rest(seen: Seen, part: Part, fleet: RealFleet, host: Host, imds: Emulator) -> None:
    """Note the approvals, alarms and owners at the end."""
    for number in part.hit:
        event = imds.event(f"e{number:03d}")
        approved = event.approved_at
        if approved is None:
            seen.unapproved += 1
        else:
            seen.approved.append((approved - event.shown.not_before) / 1000 + LEAD)
    seen.approved.sort()
    listed = await call(host, "GET", f"fleets/{FLEET}/maintenance/events?limit=1000")
    seen.alarms.update({alarm for event in listed["items"] for alarm in event["alarms"]})
    stale = await call(host, "GET", f"fleets/{FLEET}/leases/stale")
    seen.alarms.update(alarm["alarm"] for alarm in stale["alarms"])
    # A hand-off that is under way ends within seconds.
    try:
        await until(lambda: fleet.served() >= part.partitions, 30.0, "all partitions have owners")
    except TimeoutError:
        seen.lost = part.partitions - fleet.served()


async def until(satisfied: Callable[[], bool], most: float, what: str) -> None:
    """Wait for at most so many seconds. Raises TimeoutError."""
    ends = time.monotonic() + most
    while not satisfied():
        if time.monotonic() > ends:
            raise TimeoutError(f"not after {most:.0f} s: {what}")
        await asyncio.sleep(0.25)


async def call(host: Host, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    """Call the API with the tenant's key. Raises RuntimeError for an error."""
    headers = {"authorization": f"Bearer {KEY}"}
    async with host.session.request(method, f"{host.url}/api/v1/{path}", json=body, headers=headers) as answer:
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {(await answer.text())[:300]}")
        return await answer.json()


def figures_of(part: Part, seen: Seen, model: Outcome) -> list[Figure]:
    """Return the figures, the model's in the notes."""
    wave = model.wave
    spans = ((WARM, WARM + wave.announced), (WARM + wave.announced, WARM + wave.length))
    what = f"{part.nodes} agents, {part.nodes} keepers"
    figures: list[Figure] = []
    for phase, number in (("quiet", 0), ("wave", 1)):
        app = sum(rate(model.requests[who], *spans[number]) for who in ("agents", "scan"))
        keepers = rate(model.requests["keepers"], *spans[number])
        swept = f"model: {app:.1f} /s, without the scheduler's; sweeps come in bursts"
        reports = model.reports[phase] / (spans[number][1] - spans[number][0])
        figures += [
            Figure(f"{what}: reports, {phase}", seen.reports[number], "/s", note=f"model: {reports:.2f} /s"),
            Figure(f"{what}: requests of the app, {phase}", seen.app[number], "/s", note=swept),
            Figure(f"{what}: requests of keepers, {phase}", seen.keepers[number], "/s", note=f"model: {keepers:.1f} /s"),
        ]
    late, modelled = (found[-1] if found else None for found in (seen.approved, model.approved))
    middle, other = (f"p50 {found[len(found) // 2]:.1f}" if found else "none" for found in (seen.approved, model.approved))
    note_ = f"{middle} s, {len(seen.approved)} approved; model: {other} s, last {modelled or 0:.1f} s, {len(model.approved)} approved"
    name = f"{what}: last approval after the nodes begin to prepare"
    alarms, others = (", ".join(sorted(found)) or "none" for found in (seen.alarms, model.alarms))
    ended = f"{seen.wave:.0f} s after the announcement; {seen.cpu:.0%} of a core for agents, keepers, emulator and proxy"
    return [
        *figures,
        Figure(name, late, "s", "<=", APPROVED_WITHIN, note_),
        Figure(f"{what}: nodes without an approval", seen.unapproved, "", "==", 0, f"of {len(part.hit)}; model: {model.unapproved}"),
        Figure(f"{what}: nodes out of service at the end", seen.unfinished, "", "==", 0, ended),
        Figure(f"{what}: kinds of alarms", seen.alarms.total(), "", "==", 0, f"{alarms}; model: {others}"),
        Figure(f"{what}: partitions without an owner afterwards", seen.lost, "", "==", 0, f"of {part.partitions}"),
    ]
