"""The host's part of a worker process: starts it, sends it invocations, kills it, and replaces it when it ends."""

import asyncio
import itertools
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from devhost.worker.channel import FrameChannel
from devhost.worker.log_lines import ShownLines, read_lines
from devhost.worker.model import AppIndexError, FunctionInfo, InvocationResult, Trace, TypedValue

log = logging.getLogger("devhost.worker")

RESTART_AFTER = 1.0
"""Seconds between the end of a worker and the start of the next; with the import of the app, the Functions host takes about 3 s."""
LAST_LINES = 1.0
"""Seconds after the end of a worker for what it has printed to be read; a process that it has begun may hold its output open."""
RESTART_AGAIN = 5.0
"""Seconds until the next try when the app can no longer be indexed."""


@dataclass(frozen=True)
class WorkerOptions:
    """The options with which every worker process is started."""

    app: Path
    prefix: str
    log_level: str
    loop: str
    function_timeout: float | None
    """Seconds after which a running invocation makes the host kill the worker process (`functionTimeout` of host.json); None: never."""
    log_levels: Mapping[str, int]
    """Levels from which the host shows lines, by category (`host_log.log_levels`)."""


@dataclass
class _Call:
    """An invocation that runs."""

    function: str
    end: "asyncio.Future[InvocationResult]"


@dataclass
class _Spawned:
    """A process that imports the app; `found` gets the app's functions."""

    channel: FrameChannel
    found: "asyncio.Future[list[FunctionInfo]]"


class WorkerProcess:
    """One worker process after the other; an `Invoker`."""

    def __init__(self, options: WorkerOptions, group: str, changed: Callable[[], None]) -> None:
        """group: the functions that it runs, for log lines. changed: called when an invocation has ended."""
        self._options, self._group, self._changed = options, group, changed
        self._lines = ShownLines(options.log_levels)
        self._readers: list[asyncio.Task[None]] = []
        self._calls: dict[int, _Call] = {}
        self._numbers = itertools.count(1)
        self._channel: FrameChannel | None = None
        self._process: asyncio.subprocess.Process | None = None
        self._starting: asyncio.Task[list[FunctionInfo]] | None = None
        self._watching: asyncio.Task[None] | None = None
        self._spawned: _Spawned | None = None
        self._url = ""
        self._killed = False

    @property
    def running(self) -> list[str]:
        """Names of the functions that are running now, one entry an invocation."""
        return [call.function for call in self._calls.values()]

    async def ready(self) -> list[FunctionInfo]:
        """Return the app's functions once the process takes invocations; starts it if it was never started. Raises AppIndexError."""
        if self._starting is None:
            self._starting = asyncio.create_task(self._start())
        return await asyncio.shield(self._starting)

    def tell_url(self, url: str) -> None:
        """Tell this process, and each that follows it, the address under which users reach the app."""
        self._url = url
        if self._channel is not None:
            self._channel.send(("url", url))

    async def running_process(self) -> None:
        """Wait until a process accepts invocations. Raises CancelledError after `kill`."""
        while self._channel is None:
            if self._killed:
                raise asyncio.CancelledError
            await self.ready()

    async def invoke(
        self, function: FunctionInfo, data: TypedValue, metadata: dict[str, TypedValue] | None = None, trace: Trace | None = None
    ) -> InvocationResult:
        """See `Invoker`. Waits while the process is being replaced. If the process ends, its invocations fail."""
        await self.running_process()
        assert self._channel is not None
        loop = asyncio.get_running_loop()
        number, call = next(self._numbers), _Call(function.name, loop.create_future())
        self._calls[number] = call
        limit = self._options.function_timeout
        timing = loop.call_later(limit, self._time_out, function.name) if limit is not None else None
        self._channel.send((number, function.name, data, metadata, trace))
        try:
            return await call.end
        finally:
            if timing is not None:
                timing.cancel()
            del self._calls[number]
            self._changed()

    def kill(self) -> None:
        """End the process at once and for good, without notice. Invocations that run are cancelled."""
        self._killed = True
        for task in (self._starting, self._watching):
            if task is not None:
                task.cancel()
        self._kill()
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        for call in self._calls.values():
            call.end.cancel()

    async def last_lines(self) -> None:
        """Wait until everything that an ended process has printed is shown."""
        if self._readers:
            await asyncio.wait(self._readers, timeout=LAST_LINES)

    def _kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    def _time_out(self, function: str) -> None:
        limit = self._options.function_timeout
        log.error("function %s ran longer than functionTimeout (%g s): its worker process is killed", function, limit)
        self._kill()

    async def spawn(self) -> None:
        """Start the process and return at once; it imports the app while the caller does something else."""
        self._spawned = await self._spawn()

    async def _start(self) -> list[FunctionInfo]:
        spawned, self._spawned = self._spawned or await self._spawn(), None
        functions = await spawned.found
        self._channel = spawned.channel
        if self._url:
            self.tell_url(self._url)
        return functions

    async def _spawn(self) -> "_Spawned":
        options = self._options
        loop = asyncio.get_running_loop()
        found: asyncio.Future[list[FunctionInfo]] = loop.create_future()
        ours, theirs = socket.socketpair()
        command = [sys.executable, "-m", "devhost.worker.child", "--functions-worker-id", str(uuid.uuid4())]
        command += ["--channel", str(theirs.fileno()), "--app", str(options.app), "--prefix", options.prefix]
        command += ["--log-level", options.log_level, "--loop", options.loop]
        with theirs:
            # A session of its own: Ctrl-C in a terminal reaches the host, and the host decides what becomes of the worker.
            process = self._process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env=_environment(),
            )
        assert process.stdout is not None and process.stderr is not None
        self._readers = [
            asyncio.create_task(read_lines(process.stdout, lambda line: self._lines.printed(line, error=False))),
            asyncio.create_task(read_lines(process.stderr, lambda line: self._lines.printed(line, error=True))),
        ]
        channel = FrameChannel(lambda message: self._received(message, found), lambda: None)
        self._watching = asyncio.create_task(self._watch(process, found))
        await loop.create_unix_connection(lambda: channel, sock=ours)
        log.debug("worker process %d runs %s", process.pid, self._group)
        return _Spawned(channel, found)

    def _received(self, message: tuple[Any, ...], found: "asyncio.Future[list[FunctionInfo]]") -> None:
        kind = message[0]
        if kind == "ready":
            found.set_result([FunctionInfo(name, tuple(bindings)) for name, bindings in message[1]])
        elif kind == "refused":
            found.set_exception(AppIndexError(message[1]))
        elif kind == "log":
            _, number, level, logger, text = message
            called = self._calls.get(number)
            if number is None or called is not None:
                self._lines.logged(called.function if called is not None else None, level, logger, text)
        else:
            call = self._calls.get(kind)
            if call is not None and not call.end.done():
                call.end.set_result(InvocationResult(message[1], message[2]))

    async def _watch(self, process: asyncio.subprocess.Process, found: "asyncio.Future[list[FunctionInfo]]") -> None:
        code = await process.wait()
        how = f"was killed ({signal.Signals(-code).name})" if code < 0 else f"ended with {code}"
        if not found.done():
            found.set_exception(AppIndexError(f"the worker process {how} while it imported the app"))
        if self._channel is None:
            return
        self._channel.close()
        self._channel = None
        log.error("worker process %d (%s) %s: %d invocations failed", process.pid, self._group, how, len(self._calls))
        for call in self._calls.values():
            if not call.end.done():
                call.end.set_result(InvocationResult(None, f"the worker process {how}"))
        self._starting = asyncio.create_task(self._restart())

    async def _restart(self) -> list[FunctionInfo]:
        pause = RESTART_AFTER
        while True:
            await asyncio.sleep(pause)
            try:
                return await self._start()
            except AppIndexError as error:
                log.error("the worker process of %s cannot be replaced, trying again: %s", self._group, error)
            pause = RESTART_AGAIN


def _environment() -> dict[str, str]:
    # The module `devhost` is found where this process has found it.
    root = str(Path(__file__).resolve().parents[2])
    former = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": f"{root}{os.pathsep}{former}" if former else root}
