"""A bad network between servers and storage: requests go through, answers get lost or take their time."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from typing import Self

from tests.waiting import wait_until


class Proxy:
    """Forwards TCP connections to a port of this machine, one request after the other as HTTP/1.1 has it.

    drop: part of the answers that are swallowed, and their connections closed. delay: each other answer waits for up to so many seconds.
    away: nothing is taken. All of them may be changed while it runs. dropped, passed: counts of answers.
    """

    def __init__(self, target: int, seed: int) -> None:
        self._target, self._chance = target, random.Random(seed)
        self.drop = self.delay = 0.0
        self.away = False
        self.dropped = self.passed = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(self._started.is_set, "the proxy")
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()
        self._loop.close()

    async def _run(self) -> None:
        handlers: set[asyncio.Task[None]] = set()

        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            handlers.add(task)
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await self._forward(reader, writer)
            handlers.discard(task)
            writer.transport.abort()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._started.set()
        await self._over.wait()
        server.close()
        for task in list(handlers):
            task.cancel()
        await asyncio.gather(*handlers, return_exceptions=True)

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.away:
            return
        back, out = await asyncio.open_connection("127.0.0.1", self._target)
        asked, answering = asyncio.ensure_future(reader.read(65536)), asyncio.ensure_future(back.read(65536))
        fresh = True
        try:
            while True:
                await asyncio.wait((asked, answering), return_when=asyncio.FIRST_COMPLETED)
                if asked.done():
                    if not (data := asked.result()) or self.away:
                        return
                    out.write(data)
                    fresh, asked = True, asyncio.ensure_future(reader.read(65536))
                if answering.done():
                    if not (data := answering.result()):
                        return
                    if fresh:
                        if self.away or self._chance.random() < self.drop:
                            self.dropped += 1
                            return
                        self.passed += 1
                        await asyncio.sleep(self._chance.random() * self.delay)
                    fresh = False
                    writer.write(data)
                    answering = asyncio.ensure_future(back.read(65536))
        finally:
            for task in (asked, answering):
                task.cancel()
                with contextlib.suppress(OSError, asyncio.CancelledError):
                    await task
            out.transport.abort()
