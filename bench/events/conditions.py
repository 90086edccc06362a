"""Lateness at a sound receiver under bad conditions: a herd, a dead or a slow endpoint beside it, storage that refuses one request in five.

Each condition has a storage and a devhost of its own; what it is compared with, the uniform load, is measured in the same run.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import statistics
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from ..report import Figure
from ..tools.stage import Host, Receiving, Run, child, chunks, devhost, emulator, receiving
from . import firing

ADMIN = {"authorization": "Bearer local-admin-key"}
THROTTLED = 0.2


async def measure(run: Run) -> list[Figure]:
    """Return a line for each condition: p50, p99 and the greatest lateness, in milliseconds."""
    count, width = run.pick((3000, 15_000), (1000, 5_000))
    return await _figures(run, _CONDITIONS, count, width)


async def throttling(run: Run) -> list[Figure]:
    """Return the lines of a storage that throttles, beside that of one that does not."""
    count, width = run.pick((3000, 15_000), (1000, 5_000))
    names = ("uniform load", "storage throttled 20 %", "batches throttled 20 %, Retry-After 1 s")
    return await _figures(run, {name: _CONDITIONS[name] for name in names}, count, width)


async def _figures(run: Run, conditions: Mapping[str, str], count: int, width: int) -> list[Figure]:
    figures: list[Figure] = []
    for number, (name, kind) in enumerate(conditions.items()):
        run.report_progress(f"lateness, {name}", number, len(conditions))
        stats = await _condition(run, kind, count, width)
        note = (
            f"p50 {stats['p50']:.1f}, max {stats['max']:.0f} ms; {count:,} events {stats['how']}; early {stats['early']}; "
            f"stored at {stats['stored_per_second']:,.0f}/s, a call p50 {stats['call_p50']:.0f}, max {stats['call_max']:.0f} ms"
        )
        figures.append(Figure(f"lateness p99, {name}", stats["p99"], "ms", note=note, details=stats))
    return figures


_CONDITIONS = {
    "uniform load": "uniform",
    "herd at one instant": "herd",
    "one dead endpoint": "dead",
    "one slow endpoint": "slow",
    "storage throttled 20 %": "throttled",
    "batches throttled 20 %, Retry-After 1 s": "throttled batches",
}


async def _condition(run: Run, kind: str, count: int, width: int) -> dict[str, Any]:
    with emulator() as azurite:
        async with contextlib.AsyncExitStack() as stack:
            text = azurite.connection_string
            if kind.startswith("throttled"):
                more = ("--batches", "--retry-after", "1") if kind == "throttled batches" else ()
                text = await stack.enter_async_context(_throttled(text, *more))
            receiver = await stack.enter_async_context(receiving())
            host = await stack.enter_async_context(devhost(text, receiver.url))
            spread = 0 if kind == "herd" else width
            first = firing._soon(15.0, spread / 1000)
            dues = [first + number * spread // count for number in range(count)]
            how = "at one instant" if kind == "herd" else f"over {width / 1000:g} s"
            if kind in ("dead", "slow"):
                url = _dead() if kind == "dead" else await stack.enter_async_context(_slow())
                await _channel(host, "bad", url)
                for part in chunks(dues, 2500):
                    await host.batch(part, channel="bad")
                how += f", as many to the {kind} one"
            took = await _post(host, dues)
            stats = await _wait(receiver, count)
    calls = {
        "stored_per_second": 1000 * count / sum(took),
        "call_p50": statistics.median(took),
        "call_max": max(took),
    }
    return {**stats, **calls, "how": how}


async def _post(host: Host, dues: list[int]) -> list[float]:
    """Post the events one batch after the other. Return the milliseconds that each call took."""
    took: list[float] = []
    for part in chunks(dues, 100):
        # A throttled storage may refuse a few of a batch: they are sent again, as a client would.
        left = part
        while left:
            began = time.perf_counter()
            left = await host.accepted(left)
            took.append(1000 * (time.perf_counter() - began))
    return took


async def _wait(receiver: Receiving, count: int) -> dict[str, Any]:
    await receiver.until(count, 120.0, lambda arrived: None)
    return await receiver.ask("stats")


async def _channel(host: Host, name: str, url: str) -> None:
    body = {"type": "http", "url": url}
    async with host.session.put(f"{host.url}/api/v1/tenants/demo/channels/{name}", json=body, headers=ADMIN) as answer:
        assert answer.status == 201, await answer.text()


def _dead() -> str:
    """Return an address on which no process listens."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return f"http://127.0.0.1:{port}/"


@asynccontextmanager
async def _slow() -> AsyncIterator[str]:
    """An endpoint that takes requests and never answers."""

    async def hang(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read()
        writer.close()

    server = await asyncio.start_server(hang, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    finally:
        server.close()


@asynccontextmanager
async def _throttled(connection: str, *more: str) -> AsyncIterator[str]:
    """Put a proxy before the storage that refuses a fifth of the requests."""
    ports = {service.lower(): port for service, port in re.findall(r"(Table|Queue)Endpoint=http://127\.0\.0\.1:(\d+)/", connection)}
    arguments = ("-m", "bench.tools.throttle", "--table", ports["table"], "--queue", ports["queue"], "--share", str(THROTTLED), *more)
    async with child(*arguments) as process:
        assert process.stdout is not None
        table, queue = (await asyncio.wait_for(process.stdout.readline(), 30)).decode().split()
        yield connection.replace(f":{ports['table']}/", f":{table}/").replace(f":{ports['queue']}/", f":{queue}/")
