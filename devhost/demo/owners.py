"""`python -m devhost.demo.owners`: events go to the owners of their keys, while servers are killed, and every counter is exact at the end.

Five servers share the partitions of a fleet. Each event adds one to the counter of its ordering key, at whichever server owns the key's
partition at that moment. OwnerServers are killed with SIGKILL and started again meanwhile. The exit code is 1 if a counter is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any, Final, Self

from aiohttp import web
from rich.console import Console
from rich.table import Table

from shared.leases import HttpTables
from shared.storage.ports import RowQuery

from .nodes import console_of
from .owner_server import FLEET, TABLE
from .running import Child, DemoFailed, run
from .system import ADMIN_KEY, System

SERVERS: Final = ("s1", "s2", "s3", "s4", "s5")
PARTITIONS: Final = 15
KEYS: Final = 10
LONGEST: Final = 300.0
"""Seconds after which the demonstration is given up."""
SETTINGS: Final[dict[str, Any]] = {
    "partitions": PARTITIONS,
    "profile": "fast",
    "limits": {"max_per_server": PARTITIONS, "moves_per_minute": 600, "drain": "PT1S"},
    "servers": {"minimum": 3},
}
BATCH: Final = 100


async def _free_port() -> int:
    server = web.ServerRunner(web.Server(lambda request: web.Response()))  # type: ignore[arg-type,return-value]
    await server.setup()
    await web.TCPSite(server, "127.0.0.1", 0).start()
    port = int(server.addresses[0][1])
    await server.cleanup()
    return port


class OwnerServers:
    """The five servers, as an async context manager that ends them."""

    def __init__(self, system: System, secret: str) -> None:
        self._environment = {**os.environ, "TABLES": system.storage, "CHANNEL_SECRET": secret}
        self._children = {name: Child(system.folder / f"{name}.log") for name in SERVERS}
        self._ports: dict[str, int] = {}

    async def __aenter__(self) -> Self:
        for name in SERVERS:
            self._ports[name] = await _free_port()
        try:
            await asyncio.gather(*(self.start(name) for name in SERVERS))
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.gather(*(child.stop() for child in self._children.values()))

    async def start(self, name: str) -> None:
        """Start a server, or start it again."""
        await self._children[name].start("devhost.demo.owner_server", name, str(self._ports[name]), environment=self._environment)

    async def kill(self, name: str) -> None:
        """Kill a server."""
        await self._children[name].kill()


async def demonstrate(folder: Path, console: Console, events: int, kills: int, seconds: float, as_json: bool) -> None:
    """Run the demonstration and print it. Raises `DemoFailed`, also if a counter is wrong."""
    async with System(folder) as system:
        await system.call("PUT", f"fleets/{FLEET}", SETTINGS)
        channel = {"type": "fleet", "fleet": FLEET, "path": "/add", "timeout": "PT5S"}
        made = await system.call("PUT", "tenants/demo/channels/owners", channel, key=ADMIN_KEY)
        tables = HttpTables.from_connection_string(system.storage)
        tables.ensure(TABLE, timeout=10)
        async with OwnerServers(system, made["secret"]) as servers:
            began = time.monotonic()
            console.print(f"five servers, {PARTITIONS} partitions; the app is at {system.url}")
            await _until(lambda: _served(system), "every partition has an owner")
            expected = await _post(system, events, seconds)
            console.print(f"{time.monotonic() - began:5.1f} s  {events} events for {KEYS} keys, over {seconds:g} s")
            for number in range(kills):
                await asyncio.sleep(seconds / (kills + 1))
                name = SERVERS[number % len(SERVERS)]
                await servers.kill(name)
                console.print(f"{time.monotonic() - began:5.1f} s  {name} is killed with SIGKILL")
                await asyncio.sleep(min(3.0, seconds / (kills + 1) / 2))
                await servers.start(name)
                console.print(f"{time.monotonic() - began:5.1f} s  {name} starts again")
            attempts = await _attempts(system, events)
            counted = await asyncio.to_thread(_counters, tables)
        tables.close()
    rows = {key: (expected[key], counted.get(key, 0)) for key in sorted(expected)}
    table = Table("key", "events", "counter", title="counters at the end")
    for key, (wanted, found) in rows.items():
        table.add_row(key, str(wanted), str(found))
    console.print(table)
    console.print(f"attempts: {', '.join(f'{count} {what}' for what, count in sorted(attempts.items()))}")
    if as_json:
        print(json.dumps({"counters": rows, "attempts": dict(attempts)}), flush=True)
    if wrong := [key for key, (wanted, found) in rows.items() if wanted != found]:
        raise DemoFailed(f"wrong counters: {', '.join(wrong)}")


async def _post(system: System, events: int, seconds: float) -> Counter[str]:
    """Post the events, which are due over this span, and return the number of each key."""
    expected: Counter[str] = Counter()
    wanted = []
    for number in range(events):
        key = f"customer-{number % KEYS}"
        expected[key] += 1
        delay = f"PT{1 + seconds * number / events:.3f}S"
        wanted.append({"id": f"add-{number}", "channel": "owners", "ordering_key": key, "delay": delay, "payload": {"key": key}})
    for first in range(0, events, BATCH):
        found = await system.call("POST", "events/batch", wanted[first : first + BATCH])
        if failed := [line for line in found["results"] if line["status"] >= 300]:
            raise DemoFailed(f"an event was refused: {failed[0]}")
    return expected


async def _until(done: Any, what: str) -> None:
    until = time.monotonic() + LONGEST
    while not await done():
        if time.monotonic() > until:
            raise DemoFailed(f"gave up after {LONGEST:g} s: it is not true yet that {what}")
        await asyncio.sleep(0.5)


async def _served(system: System) -> bool:
    return not (await system.call("GET", f"fleets/{FLEET}/routes"))["unowned"]


async def _event(system: System, number: int) -> dict[str, Any]:
    found: dict[str, Any] = await system.call("GET", f"events/add-{number}")
    return found


async def _attempts(system: System, events: int) -> Counter[str]:
    """Wait until every event is delivered, and return the outcomes of all attempts."""
    found: Counter[str] = Counter()
    left = set(range(events))

    async def all_delivered() -> bool:
        for number in sorted(left):
            event = await _event(system, number)
            if event["state"] in ("dead", "lapsed", "cancelled"):
                raise DemoFailed(f"event {event['id']} is {event['state']}: {event['attempts'][-1:]}")
            if event["state"] != "delivered":
                return False
            left.discard(number)
            found.update(attempt["outcome"] for attempt in event["attempts"])
        return True

    await _until(all_delivered, "every event is delivered")
    return found


def _counters(tables: HttpTables) -> dict[str, int]:
    found: dict[str, int] = {}
    for partition in range(PARTITIONS):
        page = tables.query(RowQuery(TABLE, f"p{partition}", first="key-", end="key.", cursor=None), timeout=10)
        found |= {row.rk.removeprefix("key-"): int(row.props["count"]) for row in page.rows}
    return found


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code."""
    about = "Deliver events to the owners of keys while servers are killed."
    parser = argparse.ArgumentParser(prog="python -m devhost.demo.owners", description=about)
    parser.add_argument("--events", type=int, default=600, help="number of events (default 600)")
    parser.add_argument("--kills", type=int, default=5, help="number of times that a server is killed (default 5)")
    parser.add_argument("--seconds", type=float, default=60.0, help="span over which the events are due (default 60)")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(arguments)
    console = console_of(given.json)
    code = run(lambda folder: demonstrate(folder, console, given.events, given.kills, given.seconds, given.json))
    return 130 if code is None else code


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(main())
