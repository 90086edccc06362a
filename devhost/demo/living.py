"""`python -m devhost.demo.living`: a small living system to watch in the dashboard, until Ctrl-C.

Events are delivered to receivers; one of them fails often and one refuses. Five nodes share the partitions of a fleet and take
checkpoints in turns; one of them is the primary. In turn, an emulated Azure updates their hosts, a receiver breaks down, an operator
drains a node, and a user restarts one. All parts are the real ones on their own storage; nothing is left behind. `OTEL_...` settings go
to the app, so that a collector gets its traces.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from rich.console import Console

from shared.checkpoints import CheckpointParticipant, Health, TurnLost

from .nodes import NODES, PARTITIONS, DemoFleet, Story, azure, console_of
from .running import DemoFailed, run
from .system import ADMIN_KEY, DEMO_KEY, System

PRIMARY: Final = "n1"
BATCH: Final = 50
EVERY: Final = 5.0
"""Events in a batch, and seconds between two batches. Each batch creates one or two shards that an instance serves while it waits for
their events, and an instance serves at most 24 shards: the same events in many small batches would be late."""
PLANNED: Final = 2_000
"""Events over the first hour, so that the dashboard shows coming events."""
CHANNELS: Final = {"default": 1.0, "flaky": 0.12, "broken": 0.004}
"""Share of events of each channel; the rest goes to the first. `flaky` fails every third time, `broken` always refuses."""
FIRST: Final = 10.0
PAUSE: Final = 20.0
"""Seconds before the first chapter, and between two chapters."""
LASTS: Final = 40.0
"""Seconds that a receiver is down, and a node drained."""
CHECKPOINT: Final = 6.0
"""Seconds that a checkpoint takes."""
SUMMARY: Final = 30.0
"""Seconds between two lines of figures."""
LONGEST: Final = 900.0
SEEN: Final = ("delivered", "retried", "dead", "checkpoints", "update", "outage", "drain", "restart")


class Receivers:
    """The receivers of the demonstration's channels."""

    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.down = False
        """True if `flaky` fails every time."""
        self._runner = web.ServerRunner(web.Server(self._take, access_log=None), shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen, and return the address with a slash at its end."""
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
        flaky = request.path == "/flaky" and (self.down or self.seen["/flaky"] % 3 == 1)
        refused = 400 if request.path == "/broken" else 503 if flaky else 0
        self.seen["delivered" if not refused else "failed"] += 1
        self.seen["dead"] += refused == 400
        return web.Response(status=refused or 204)


class Life:
    """The activities of the demonstration, and counts of what has happened."""

    def __init__(self, system: System, fleet: DemoFleet, story: Story, receivers: Receivers) -> None:
        self._system, self._fleet, self._story, self._receivers = system, fleet, story, receivers
        self._seen: Counter[str] = Counter()
        self._applied = 0

    @property
    def seen(self) -> Counter[str]:
        """Counts of what has happened, by name."""
        return self._seen + self._receivers.seen

    async def go_on(self) -> None:
        """Run all activities until cancelled. Raises `DemoFailed`, and other errors of the activities."""
        async with asyncio.TaskGroup() as group:
            for part in (self._schedule, self._events, self._watch, self._figures, self._chapters):
                group.create_task(part())
            for name in NODES:
                group.create_task(self._replica(name))

    async def _schedule(self) -> None:
        spread = [{"delay": f"PT{random.randint(60, 3600)}S", "payload": {"planned": number}} for number in range(PLANNED)]
        await self._system.call("POST", "events/batch", spread)
        await self._system.call("PUT", "schedules/heartbeat", {"every": "PT10S", "payload": {"beat": True}})
        nightly = {"cron": "30 2 * * *", "timezone": "Europe/Berlin", "payload": {"report": "daily"}}
        await self._system.call("PUT", "schedules/nightly", nightly)

    async def _events(self) -> None:
        number = 0
        while True:
            batch: list[dict[str, Any]] = []
            for _ in range(BATCH):
                number += 1
                channel = next((name for name, share in reversed(CHANNELS.items()) if random.random() < share), "default")
                # A refused event early, so that there is something to redrive from the start.
                channel = "broken" if number == 3 else "flaky" if number == 4 else channel
                retry = {"attempts": 5, "first": "PT2S"}
                delay = f"PT{random.uniform(6, 40):.3f}S"
                batch.append({"delay": delay, "payload": {"order": number}, "channel": channel, "retry": retry})
            await self._system.call("POST", "events/batch", batch)
            await asyncio.sleep(EVERY)

    async def _watch(self) -> None:
        while True:
            self._fleet.look()
            await asyncio.sleep(0.2)

    async def _figures(self) -> None:
        while True:
            await asyncio.sleep(SUMMARY)
            figures = (f"{each} {self.seen[each]}" for each in ("delivered", "retried", "dead", "checkpoints"))
            self._story.say(f"[dim]so far: {', '.join(figures)}[/]")

    async def _replica(self, name: str) -> None:
        def health() -> Health:
            self._applied += 1
            return Health("primary" if name == PRIMARY else "secondary", term=1, applied=self._applied)

        async with CheckpointParticipant("db", name, self._system.url, DEMO_KEY, health=health) as participant:
            while True:
                try:
                    async with participant.turn() as turn:
                        sequence = self._applied
                        await asyncio.sleep(CHECKPOINT)
                        turn.result(sequence, f"/backup/{name}-{sequence}", random.randint(10**8, 10**9))
                    self._seen["checkpoints"] += 1
                except TurnLost:
                    # Maintenance has priority. The replica gets another turn later.
                    self._seen["turns lost"] += 1

    # -- the chapters

    async def _chapters(self) -> None:
        chapters: dict[str, tuple[str, Callable[[str], Awaitable[None]]]] = {
            "update": ("Azure plans to update all hosts: watch Maintenance, and partitions that leave in time", self._update),
            "outage": ("the receiver of channel flaky breaks down: watch Now, its breaker opens and its events wait", self._outage),
            "drain": ("an operator drains n4: watch Partitions by server", self._drain),
            "restart": ("a user restarts n3 in the portal, which is approved at once: watch Maintenance", self._restart),
        }
        await asyncio.sleep(FIRST)
        while True:
            for name, (announced, chapter) in chapters.items():
                await self._fleet.until(lambda: self._fleet.whole, LONGEST)
                self._story.next_chapter()
                self._story.say(f"[bold]{announced}[/]")
                await chapter(f"{name}-{self._seen[name] + 1}")
                self._seen[name] += 1
                self._story.say(f"over; the next in {PAUSE:g} s")
                await asyncio.sleep(PAUSE)

    async def _update(self, name: str) -> None:
        self._fleet.update(name, duration=5)
        await self._fleet.until(lambda: self._fleet.over(name) and self._fleet.whole, LONGEST)

    async def _outage(self, _: str) -> None:
        self._receivers.down = True
        await asyncio.sleep(LASTS)
        self._receivers.down = False

    async def _drain(self, _: str) -> None:
        await self._system.call("POST", "fleets/db/nodes/n4/drain", {"note": "a new disk", "expires": "PT10M"})
        await asyncio.sleep(LASTS)
        await self._system.call("POST", "fleets/db/nodes/n4/undrain", {"note": "the disk is in"})

    async def _restart(self, name: str) -> None:
        self._fleet.plan(name, ["n3"], type="Reboot", source="User", duration=10, settles="PT2S")
        await self._fleet.until(lambda: self._fleet.over(name), LONGEST)


async def live(folder: Path, console: Console, port: int, until_seen: bool) -> None:
    """Run until cancelled; with `until_seen`, until everything has happened once, and print the counts. Raises `DemoFailed`."""
    receivers = Receivers()
    url = await receivers.start()
    settings = {name: value for name, value in os.environ.items() if name.startswith("OTEL_")}
    settings |= {"TOCSIN_RECEIVER": url, "TOCSIN_EGRESS_ALLOW": "127.0.0.0/8"}
    console.print("Starting storage, the app and five nodes.")
    story = Story(console)
    try:
        async with System(folder, port, **settings) as system, azure() as imds:
            for name in list(CHANNELS)[1:]:
                await system.call("PUT", f"tenants/demo/channels/{name}", {"type": "http", "url": url + name}, key=ADMIN_KEY)
            async with DemoFleet(system, imds, story) as fleet:
                _introduce(console, system)
                life = Life(system, fleet, story, receivers)
                going = asyncio.ensure_future(life.go_on())
                try:
                    began = time.monotonic()
                    while not going.done() and not (until_seen and all(life.seen[each] for each in SEEN)):
                        if until_seen and time.monotonic() - began > LONGEST:
                            raise DemoFailed(f"not all of it was seen in {LONGEST:g} s: {dict(life.seen)}")
                        await asyncio.wait([going], timeout=0.5)
                finally:
                    going.cancel()
                    # The error that ended it counts; the cancellation does not.
                    await asyncio.wait([going])
                if not going.cancelled():
                    going.result()
                if until_seen:
                    print(json.dumps(life.seen))
    finally:
        await receivers.close()


def _introduce(console: Console, system: System) -> None:
    console.print(f"""
Dashboard  {system.url}/api/dashboard?fleet=db
Key        {ADMIN_KEY} (everything), or {DEMO_KEY} (tenant demo)
App's log  {system.log} (the incident of an answer 500 is in it)
Command    .venv/bin/python -m shared.cli status --url {system.url} --key {DEMO_KEY}

Ten events a second, a fleet "db" of {len(NODES)} nodes with {PARTITIONS} partitions, a checkpoint every ten seconds or so.
Redrive a dead event, approve or hold a host update: it is all real. Something happens every minute; it is announced here.
Ctrl-C ends it, and leaves nothing behind.
""")


def main(arguments: list[str] | None = None) -> int:
    """Run the command and return its exit code. A signal usually ends it."""
    parser = argparse.ArgumentParser(prog="python -m devhost.demo.living", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--port", type=int, default=int(os.environ.get("PORT") or 0), help="the app's port (default: a free one)")
    parser.add_argument("--until-seen", action="store_true", help="end when everything has been seen once, and print it as JSON")
    given = parser.parse_args(arguments)
    return run(lambda folder: live(folder, console_of(given.until_seen), given.port, given.until_seen)) or 0


if __name__ == "__main__":
    sys.exit(main())
