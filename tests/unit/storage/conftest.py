"""A server that answers by script, and a clock whose sleepers do not wait."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from contextvars import Context
from dataclasses import dataclass, field
from typing import Any

import pytest

from shared.storage.azure.queues import AzureQueues
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import TransportPolicy

LONG = 600.0
"""Seconds that a request may take."""
KEY = "c2VjcmV0LWFjY291bnQta2V5"
DATE = "Sat, 21 Nov 2026 10:21:55 GMT"


class FastClock:
    """Sleeping only moves it on. `slept` holds the waits; `on_sleep` is called at each."""

    def __init__(self) -> None:
        self.slept: list[float] = []
        self.on_sleep: Callable[[], None] = lambda: None

    def now(self) -> int:
        # 10:21:55 on 2026-11-21, the moment of DATE.
        return 1_795_256_515_000 + int(sum(self.slept) * 1000)

    def monotonic(self) -> float:
        return sum(self.slept)

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.on_sleep()


@dataclass
class Reply:
    """One answer. `cut` sends only that many bytes of the body, then resets; `reset` answers nothing; `hang` never answers."""

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    reset: bool = False
    hang: bool = False

    def encode(self) -> bytes:
        headers = {"Date": DATE, "Content-Length": str(len(self.body)), **self.headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {self.status} X\r\n{head}\r\n".encode() + self.body


class ScriptedServer:
    """Answers the n-th request with the n-th reply and keeps the requests; more requests than replies are a 599."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.on_hang: Callable[[], None] = lambda: None
        """Is called for each request that gets no answer."""
        self._writers: list[asyncio.StreamWriter] = []
        self._server: asyncio.Server | None = None
        # Bound but not listening yet, so that a test can have it refuse first.
        self._socket = socket.socket()
        self._socket.bind(("127.0.0.1", 0))
        self.port = self._socket.getsockname()[1]

    def script(self, *replies: Reply) -> None:
        self.replies += replies

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, sock=self._socket)

    async def stop(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                line, *fields = head.strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (item.partition(": ") for item in fields)}
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                self.requests.append((line, headers, body))
                reply = self.replies.pop(0) if self.replies else Reply(599)
                if reply.hang:
                    self.on_hang()
                    continue
                if not reply.reset:
                    raw = reply.encode()
                    if reply.cut is not None:
                        raw = raw[: len(raw) - len(reply.body) + reply.cut]
                    writer.write(raw)
                    await writer.drain()
                if reply.reset or reply.cut is not None:
                    writer.transport.abort()
                    return


@dataclass
class Bench:
    """A scripted server with both adapters pointed at it. Where a reply hangs, the request's time-outs strike at once."""

    server: ScriptedServer
    tables: AzureTables
    queues: AzureQueues
    clock: FastClock


def connection(port: int) -> str:
    return f"AccountName=acct;AccountKey={KEY};TableEndpoint=http://127.0.0.1:{port}/acct;QueueEndpoint=http://127.0.0.1:{port}/acct"


@pytest.fixture
async def idle_bench(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bench]:
    """The server refuses connections until `start`."""
    # Nothing but a reply that hangs takes so long, however busy the machine is.
    server, clock, policy = ScriptedServer(), FastClock(), TransportPolicy(request=LONG, connect=LONG)
    loop = asyncio.get_running_loop()
    real, long_timers = loop.call_at, list[tuple[asyncio.TimerHandle, Callable[..., object], tuple[Any, ...]]]()
    plain, late = loop.time, [0.0]

    def call_at(when: float, callback: Callable[..., object], *arguments: Any, context: Context | None = None) -> asyncio.TimerHandle:
        handle = real(when, callback, *arguments, context=context)
        if when - loop.time() > LONG / 2:
            long_timers.append((handle, callback, arguments))
        return handle

    def time_out() -> None:
        late[0] += LONG
        for handle, callback, arguments in long_timers:
            if not handle.cancelled():
                handle.cancel()
                loop.call_soon(callback, *arguments)
        long_timers.clear()

    monkeypatch.setattr(loop, "call_at", call_at)
    monkeypatch.setattr(loop, "time", lambda: plain() + late[0])
    server.on_hang = time_out
    text = connection(server.port)
    tables = AzureTables.from_connection_string(text, clock, policy)
    queues = AzureQueues.from_connection_string(text, clock, policy)
    yield Bench(server, tables, queues, clock)
    await tables.close()
    await queues.close()
    await server.stop()


@pytest.fixture
async def bench(idle_bench: Bench) -> Bench:
    """The server answers by script."""
    await idle_bench.server.start()
    return idle_bench
