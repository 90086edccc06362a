"""Azure Resource Manager, as tests play it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web


class Azure:
    """Keeps what it is sent (method, path with query, authorization), and answers `status` with `body`."""

    def __init__(self) -> None:
        self.status, self.body, self.calls = 200, b"", list[tuple[str, str, str]]()

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append((request.method, str(request.rel_url), request.headers.get("authorization", "")))
        return web.Response(status=self.status, body=self.body, headers={"location": "http://elsewhere.example/"})


@asynccontextmanager
async def serving() -> AsyncIterator[tuple[Azure, str]]:
    """It, and its endpoint."""
    there = Azure()
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", there.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    yield there, f"http://127.0.0.1:{runner.addresses[0][1]}"
    await runner.cleanup()


async def token() -> str:
    """The app's own."""
    return "a-token"
