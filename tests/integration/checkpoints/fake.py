"""The unit tests' app behind real HTTP."""

from __future__ import annotations

from typing import Self

import httpx
from aiohttp import web

from tests.unit.checkpoints.participants import App


class Served:
    """An `App` on a port of this machine, in the loop of the test."""

    def __init__(self) -> None:
        self.app = App()
        self.app.report_ms = 200
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        server = web.Application()
        server.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(server, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._runner is not None
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        asked = httpx.Request(request.method, str(request.url), headers=dict(request.headers), content=await request.read())
        try:
            answer = await self.app(asked)
        except httpx.TransportError:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        return web.Response(status=answer.status_code, body=answer.content, content_type="application/json")
