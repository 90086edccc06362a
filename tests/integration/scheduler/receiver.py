"""A receiver of deliveries that does what a test tells it, in a thread and a loop of its own.

Each path has a script: a request takes the next answer of it, the last answer stays. Without a script every delivery is answered 204.
A `Hit` is recorded when a request's head and body are in, before anything is answered.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

type Reply = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Hit:
    """One request. Header names are in lower case; `at` is milliseconds since 1970 by the same clock as the scheduler's."""

    at: int
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def id(self) -> str:
        return self.headers["ce-id"]

    @property
    def attempt(self) -> int:
        return int(self.headers["ce-tocsinattempt"])

    @property
    def late_ms(self) -> int:
        return int(self.headers["ce-tocsinlatems"])

    @property
    def due(self) -> str:
        return self.headers["ce-tocsindue"]

    def json(self) -> Any:
        return json.loads(self.body)


def status(code: int, **headers: str) -> Reply:
    """An empty answer. Header names are given with underscores."""

    async def reply(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=code, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return reply


def after(seconds: float, reply: Reply) -> Reply:
    """Another answer, later."""

    async def late(request: web.BaseRequest) -> web.StreamResponse:
        await asyncio.sleep(seconds)
        return await reply(request)

    return late


async def silent(request: web.BaseRequest) -> web.StreamResponse:
    """No answer, for as long as the other side waits."""
    await asyncio.Event().wait()
    raise AssertionError("never")


async def hang_up(request: web.BaseRequest) -> web.StreamResponse:
    """The connection is closed without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def slow_head(request: web.BaseRequest) -> web.StreamResponse:
    """Headers that trickle in and never end."""
    transport = request.transport
    assert transport is not None
    transport.write(b"HTTP/1.1 200 OK\r\n")
    while not transport.is_closing():
        transport.write(b"x-more: of the same\r\n")
        await asyncio.sleep(0.05)
    raise ConnectionResetError


async def slow_body(request: web.BaseRequest) -> web.StreamResponse:
    """A body that trickles in and never ends."""
    return await _stream(request, b".", 0.05)


async def endless_body(request: web.BaseRequest) -> web.StreamResponse:
    """A body that comes as fast as it can and never ends."""
    return await _stream(request, b"x" * 65536, 0)


async def huge_headers(request: web.BaseRequest) -> web.StreamResponse:
    """A success whose headers are larger than any client should take."""
    return web.Response(headers={"x-huge": "h" * 300_000})


async def _stream(request: web.BaseRequest, chunk: bytes, pause: float) -> web.StreamResponse:
    response = web.StreamResponse()
    await response.prepare(request)
    while True:
        await response.write(chunk)
        await asyncio.sleep(pause)


class Receiver:
    """Listens on a free port of 127.0.0.1 from `start` to `stop`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.hits: list[Hit] = []
        self.most_at_once: Counter[str] = Counter()
        self._at_once: Counter[str] = Counter()
        self._scripts: dict[str, list[Reply]] = {}
        self._tls = tls
        self._base = ""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="receiver", daemon=True)
        self._ready: Future[str] = Future()
        self._stop = asyncio.Event()

    def start(self) -> Self:
        self._thread.start()
        self._base = self._ready.result(20)
        return self

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def url(self, path: str) -> str:
        """The address of a path, which starts with a slash."""
        return self._base + path

    def script(self, path: str, *replies: Reply) -> None:
        """Set the answers to the next requests to `path`; the last one answers all that follow."""
        self._scripts[path] = list(replies)

    def at(self, path: str) -> list[Hit]:
        """Return the deliveries to `path`, in order."""
        return [hit for hit in list(self.hits) if hit.path == path]

    def by_id(self, path: str) -> dict[str, list[Hit]]:
        """Return the deliveries to `path`, by event."""
        found: defaultdict[str, list[Hit]] = defaultdict(list)
        for hit in self.at(path):
            found[hit.id].append(hit)
        return dict(found)

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        server = web.Server(self._handle, handler_cancellation=True, access_log=None)
        runner = web.ServerRunner(server, shutdown_timeout=0.1)
        await runner.setup()
        try:
            await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=self._tls).start()
            self._ready.set_result(f"{'https' if self._tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}")
            await self._stop.wait()
        finally:
            for connection in server.connections:
                # Without waiting for the other side, as a close over TLS would.
                if connection.transport is not None:
                    connection.transport.abort()
            await runner.cleanup()
            await asyncio.sleep(0.05)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        self.hits.append(Hit(time.time_ns() // 1_000_000, path, request.query_string, headers, body))
        replies = self._scripts.get(path)
        if replies is None:
            return web.Response(status=204)
        reply = replies.pop(0) if len(replies) > 1 else replies[0]
        self._at_once[path] += 1
        self.most_at_once[path] = max(self.most_at_once[path], self._at_once[path])
        try:
            with contextlib.suppress(ConnectionError):
                return await reply(request)
            return web.Response()
        finally:
            self._at_once[path] -= 1
