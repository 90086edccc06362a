"""A proxy before the storage emulator that answers a share of all requests with 503, as a throttled account does.

`python -m bench.throttle --table PORT --queue PORT --share 0.2` prints the two ports it listens on, then serves until SIGTERM.
"""

from __future__ import annotations

import argparse
import asyncio
import random

import aiohttp
from aiohttp import web
from yarl import URL

DROPPED = {"transfer-encoding", "connection", "keep-alive", "content-length"}


def proxy(port: int, share: float, seed: int) -> web.Application:
    """An application that forwards to `port` on loopback, but for the share it refuses."""
    chance = random.Random(seed)
    app = web.Application(client_max_size=64 * 1024 * 1024)

    async def session(app: web.Application):  # type: ignore[no-untyped-def]
        async with aiohttp.ClientSession(auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)) as opened:
            app["session"] = opened
            yield

    app.cleanup_ctx.append(session)

    async def forward(request: web.Request) -> web.Response:
        if chance.random() < share:
            return web.Response(status=503, headers={"x-ms-error-code": "ServerBusy"})
        url = f"http://127.0.0.1:{port}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name.lower() not in DROPPED}
        opened: aiohttp.ClientSession = app["session"]
        body = await request.read() or None
        # Nothing may be added that the signature does not know.
        skip = ("Content-Type", "Accept", "Accept-Encoding", "User-Agent")
        async with opened.request(request.method, URL(url, encoded=True), headers=headers, data=body, skip_auto_headers=skip) as answer:
            kept = {name: value for name, value in answer.headers.items() if name.lower() not in DROPPED}
            return web.Response(status=answer.status, headers=kept, body=await answer.read())

    app.router.add_route("*", "/{path:.*}", forward)
    return app


async def serve(table: int, queue: int, share: float) -> None:
    ports = []
    for number, port in enumerate((table, queue)):
        runner = web.AppRunner(proxy(port, share, number), access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        ports.append(runner.addresses[0][1])
    print(*ports, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m bench.throttle")
    parser.add_argument("--table", type=int, required=True)
    parser.add_argument("--queue", type=int, required=True)
    parser.add_argument("--share", type=float, default=0.2)
    given = parser.parse_args()
    asyncio.run(serve(given.table, given.queue, given.share))
