"""A proxy before the storage emulator that answers a share of requests with 503, as a throttled account does.

`python -m bench.tools.throttle --table PORT --queue PORT --share 0.2` prints the two ports it listens on, then serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from yarl import URL

SESSION = web.AppKey("session", aiohttp.ClientSession)
DROPPED = {"transfer-encoding", "connection", "keep-alive", "content-length"}


@dataclass(slots=True)
class Throttling:
    """The requests that are refused. It may be changed while the proxy runs."""

    share: float
    """Share of the requests that are answered with 503."""
    batches: bool = False
    """Refuse transactions of tables only. Half of the refused ones are applied: a 503 does not prove that nothing was."""
    retry_after: int | None = None
    """Seconds in `Retry-After`."""
    refused: int = 0
    passed: int = 0
    reads: Counter[str] = field(default_factory=Counter)
    """The reads of each table that came in."""


def proxy(port: int, throttling: Throttling, seed: int) -> web.Application:
    """Return an application that forwards to `port` on loopback, except for the share that it refuses."""
    chance = random.Random(seed)
    app = web.Application(client_max_size=64 * 1024 * 1024)

    async def session(app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as opened:
            app[SESSION] = opened
            yield

    app.cleanup_ctx.append(session)

    async def forward(request: web.Request) -> web.Response:
        meant = not throttling.batches or request.path.endswith("/$batch")
        refused = meant and chance.random() < throttling.share
        throttling.refused += refused
        throttling.passed += meant and not refused
        if request.method == "GET":
            throttling.reads[request.path.partition("(")[0].rpartition("/")[2]] += 1
        busy = {"x-ms-error-code": "ServerBusy"} | ({} if throttling.retry_after is None else {"Retry-After": str(throttling.retry_after)})
        if refused and not (throttling.batches and chance.random() < 0.5):
            return web.Response(status=503, headers=busy)
        url = f"http://127.0.0.1:{port}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        opened = app[SESSION]
        body = await request.read() or None
        # Nothing may be added that the signature does not know.
        skip = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
        async with opened.request(request.method, URL(url, encoded=True), headers=headers, data=body, skip_auto_headers=skip) as answer:
            if refused:
                await answer.read()
                return web.Response(status=503, headers=busy)
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in DROPPED}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    app.router.add_route("*", "/{path:.*}", forward)
    return app


async def start(port: int, throttling: Throttling, seed: int) -> tuple[web.AppRunner, int]:
    """Start a proxy before `port`; return its runner, which the caller cleans up, and the port it listens on."""
    runner = web.AppRunner(proxy(port, throttling, seed), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    return runner, runner.addresses[0][1]


async def serve(table: int, queue: int, throttling: Throttling) -> None:
    ports = [(await start(port, throttling, number))[1] for number, port in enumerate((table, queue))]
    print(*ports, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.tools.throttle")
    parser.add_argument("--table", type=int, required=True)
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.2)
    parser.add_argument("--batches", action="store_true")
    parser.add_argument("--retry-after", type=int)
    given = parser.parse_args()
    asyncio.run(serve(given.table, given.queue, Throttling(given.share, given.batches, given.retry_after)))
