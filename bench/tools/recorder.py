"""A relay in front of the storage emulator that records each request and its time, for `replay`.

It forwards bytes as they arrive, and adds about 0.1 ms to a request.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import cast

HEAD_END = b"\r\n\r\n"


@dataclass(slots=True)
class Request:
    """A request to the emulator.

    port: the emulator's. began, ended: monotonic time, in seconds, at which its last byte and its answer's last byte passed the relay.
    status: of its answer; 0 without one.
    """

    port: int
    raw: bytes
    began: float
    ended: float = 0.0
    status: int = 0


def size_of(head: bytes) -> int:
    """Return the `Content-Length` in a message's head; 0 if there is none."""
    at = head.lower().find(b"\r\ncontent-length:")
    return 0 if at < 0 else int(head[at + 17 :].split(b"\r", 1)[0])


class _Emulator(asyncio.Protocol):
    """The relay's connection to the emulator for one connection of the app."""

    def __init__(self, client: _Client) -> None:
        self._client = client

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._client.opened(cast("asyncio.Transport", transport))

    def data_received(self, data: bytes) -> None:
        self._client.answered(data)

    def connection_lost(self, error: Exception | None) -> None:
        self._client.close()


class _Client(asyncio.Protocol):
    """A connection of the app. Its next request comes after the answer to the one before."""

    def __init__(self, port: int, requests: list[Request]) -> None:
        self._port, self._requests = port, requests
        self._buffer, self._waiting = b"", b""
        self._emulator: asyncio.Transport | None = None
        self._request: Request | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        loop = asyncio.get_running_loop()
        self._connecting = loop.create_task(loop.create_connection(lambda: _Emulator(self), "127.0.0.1", self._port))

    def opened(self, emulator: asyncio.Transport) -> None:
        self._emulator = emulator
        emulator.write(self._waiting)

    def data_received(self, data: bytes) -> None:
        if self._emulator is None:
            self._waiting += data
        else:
            self._emulator.write(data)
        self._buffer = buffer = self._buffer + data if self._buffer else data
        end = buffer.find(HEAD_END)
        if end >= 0 and len(buffer) >= end + len(HEAD_END) + size_of(buffer[:end]):
            self._request = Request(self._port, buffer, time.monotonic())
            self._requests.append(self._request)
            self._buffer = b""

    def answered(self, data: bytes) -> None:
        if self._request is not None:
            self._request.ended = time.monotonic()
            if not self._request.status:
                self._request.status = int(data[9:12])
        self._transport.write(data)

    def connection_lost(self, error: Exception | None) -> None:
        if self._emulator is not None:
            self._emulator.close()

    def close(self) -> None:
        self._transport.close()


@asynccontextmanager
async def recorded(port: int, requests: list[Request]) -> AsyncIterator[int]:
    """Run a relay to the emulator's `port` on loopback; yield the port of the relay.

    requests: gets each request, in the order in which their last bytes arrive.
    """
    server = await asyncio.get_running_loop().create_server(lambda: _Client(port, requests), "127.0.0.1", 0, backlog=1024)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
