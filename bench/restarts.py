"""Restarts as the Functions host makes them: `python -m bench.restarts`. Prints how many events came twice, and how late.

Events are due evenly over a span; after a third of it the app's process ends in one of these ways, and the next one starts:

    sigterm   the listeners stop, running invocations get 10 s, then the host kills its worker; the app gets no notice
    worker    SIGKILL of the worker, as `functionTimeout` does it; its host starts the next one
    sigkill   SIGKILL of host and worker
    orphan    SIGKILL of the host; its worker lives on, beside the worker of the next host
    drain     the next host starts first; then the listeners of the former one stop (`/admin/host/drain`), and running invocations end

Azure's update strategy `Recreate` is `sigterm` with `--elsewhere`: the next instance is on another machine, where it cannot prove that the
one before it has ended. Its strategy `RollingUpdate` is `drain` with `--elsewhere`.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Final, NamedTuple

import aiohttp
from aiohttp import web

from devhost.azurite import ROOT
from shared.core.clock import to_text

from .tools.machine import workers
from .tools.serving import serving
from .tools.stage import KEY, emulator

WAYS: Final = ("sigterm", "worker", "sigkill", "orphan", "drain")
HOST_KEY: Final = "bench-master-key"
LEAD: Final = 5.0
"""Least seconds between the acceptance of the events and the first due time."""


class Arrival(NamedTuple):
    """One delivery: the event's id, and milliseconds since 1970 of its arrival and of its due time."""

    id: str
    at: float
    due: float


class Result(NamedTuple):
    """Figures of one restart. Times in seconds; lateness is that of an event's last arrival."""

    events: int
    missing: int
    doubled: int
    late_p50: float
    late_p99: float
    late_max: float
    takeover: float
    """From the death to the last delivery of an event that was due before the next process was ready."""
    started: float
    """From the death to the moment at which the next process was ready."""
    caught: tuple[float, ...]
    """Lateness of each of those events, sorted: the events that waited for the take-over."""


async def start(connection: str, receiver: str, machine: str = "", **settings: str) -> tuple[asyncio.subprocess.Process, str]:
    """Start a host; return the process and the app's URL once it is ready. machine: the instance's name. settings: of the app, more."""
    env = {
        **os.environ,
        "CONTAINER_NAME": machine,
        "PORT": "0",
        "LOG_LEVEL": "WARNING",
        "DEVHOST_MASTER_KEY": HOST_KEY,
        "TocsinStorage": connection,
        "AzureWebJobsStorage": connection,
        "TOCSIN_LOCAL": "true",
        "TOCSIN_ADMIN_KEY": "local-admin-key",
        "TOCSIN_SIGNING_KEY": "local-signing-key",
        "TOCSIN_EGRESS_ALLOW": "localhost,127.0.0.0/8",
        "TOCSIN_RECEIVER": receiver,
        **settings,
    }
    command = (sys.executable, "-m", "devhost", "--no-azurite", "--no-receiver")
    process = await asyncio.create_subprocess_exec(
        *command, cwd=ROOT, env=env, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    assert process.stdout is not None
    while not (line := (await asyncio.wait_for(process.stdout.readline(), 90)).decode()).startswith("devhost ready "):
        if not line:
            raise RuntimeError("the devhost did not start")
    return process, line.split()[-1]


@asynccontextmanager
async def receiving(arrivals: list[Arrival], takes: float) -> AsyncIterator[str]:
    """Run a receiver that answers each delivery after `takes` seconds. Yields its URL."""

    async def take(request: web.Request) -> web.Response:
        due = datetime.fromisoformat(request.headers["ce-tocsindue"]).timestamp() * 1000
        arrivals.append(Arrival(request.headers["ce-id"], time.time() * 1000, due))
        await asyncio.sleep(takes)
        return web.Response(status=204)

    app = web.Application()
    app.router.add_post("/", take)
    async with serving(app) as url:
        yield f"{url}/"


async def post(url: str, count: int, span: float, first: float) -> list[str]:
    """Post `count` events, due from `first` (milliseconds since 1970) over `span` seconds. Return their ids."""
    body = [{"due": to_text(round(first + number * span * 1000 / count)), "payload": number} for number in range(count)]
    headers = {"authorization": f"Bearer {KEY}"}
    async with aiohttp.ClientSession() as session, session.post(f"{url}/api/v1/events/batch", json=body, headers=headers) as answer:
        document = await answer.json()
    assert document["accepted"] == count, str(document)[:500]
    return [line["id"] for line in document["results"]]


async def end(way: str, process: asyncio.subprocess.Process, url: str) -> None:
    """End the process in one of the `WAYS`. The host that loses its worker goes on."""
    if way == "drain":
        await drain(url)
    if way in ("sigterm", "drain"):
        process.send_signal(signal.SIGTERM)
    for pid in workers(process.pid) if way in ("worker", "sigkill") else ():
        os.kill(pid, signal.SIGKILL)
    if way in ("sigkill", "orphan"):
        process.kill()
    if way != "worker":
        await process.wait()


async def drain(url: str) -> None:
    """Drain a host: return when none of its invocations runs any more."""
    async with aiohttp.ClientSession(headers={"x-functions-key": HOST_KEY}) as session:
        async with session.post(f"{url}/admin/host/drain") as answer:
            assert answer.status == 202, answer.status
        while True:
            async with session.get(f"{url}/admin/host/drain/status") as answer:
                if (await answer.json())["state"] == "Completed":
                    return
            await asyncio.sleep(0.2)


async def answers(url: str) -> None:
    """Return when the app answers. A request that reaches a worker as it dies is answered with 500."""
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(f"{url}/api/healthz") as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.1)


async def restart(way: str, count: int, span: float, takes: float = 0.3, deadline: float = 180.0, elsewhere: bool = False) -> Result:
    """Play one restart. elsewhere: the next process is on another machine."""
    arrivals: list[Arrival] = []
    processes: list[asyncio.subprocess.Process] = []
    with emulator() as azurite:
        async with receiving(arrivals, takes) as receiver:
            try:
                process, url = await start(azurite.connection_string, receiver)
                processes.append(process)
                # All of one minute, and so of one shard: its owner is at work when its process ends.
                first = (time.time() + LEAD - 2) // 60 * 60 + 62
                ids = await post(url, count, span, first * 1000)
                await asyncio.sleep(first + span / 3 - time.time())
                if way != "drain":
                    await end(way, process, url)
                left = time.time() * 1000
                if way == "worker":
                    await answers(url)
                else:
                    following, _ = await start(azurite.connection_string, receiver, "another" if elsewhere else "")
                    processes.append(following)
                ready = time.time() * 1000
                died = ready if way == "drain" else left
                draining = asyncio.create_task(end(way, process, url)) if way == "drain" else None
                until = time.monotonic() + deadline
                while len({each.id for each in arrivals}) < count and time.monotonic() < until:  # noqa: ASYNC110
                    await asyncio.sleep(0.2)
                # A second delivery of an event comes with the take-over; an orphan's comes within its own time.
                await asyncio.sleep(60.0 if len({each.id for each in arrivals}) == count else 0.0)
                if draining is not None:
                    await draining
            finally:
                for each in processes:
                    if each.returncode is None:
                        await end("sigkill", each, url)
    return figures(ids, arrivals, died, ready)


def figures(ids: list[str], arrivals: list[Arrival], died: float, ready: float) -> Result:
    """Compute the figures of a restart."""
    found: dict[str, list[Arrival]] = defaultdict(list)
    for arrival in sorted(arrivals, key=lambda each: each.at):
        found[arrival.id].append(arrival)
    late = sorted((each[-1].at - each[-1].due) / 1000 for each in found.values())
    caught = [each[-1] for each in found.values() if each[-1].at > died and each[-1].due <= ready]
    return Result(
        events=len(ids),
        missing=len(set(ids) - found.keys()),
        doubled=sum(len(each) > 1 for each in found.values()),
        late_p50=late[len(late) // 2],
        late_p99=late[min(len(late) - 1, len(late) * 99 // 100)],
        late_max=late[-1],
        takeover=(max(each.at for each in caught) - died) / 1000 if caught else 0.0,
        started=(ready - died) / 1000,
        caught=tuple(sorted((each.at - each.due) / 1000 for each in caught)),
    )


async def measure(ways: list[str], runs: int, count: int, span: float, elsewhere: bool) -> None:
    """Print the figures of each restart, and those of all restarts of one way together."""
    print("| way | events | missing | twice | late p50 / p99 / max, s | next process ready after, s | taken over after, s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for way in ways:
        every: list[Result] = []
        for _ in range(runs):
            got = await restart(way, count, span, elsewhere=elsewhere)
            every.append(got)
            late = f"{got.late_p50:.2f} / {got.late_p99:.1f} / {got.late_max:.1f}"
            print(f"| {way} | {got.events} | {got.missing} | {got.doubled} | {late} | {got.started:.1f} | {got.takeover:.1f} |", flush=True)
        print(summary(way, every), flush=True)


def summary(way: str, every: list[Result]) -> str:
    """Return one line about several restarts: lateness of the events that waited for a take-over, and the longest take-over."""
    waited = sorted(late for got in every for late in got.caught) or [0.0]
    p50, p99 = (waited[min(len(waited) - 1, len(waited) * part // 100)] for part in (50, 99))
    missing, doubled = sum(got.missing for got in every), sum(got.doubled for got in every)
    longest = max(got.takeover for got in every)
    return (
        f"{way}: {len(every)} restarts, {missing} events missing, {doubled} came twice; {len(waited)} events waited for the take-over, "
        f"late by {p50:.1f} s (p50), {p99:.1f} s (p99), {waited[-1]:.1f} s (max); the longest take-over took {longest:.1f} s"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.restarts", description="Measures restarts as the Functions host makes them.")
    parser.add_argument("--way", choices=WAYS, action="append", help="this way only; may be given more than once")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--events", type=int, default=250)
    parser.add_argument("--seconds", type=float, default=40.0, help="span over which the events are due")
    parser.add_argument("--elsewhere", action="store_true", help="the next process is on another machine")
    given = parser.parse_args()
    asyncio.run(measure(given.way or list(WAYS), given.runs, given.events, given.seconds, given.elsewhere))


if __name__ == "__main__":
    main()
