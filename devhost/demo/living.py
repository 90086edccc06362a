"""`python -m devhost.demo.living`: a small living system to look at in the dashboard, until Ctrl-C.

Events come and go, to receivers of which one is ill and one refuses; five nodes share the partitions of a fleet and take checkpoints in
turns, one of them their primary; every few minutes an emulated Azure updates their hosts, and an agent on each node sees to it. All parts
are the real ones, on a storage of their own; nothing is left behind. `OTEL_...` settings go to the app: a collector gets its traces.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from rich.console import Console

from shared.checkpoints import CheckpointParticipant, Health, TurnLost
from shared.emulator import Emulator, scenario_of

from .maintenance import FLEET, NODES, PARTITIONS, Node, Story
from .system import ADMIN_KEY, DEMO_KEY, DemoFailed, System

PRIMARY: Final = "n1"
EVENTS_PER_SECOND: Final = 10
PLANNED: Final = 2_000
"""Events over the first hour, so that there is something to come."""
CHANNELS: Final = {"default": 1.0, "flaky": 0.12, "broken": 0.004}
"""Channel -> which share of events goes to it, the rest to the first. `flaky` fails every third time, `broken` refuses for good."""
FIRST_UPDATE: Final = 15.0
PAUSE: Final = 150.0
"""Seconds before the first host update, and from the end of one round to the next."""
CHECKPOINT: Final = 6.0
"""Seconds that a checkpoint takes."""
SEEN: Final = ("delivered", "retried", "dead", "checkpoints", "updates")
WARM_UP: Final = 300.0


class Life:
    """What has happened so far, and all that goes on."""

    def __init__(self, system: System, imds: Emulator, console: Console) -> None:
        self.system, self.imds, self.console = system, imds, console
        self.seen: Counter[str] = Counter()
        self.story = Story(console=console, quiet=console.quiet)
        self.nodes: list[Node] = []
        self._applied = 0

    async def go_on(self) -> None:
        """All of it at once, until cancelled. Raises `DemoFailed`, and whatever else ends a part of it."""
        await self.system.call("PUT", "fleets/db", {**FLEET, "checkpoints": {"timeout": {"initial": "PT1M"}}})
        # Made in a row: each is ended, whichever could not be started.
        self.nodes += [Node(name, self.system, self.imds, self.story) for name in NODES]
        try:
            await asyncio.gather(*(node.start() for node in self.nodes))
            async with asyncio.TaskGroup() as group:
                group.create_task(self._schedule())
                group.create_task(self._events())
                group.create_task(self._watch())
                group.create_task(self._updates())
                for name in NODES:
                    group.create_task(self._replica(name))
        finally:
            await asyncio.gather(*(node.stop() for node in self.nodes))

    async def _schedule(self) -> None:
        spread = [{"delay": f"PT{random.randint(60, 3600)}S", "payload": {"planned": number}} for number in range(PLANNED)]
        await self.system.call("POST", "events/batch", spread)
        await self.system.call("PUT", "schedules/heartbeat", {"every": "PT10S", "payload": {"beat": True}})
        nightly = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "payload": {"report": "daily"}}
        await self.system.call("PUT", "schedules/nightly", nightly)

    async def _events(self) -> None:
        number = 0
        while True:
            batch: list[dict[str, Any]] = []
            for _ in range(EVENTS_PER_SECOND):
                number += 1
                channel = next((name for name, share in reversed(CHANNELS.items()) if random.random() < share), "default")
                # A refused event early, so that there is something to redrive from the start.
                channel = "broken" if number == 3 else "flaky" if number == 4 else channel
                retry = {"attempts": 5, "first": "PT2S"}
                batch.append({"delay": f"PT{random.randint(1, 60)}S", "payload": {"order": number}, "channel": channel, "retry": retry})
            await self.system.call("POST", "events/batch", batch)
            await asyncio.sleep(1)

    async def _watch(self) -> None:
        while True:
            for node in self.nodes:
                node.look()
            await asyncio.sleep(0.2)

    async def _updates(self) -> None:
        await asyncio.sleep(FIRST_UPDATE)
        self.imds.listen(lambda line: self.story.tell(line.vm or "all", line.kind) if line.kind == "impact-began" and line.vm else None)
        while True:
            self.seen["rounds"] += 1
            for domain in sorted(set(NODES.values())):
                name = f"update-{self.seen['rounds']}-{domain}"
                vms = [node for node, at in NODES.items() if at == domain]
                notice = f"PT{5 + 5 * int(domain)}M"
                event = {"name": name, "vms": vms, "type": "Freeze", "duration": 5, "notice": notice, "settles": "PT2S"}
                self.imds.do({"event": event})
            names = [f"update-{self.seen['rounds']}-{domain}" for domain in set(NODES.values())]
            await self.imds.until(lambda world, names=names: set(names) <= {each.name for each in world.ended}, timeout=900)  # type: ignore[misc]
            self.seen["updates"] += 1
            await asyncio.sleep(PAUSE)

    async def _replica(self, name: str) -> None:
        def health() -> Health:
            self._applied += 1
            return Health("primary" if name == PRIMARY else "secondary", term=1, applied=self._applied)

        async with CheckpointParticipant("db", name, self.system.url, DEMO_KEY, health=health) as participant:
            while True:
                try:
                    async with participant.turn() as turn:
                        sequence = self._applied
                        await asyncio.sleep(CHECKPOINT)
                        turn.result(sequence, f"/backup/{name}-{sequence}", random.randint(10**8, 10**9))
                    self.seen["checkpoints"] += 1
                except TurnLost:
                    # Maintenance goes first. Its next turn comes.
                    self.seen["turns lost"] += 1


class Receivers:
    """Where the deliveries go."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self._runner = web.ServerRunner(web.Server(self._take, access_log=None), shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen; the address, with a slash at its end."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def close(self) -> None:
        """Stop."""
        await self._runner.cleanup()

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        await request.read()
        self.seen[request.path] += 1
        self.seen["retried"] += request.headers.get("ce-tocsinattempt", "1") != "1"
        refused = 400 if request.path == "/broken" else 503 if request.path == "/flaky" and self.seen["/flaky"] % 3 == 1 else 0
        self.seen["delivered" if not refused else "failed"] += 1
        self.seen["dead"] += refused == 400
        return web.Response(status=refused or 204)


async def live(folder: Path, console: Console, port: int, until_seen: bool) -> Counter[str]:
    """Go on until cancelled, or until everything has been seen once. Raises `DemoFailed`."""
    vms = [{"name": node, "scope": "set", "host": f"host-{node}", "fault_domain": int(domain)} for node, domain in NODES.items()]
    scenario = scenario_of({"vms": vms, "imds": {"rate": 1000, "first_call": "PT0S"}})
    receivers = Receivers()
    url = await receivers.start()
    settings = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    settings |= {"TOCSIN_RECEIVER": url, "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8"}
    try:
        async with System(folder, port, **settings) as system, Emulator(scenario) as imds:
            for name in list(CHANNELS)[1:]:
                await system.call("PUT", f"tenants/demo/channels/{name}", {"type": "http", "url": url + name}, key=ADMIN_KEY)
            life = Life(system, imds, console)
            console.print(f"Dashboard  {system.url}/api/dashboard?tenant=demo&fleet=db")
            console.print(f"Keys       {ADMIN_KEY} (everything), {DEMO_KEY} (tenant demo)")
            console.print(f"Fleet db   {len(NODES)} nodes, {PARTITIONS} partitions; the first host update in {FIRST_UPDATE:g} s")
            console.print("Ctrl-C ends it, and leaves nothing behind.")
            going = asyncio.create_task(life.go_on())
            began = time.monotonic()
            try:
                while not going.done():
                    total = receivers.seen + life.seen
                    if until_seen and all(total[each] for each in SEEN):
                        return total
                    if until_seen and time.monotonic() - began > WARM_UP:
                        raise DemoFailed(f"not all of it was seen in {WARM_UP:g} s: {dict(total)}")
                    await asyncio.wait([going], timeout=0.5)
                await going
            finally:
                going.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await going
        return receivers.seen + life.seen
    finally:
        await receivers.close()


async def _until_told(folder: Path, console: Console, port: int, until_seen: bool) -> Counter[str] | None:
    """The same; None when a signal ended it."""
    task = asyncio.create_task(live(folder, console, port, until_seen))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None


def main(arguments: list[str] | None = None) -> int:
    """The command; its exit code."""
    parser = argparse.ArgumentParser(prog="python -m devhost.demo.living", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 0), help="the app's port; a free one unless told")
    parser.add_argument("--until-seen", action="store_true", help="end when everything has been seen once, and print it as JSON")
    given = parser.parse_args(arguments)
    console = Console(highlight=False, quiet=given.until_seen)
    folder = Path(tempfile.mkdtemp(prefix="tocsin-demo-"))
    try:
        seen = asyncio.run(_until_told(folder, console, given.port, given.until_seen))
    except* DemoFailed as errors:
        print(f"The demonstration ended: {errors.exceptions[0]}. Logs are in {folder}", file=sys.stderr)
        sys.exit(1)
    shutil.rmtree(folder)
    if seen is not None and given.until_seen:
        print(json.dumps(seen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
