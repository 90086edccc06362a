"""Large bodies that arrive at once leave the loop free: what one turn of it may do is bounded by bytes."""

from __future__ import annotations

import asyncio
import io
import tempfile
import threading
from collections import Counter
from typing import Any

import pytest

from devhost.host import http
from devhost.host.http import HttpFunctions
from devhost.host.protos import Msg, TypedData
from devhost.host.worker import FunctionInfo, InvocationResult

SIZE = 2 * 1024 * 1024
COUNT = 16
TAKE = FunctionInfo("take", "1", ({"type": "httpTrigger", "name": "req", "route": "take", "methods": ["post"]},))


class Turns:
    """Counts the turns of the running loop."""

    def __init__(self) -> None:
        self.now = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self.now += 1
        self._handle = self._loop.call_soon(self._next)

    def end(self) -> None:
        self._handle.cancel()


class Spool(io.BytesIO):
    """Stands for a temporary file: records the turns in which it is written, and the threads in which it is read."""

    written: Counter[int]
    readers: list[threading.Thread]
    turns: Turns

    def write(self, chunk: Any) -> int:
        self.written[self.turns.now] += len(chunk)
        return super().write(chunk)

    def read(self, size: int | None = -1) -> bytes:
        self.readers.append(threading.current_thread())
        return super().read(size)


class Echo:
    """Stands for the worker: records the bodies, and holds each function until all have begun."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self._all = asyncio.Event()

    async def invoke(self, function: FunctionInfo, data: Msg, metadata: Any, trace: Any) -> InvocationResult:
        self.bodies.append(data.http.body.bytes)
        if len(self.bodies) == COUNT:
            self._all.set()
        await self._all.wait()
        return InvocationResult(TypedData(string="taken"), None)


async def post(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /api/take HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    line = await reader.readline()
    writer.close()
    return line


async def test_bodies_that_arrive_at_once_take_a_bounded_part_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    Spool.written, Spool.readers, Spool.turns = Counter(), [], turns
    monkeypatch.setattr(tempfile, "TemporaryFile", Spool)
    echo = Echo()
    served = HttpFunctions(echo, [TAKE])  # type: ignore[arg-type]
    port = await served.start("127.0.0.1", 0)
    sent = [bytes([number]) * SIZE for number in range(COUNT)]
    try:
        answers = await asyncio.wait_for(asyncio.gather(*(post(port, body) for body in sent)), 60)
    finally:
        await served.close()
        turns.end()
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n"} and sorted(echo.bodies) == sent
    assert sum(Spool.written.values()) == COUNT * SIZE
    assert max(Spool.written.values()) <= http._CHUNK
    assert len(Spool.readers) == COUNT and threading.main_thread() not in Spool.readers


async def test_a_body_that_ends_early_leaves_the_others_alone() -> None:
    echo = Echo()
    served = HttpFunctions(echo, [TAKE])  # type: ignore[arg-type]
    port = await served.start("127.0.0.1", 0)
    try:
        _, cut = await asyncio.open_connection("127.0.0.1", port)
        cut.write(b"POST /api/take HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % SIZE + bytes(SIZE // 2))
        await cut.drain()
        posts = [asyncio.create_task(post(port, bytes(SIZE))) for _ in range(COUNT)]
        cut.transport.abort()
        assert set(await asyncio.wait_for(asyncio.gather(*posts), 60)) == {b"HTTP/1.1 200 OK\r\n"}
    finally:
        await served.close()
    assert len(echo.bodies) == COUNT
