"""Receivers made of raw sockets, so that tests can misbehave exactly as they please."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.settings import Settings
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target

SECRET = "whsec_" + base64.b64encode(bytes(range(32))).decode()
OTHER_SECRET = "whsec_" + base64.b64encode(bytes(range(32, 64))).decode()
NOW = 1_800_000_000_250

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def make_settings(allow: str = "") -> Settings:
    return Settings(storage="UseDevelopmentStorage=true", egress_allow=allow)


def deployed_settings(**given: str) -> Settings:
    """Return settings of an app whose storage is not the emulator."""
    return Settings(storage="AccountName=real;AccountKey=c2VjcmV0", admin_key="a" * 32, signing_key="s" * 32, **given)


def make_delivery(id: str = "ev-1", **change: Any) -> OutgoingDelivery:
    return OutgoingDelivery(**({"id": id, "due": NOW - 40, "fired": NOW, "attempt": 1, "body": b'{"n": 1.0}'} | change))


def http_target(url: str, *, timeout: int = 15_000, headers: dict[str, str] | None = None, secrets: tuple[str, ...] = (SECRET,)) -> Target:
    return Target("demo", "default", HttpChannel(type="http", url=url, timeout=f"PT{timeout / 1000:.3f}S", headers=headers or {}), secrets)


class Request:
    """One request as it came over the wire."""

    def __init__(self, head: bytes, body: bytes) -> None:
        lines = head.decode("latin-1").split("\r\n")
        self.line, self.body = lines[0], body
        self.pairs = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines[1:] if line)]
        self.headers = dict(self.pairs)


type Handler = Callable[[Request, asyncio.StreamWriter], Awaitable[bool | None]]
"""Answers a request; True ends the connection."""


async def answer_ok(request: Request, writer: asyncio.StreamWriter) -> None:
    writer.write(OK)


def answer(raw: bytes) -> Handler:
    async def handle(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(raw)

    return handle


class Receiver:
    """A listening socket that notes requests and connections, and when each connection has ended."""

    def __init__(self, handler: Handler) -> None:
        self.handler, self.requests, self.connections = handler, list[Request](), 0
        self.idle = asyncio.Event()
        self.port = 0
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None

    async def start(self, host: str, tls: ssl.SSLContext | None) -> None:
        self._server = await asyncio.start_server(self._serve, host, 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open.add(writer)
        self.idle.clear()
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                request = Request(head[:-4], b"")
                request.body = await reader.readexactly(int(request.headers.get("content-length", "0")))
                self.requests.append(request)
                if await self.handler(request, writer):
                    return
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, ssl.SSLError):
            pass
        finally:
            self._open.discard(writer)
            writer.transport.abort()
            if not self._open:
                self.idle.set()

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        if self._open:
            await self.idle.wait()
        await self._server.wait_closed()


type Listen = Callable[..., Awaitable[Receiver]]


@pytest.fixture
async def listen() -> AsyncIterator[Listen]:
    """`await listen(handler, host="127.0.0.1", tls=None)`; all are stopped at the end."""
    async with contextlib.AsyncExitStack() as stack:

        async def start(handler: Handler = answer_ok, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> Receiver:
            receiver = Receiver(handler)
            await receiver.start(host, tls)
            stack.push_async_callback(receiver.stop)
            return receiver

        yield start


def url(receiver: Receiver, path: str = "/hook") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


@pytest.fixture
async def sender() -> AsyncIterator[HttpSender]:
    it = HttpSender(make_settings("localhost, 127.0.0.0/8"), SettableClock(NOW))
    yield it
    await it.close()
