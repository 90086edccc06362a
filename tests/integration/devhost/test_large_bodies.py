"""Large bodies that arrive at once leave the loop free: what one turn of it may do is bounded by bytes."""

from __future__ import annotations

import asyncio
import io
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from devhost.host import http
from devhost.host.http import HttpFunctions
from devhost.worker.model import FunctionInfo, InvocationResult, TypedValue
from tests.waiting import within

SIZE = 2 * 1024 * 1024
COUNT = 16
TAKE = FunctionInfo("take", ({"type": "httpTrigger", "name": "req", "route": "take", "methods": ["post"]},))


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


class Echo:
    """Stands for the worker: records the bodies, and holds each function until all have begun."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.paths: list[Path] = []
        self._all = asyncio.Event()

    async def invoke(self, function: FunctionInfo, data: TypedValue, metadata: Any, trace: Any) -> InvocationResult:
        self.paths.append(Path(data[1][3]))
        self.bodies.append(self.paths[-1].read_bytes())
        if len(self.bodies) == COUNT:
            self._all.set()
        await self._all.wait()
        return InvocationResult(("string", "taken"), None)


async def post(port: int, body: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"POST /api/take HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
    await writer.drain()
    line = await reader.readline()
    writer.close()
    return line


async def test_bodies_that_arrive_at_once_take_a_bounded_part_of_each_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = Turns()
    written: Counter[int] = Counter()

    class Watched(io.FileIO):
        def write(self, chunk: Any) -> int:
            written[turns.now] += len(chunk)
            return super().write(chunk)

    monkeypatch.setattr(http, "open", lambda descriptor, mode, buffering: Watched(descriptor, mode), raising=False)
    echo = Echo()
    served = HttpFunctions(echo, [TAKE])
    port = await served.start("127.0.0.1", 0)
    sent = [bytes([number]) * SIZE for number in range(COUNT)]
    try:
        answers = await within(asyncio.gather(*(post(port, body) for body in sent)), "all answers")
    finally:
        await served.close()
        turns.end()
    assert set(answers) == {b"HTTP/1.1 200 OK\r\n"} and sorted(echo.bodies) == sent
    assert sum(written.values()) == COUNT * SIZE
    assert max(written.values()) <= http._CHUNK
    assert not any(path.exists() for path in echo.paths)


async def test_a_body_that_ends_early_leaves_the_others_alone() -> None:
    echo = Echo()
    served = HttpFunctions(echo, [TAKE])
    port = await served.start("127.0.0.1", 0)
    try:
        _, cut = await asyncio.open_connection("127.0.0.1", port)
        cut.write(b"POST /api/take HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % SIZE + bytes(SIZE // 2))
        await cut.drain()
        posts = [asyncio.create_task(post(port, bytes(SIZE))) for _ in range(COUNT)]
        cut.transport.abort()
        assert set(await within(asyncio.gather(*posts), "all answers")) == {b"HTTP/1.1 200 OK\r\n"}
    finally:
        await served.close()
    assert len(echo.bodies) == COUNT
