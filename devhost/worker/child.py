"""`python -m devhost.worker.child`: the worker process. It indexes the app, tells the host its functions, and runs what the host asks for.

It gets no notice of its end: the host kills it, as the Functions host does. If the host itself is killed, it lives on as an orphan; an
app that watches its parent ends it, and it ends by itself after `ORPHAN_LIVES`.
"""

import argparse
import asyncio
import os
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from devhost.failures import Failures
from devhost.logs import set_up_logging
from devhost.loops import loop_factory
from devhost.worker.channel import FrameChannel
from devhost.worker.library import LibraryWorker, index
from devhost.worker.log_lines import WorkerLog, invocation
from devhost.worker.model import AppIndexError, FunctionInfo

ORPHAN_LIVES = 60.0
"""Seconds for which an orphan lives at most: more than an app needs that finishes what it has begun."""


class WorkerChild:
    """The worker's end of the channel."""

    def __init__(self, app: Path, prefix: str, log_level: str) -> None:
        self._app, self._prefix, self._log_level = app, prefix, log_level
        self._channel = FrameChannel(self._received, self._orphaned)
        self._functions: dict[str, FunctionInfo] = {}
        self._worker: LibraryWorker | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._loading = asyncio.Lock()
        # One thread: each thread's share of the allocator keeps what a freed body took.
        self._disk = ThreadPoolExecutor(1, "devhost-bodies")
        self._ended = asyncio.Event()

    async def serve(self, connection: socket.socket) -> int:
        """Serve the host until the process is killed; return the exit code of a worker whose app cannot be indexed."""
        await asyncio.get_running_loop().create_unix_connection(lambda: self._channel, sock=connection)
        self._log = WorkerLog(self._channel.send)
        set_up_logging(self._log_level, self._log)
        try:
            functions = index(self._app, route_prefix=self._prefix)
        except AppIndexError as error:
            self._channel.send(("refused", str(error)))
            self._channel.close()
            return 1
        self._worker = LibraryWorker()
        self._functions = {function.name: function for function in functions}
        self._channel.send(("ready", [(function.name, list(function.bindings)) for function in functions]))
        await self._ended.wait()
        return 1

    def _received(self, message: tuple[Any, ...]) -> None:
        if message[0] == "url":
            Failures(message[1]).attach()
            return
        task = asyncio.get_running_loop().create_task(self._run(*message))
        # The loop keeps no reference to a task.
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _run(self, number: int, name: str, data: Any, metadata: Any, trace: Any) -> None:
        assert self._worker is not None
        self._log.latest = number
        invocation.set(number)
        if data[0] == "http" and isinstance(data[1][3], str):
            # One after the other: the function starts in the turn of the loop in which the body is here, so two wait in memory at most.
            async with self._loading:
                method, url, headers, path, params, query = data[1]
                body = await asyncio.get_running_loop().run_in_executor(self._disk, Path(path).read_bytes)
            data = "http", (method, url, headers, body, params, query)
            del body
        value, error = await self._worker.invoke(self._functions[name], data, metadata, trace)
        self._channel.send((number, value, error))

    def _orphaned(self) -> None:
        asyncio.get_running_loop().call_later(ORPHAN_LIVES, os._exit, 1)


def main() -> None:
    """The worker process."""
    parser = argparse.ArgumentParser(prog="python -m devhost.worker.child")
    # The name that the Functions host gives this option: by it, an app knows that a host has started it.
    parser.add_argument("--functions-worker-id", required=True)
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--app", type=Path, required=True)
    parser.add_argument("--prefix", default="api")
    parser.add_argument("--log-level", default="INFO")
    parser.add_argument("--loop", default="asyncio")
    given = parser.parse_args()

    async def serve() -> int:
        return await WorkerChild(given.app, given.prefix, given.log_level).serve(socket.socket(fileno=given.channel))

    sys.exit(asyncio.run(serve(), loop_factory=loop_factory(given.loop)))


if __name__ == "__main__":
    main()
