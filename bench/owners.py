"""Measures fleet channels: deliveries to the owner of a partition beside an http channel, the look-ups, and the failover after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import re
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from devhost.demo.running import Child
from shared.core.clock import Millis, to_text
from shared.core.partition_hash import partition_of_key
from shared.storage.names import FLEETS

from .bodies import percentiles
from .report import Figure
from .tools import machine
from .tools.owner_receiver import OWNED
from .tools.stage import KEY, TENANT, Host, Run, chunks, devhost, emulator, payload
from .tools.throttle import Throttling, start

FLEET: Final = "owners"
SERVERS: Final = ("s1", "s2", "s3")
VICTIM: Final = "s2"
"""The server that is killed; the http channel delivers to `s1`."""
PARTITIONS: Final = 12
KEYS: Final = 60
PROFILE: Final = "fast"
WIDTH: Final = 20.0
"""Seconds over which the events are due."""
AHEAD: Final = 8.0
"""Seconds from the first POST of a turn to the first due time."""
KILLED_AFTER: Final = 4.0
"""Seconds from the first due time to the kill."""
SETTLES: Final = 1.5
"""Seconds after the last arrival in which deliveries are settled."""
LATE: Final[Millis] = 1_000
"""Milliseconds of lateness above which an event counts as delayed."""
STARTS_WITHIN: Final = 90.0
ARRIVES_WITHIN: Final = 120.0
FAILOVER: Final = 11.5
"""Seconds from a kill to the last delayed event, as `docs/explain/deliver-to-owner.md` says."""
ADMIN_KEY: Final = "local-admin-key"
CHANNELS: Final = ("http", "fleet")


@dataclass(frozen=True, slots=True)
class ChannelTurn:
    """The events of one channel over `WIDTH`. late: milliseconds of lateness. cpu: microseconds of the devhost for an event."""

    late: Sequence[float]
    cpu: float
    reads: int
    """Reads of the fleets' table by the app, if a proxy counts them."""


class OwnerProcesses:
    """The servers of the fleet, as processes. What they have taken is in their logs."""

    def __init__(self, folder: Path, connection: str, secret: str) -> None:
        self._environment = {**os.environ, "TABLES": connection, "CHANNEL_SECRET": secret}
        self._folder = folder
        self._logs: list[Path] = []
        self._children: dict[str, Child] = {}

    async def start(self, *names: str) -> None:
        """Start servers, and wait until they are ready. One that was killed gets a new log. Raises `TimeoutError`."""
        for name in names:
            self._logs.append(self._folder / f"{name}-{len(self._logs)}.log")
            child = self._children[name] = Child(self._logs[-1])
            await child.start("bench.tools.owner_receiver", FLEET, name, TENANT, environment=self._environment)
        ends = time.monotonic() + STARTS_WITHIN
        while not all(re.search("^ready$", child.log.read_text(), re.MULTILINE) for child in self._children.values()):
            if time.monotonic() > ends or any(child.ended for child in self._children.values()):
                raise TimeoutError("; ".join(f"{name}: {child.last_words()}" for name, child in self._children.items()))
            await asyncio.sleep(0.2)

    def port(self, name: str) -> int:
        """Return the port of a server that is ready."""
        return int(re.findall(r"^port (\d+)$", self._children[name].log.read_text(), re.MULTILINE)[0])

    def arrivals(self) -> dict[str, tuple[float, float]]:
        """Return for each event the time of its first arrival and its lateness, both in milliseconds."""
        found: dict[str, tuple[float, float]] = {}
        for log in self._logs:
            for event, at, due in re.findall(r"^arrived (\S+) (\S+) (\S+)$", log.read_text(), re.MULTILINE):
                if event not in found or float(at) < found[event][0]:
                    found[event] = float(at), float(at) - float(due)
        return found

    async def kill(self, name: str) -> None:
        """Kill a server with SIGKILL."""
        await self._children[name].kill()

    async def stop(self) -> None:
        """Stop all that run."""
        await asyncio.gather(*(child.stop() for child in self._children.values()))


async def measure(run: Run) -> list[Figure]:
    """Measure the two channels in turns, then the look-ups and the failover with an app whose requests are counted."""
    rounds, count, kills = run.pick((3, 2_000, 5), (1, 1_000, 2))
    steps = rounds + 1 + kills
    turns: dict[str, list[ChannelTurn]] = {name: [] for name in CHANNELS}
    run.report_progress("owners: three servers start", 0, steps)
    with emulator() as azurite:
        async with AsyncExitStack() as stack:
            async with devhost(azurite.connection_string) as host:
                servers = await stack.enter_async_context(_fleet(host, azurite.connection_string))
                for turn in range(rounds):
                    for name in CHANNELS if turn % 2 == 0 else CHANNELS[::-1]:
                        run.report_progress(f"owners: round {turn + 1}, {name} channel", turn + 0.5 * len(turns[name]), steps)
                        turns[name].append(await _turn(host, servers, name, count))
            counted = Throttling(0.0)
            [table] = re.findall(r"TableEndpoint=http://127\.0\.0\.1:(\d+)/", azurite.connection_string)
            runner, port = await start(int(table), counted, 1)
            stack.push_async_callback(runner.cleanup)
            async with devhost(azurite.connection_string.replace(f":{table}/", f":{port}/")) as host:
                reads: dict[str, int] = {}
                for number, name in enumerate(CHANNELS):
                    run.report_progress(f"owners: look-ups, {name} channel", rounds + 0.5 * number, steps)
                    reads[name] = (await _turn(host, servers, name, count, counted)).reads
                killed = []
                for number in range(kills):
                    run.report_progress(f"owners: a server is killed, {number + 1} of {kills}", rounds + 1 + number, steps)
                    killed.append(await failover(host, servers, count))
    return [*_compared(turns, count), _look_ups(reads, count), *_failovers(killed)]


@asynccontextmanager
async def _fleet(host: Host, connection: str) -> AsyncIterator[OwnerProcesses]:
    """Make the fleet and its channels, and run its servers. Raises `TimeoutError` unless every partition has an owner in time."""
    limits = {"max_per_server": PARTITIONS, "moves_per_minute": 600, "drain": "PT1S"}
    await _call(host, "PUT", f"fleets/{FLEET}", {"partitions": PARTITIONS, "profile": PROFILE, "limits": limits})
    channel = {"type": "fleet", "fleet": FLEET, "path": OWNED, "timeout": "PT5S"}
    made = await _call(host, "PUT", f"tenants/{TENANT}/channels/fleet", channel)
    with tempfile.TemporaryDirectory() as folder:
        servers = OwnerProcesses(Path(folder), connection, made["secret"])
        try:
            await servers.start(*SERVERS)
            plain = {"type": "http", "url": f"http://127.0.0.1:{servers.port('s1')}/plain", "timeout": "PT5S"}
            await _call(host, "PUT", f"tenants/{TENANT}/channels/http", plain)
            await _until_shared_out(host)
            yield servers
        finally:
            await servers.stop()


async def _until_shared_out(host: Host) -> None:
    ends = time.monotonic() + STARTS_WITHIN
    while not await _shared_out(host):
        if time.monotonic() > ends:
            raise TimeoutError("the partitions were not shared out in time")
        await asyncio.sleep(0.5)


async def _shared_out(host: Host) -> bool:
    owners = (await _call(host, "GET", f"fleets/{FLEET}/routes"))["owners"]
    return sorted(len(numbers) for numbers in owners.values()) == [PARTITIONS // len(SERVERS)] * len(SERVERS)


async def _call(host: Host, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
    headers = {"authorization": f"Bearer {ADMIN_KEY if path.startswith('tenants/') else KEY}"}
    async with host.session.request(method, f"{host.url}/api/v1/{path}", json=body, headers=headers) as answer:
        found = await answer.json(content_type=None)
        assert answer.status < 300, f"{method} {path}: {answer.status} {found}"
        return found


async def _post(host: Host, channel: str, count: int) -> tuple[dict[str, str], float]:
    """Post events that are due over `WIDTH`. Return the ordering key of each id, and the first due time in seconds since 1970."""
    first = time.time() + AHEAD
    headers = {"authorization": f"Bearer {KEY}", "content-type": "application/x-ndjson"}
    keys: dict[str, str] = {}
    for part in chunks(range(count), 500):
        lines = []
        for number in part:
            due = to_text(round(1000 * (first + WIDTH * number / count)))
            event = {"channel": channel, "ordering_key": _key(number), "due": due}
            lines.append(f'{json.dumps(event)[:-1]}, "payload": {payload(number)}}}')
        async with host.session.post(f"{host.url}/api/v1/events/batch", data="\n".join(lines), headers=headers) as answer:
            document = await answer.json()
        assert document.get("accepted") == len(part), str(document)[:500]
        keys |= {line["id"]: _key(number) for number, line in zip(part, document["results"], strict=True)}
    assert time.time() < first, "posting took longer than the events wait"
    return keys, first


def _key(number: int) -> str:
    return f"customer-{number % KEYS}"


async def _arrived(servers: OwnerProcesses, events: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Wait until all have arrived. Raises `TimeoutError`."""
    ends = time.monotonic() + WIDTH + AHEAD + ARRIVES_WITHIN
    while missing := len(events.keys() - (found := servers.arrivals()).keys()):
        if time.monotonic() > ends:
            raise TimeoutError(f"{missing} of {len(events)} events did not arrive in time")
        await asyncio.sleep(0.5)
    return {event: found[event] for event in events}


async def _turn(host: Host, servers: OwnerProcesses, channel: str, count: int, counted: Throttling | None = None) -> ChannelTurn:
    # Owners are looked up before the events are due too.
    reads = counted.reads[FLEETS] if counted else 0
    events, first = await _post(host, channel, count)
    await asyncio.sleep(max(0.0, first - 2.0 - time.time()))
    cpu = machine.cpu_seconds(host.pid)
    found = await _arrived(servers, events)
    await asyncio.sleep(SETTLES)
    used = (machine.cpu_seconds(host.pid) - cpu) / count * 1e6
    return ChannelTurn([late for _, late in found.values()], used, counted.reads[FLEETS] - reads if counted else 0)


def _compared(turns: Mapping[str, Sequence[ChannelTurn]], count: int) -> list[Figure]:
    """Return the figures of both channels, over all rounds."""
    figures = []
    for name, found in turns.items():
        p50, p99, most = percentiles([late for turn in found for late in turn.late])
        early = sum(late < 0 for turn in found for late in turn.late)
        note = f"{len(found)} x {count:,} events of {KEYS} keys over {WIDTH:g} s; max {most:.0f} ms"
        figures += [
            Figure(f"owners: lateness p50, {name} channel", p50, "ms", note=note),
            Figure(f"owners: lateness p99, {name} channel", p99, "ms"),
            Figure(f"owners: early, {name} channel", early, "", "==", 0),
            Figure(f"owners: CPU an event, {name} channel", statistics.median(turn.cpu for turn in found), "us", note="idle work included"),
        ]
    return figures


def _look_ups(reads: Mapping[str, int], count: int) -> Figure:
    most = "three requests at most, none within 2 s of a read"
    note = f"{reads['fleet']} reads of fleets for {count:,} events, {reads['http']} in the same time with the http channel; {most}"
    return Figure("owners: storage requests of the look-up an event", max(0, reads["fleet"] - reads["http"]) / count, "", "<=", 3, note)


@dataclass(frozen=True, slots=True)
class Failover:
    """A server was killed. delayed: of the events of its partitions, how many were over `LATE` late. takes: seconds until the last one."""

    delayed: int
    events: int
    takes: float
    others: Sequence[float]
    """Lateness of the other servers' events meanwhile, in milliseconds."""


async def failover(host: Host, servers: OwnerProcesses, count: int) -> Failover:
    """Kill a server while events are due, and wait until all have arrived. Then start it again, and wait until it has its share."""
    owned = set((await _call(host, "GET", f"fleets/{FLEET}/routes"))["owners"][VICTIM])
    events, first = await _post(host, "fleet", count)
    await asyncio.sleep(max(0.0, first + KILLED_AFTER - time.time()))
    killed = time.time() * 1000
    await servers.kill(VICTIM)
    found = await _arrived(servers, events)
    own = {event for event, key in events.items() if partition_of_key(key, PARTITIONS) in owned}
    delayed = [at for event, (at, late) in found.items() if event in own and at > killed and late > LATE]
    others = [late for event, (at, late) in found.items() if event not in own and at > killed]
    await servers.start(VICTIM)
    await _until_shared_out(host)
    return Failover(len(delayed), len(own), (max(delayed) - killed) / 1000 if delayed else 0.0, others)


def _failovers(found: Sequence[Failover]) -> list[Figure]:
    takes = sorted(each.takes for each in found)
    delayed, events = sum(each.delayed for each in found), sum(each.events for each in found)
    note = f"profile {PROFILE}, {len(found)} kills, median {statistics.median(takes):.1f} s; {delayed} of {events:,} events over 1 s late"
    others = percentiles([late for each in found for late in each.others])
    return [
        Figure("owners: kill -9 of a server to the last delayed event", takes[-1], "s", "<=", FAILOVER, note),
        Figure("owners: lateness p99 of the other servers' events meanwhile", others[1], "ms", note=f"max {others[2]:.0f} ms"),
    ]
