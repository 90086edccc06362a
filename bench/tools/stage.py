"""The environment of a measurement: storage, the app in this process or in a devhost, a receiver."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from devhost.azurite import ROOT, Azurite
from shared.app.application import Application
from shared.core.clock import Clock, Millis, SystemClock, to_text
from shared.core.settings import Settings
from shared.delivery.channels.fake import FakeReceiver
from shared.storage import Storage

from .instance import HELD, Instance

KEY = "local-demo-key"
TENANT = "demo"
FLIGHT = 64

type ReportProgress = Callable[[str, float, float], None]
"""Shows progress: the name of the step, the amount done, and the whole amount."""


@dataclass(slots=True)
class Run:
    """The options that all measurements share."""

    quick: bool = False
    report_progress: ReportProgress = field(default=lambda what, done, total: None)
    scale: int | None = None
    """Events of a benchmark whose load can be scaled (`cluster`); None for its own number."""

    def pick[T](self, full: T, quick: T) -> T:
        return quick if self.quick else full


class ShiftedClock(SystemClock):
    """The machine's clock moved forward, so that a measurement does not have to wait for its minute."""

    def __init__(self, shift: Millis = 0) -> None:
        self.shift = shift

    @classmethod
    def before_minute(cls, seconds: float) -> ShiftedClock:
        """Return a clock by which a new minute begins in `seconds`."""
        return cls(round(60_000 - seconds * 1000 - time.time() * 1000 % 60_000))

    def now(self) -> Millis:
        return super().now() + self.shift


PAYLOAD = 500
"""Bytes of a payload."""


def payload(number: int, size: int = PAYLOAD) -> str:
    """Return a JSON string of `size` bytes, quotes included."""
    return f'"{number:08d}{"x" * (size - 10)}"'


def event_text(number: int, due: Millis, channel: str = "", size: int = PAYLOAD) -> str:
    """Return an event as a client sends it: `size` bytes of payload, server id."""
    named = f'"channel":"{channel}",' if channel else ""
    return f'{{"due":"{to_text(due)}",{named}"payload":{payload(number, size)}}}'


def batch_text(dues: Sequence[Millis], channel: str = "", size: int = PAYLOAD) -> bytes:
    """Return a batch of events as JSON lines."""
    return "\n".join([event_text(number, due, channel, size) for number, due in enumerate(dues)]).encode()


def spread(count: int, first: Millis, width: Millis, seed: int = 1) -> list[Millis]:
    """Return `count` due times at random, evenly over `width` milliseconds."""
    chance = random.Random(seed)
    return [first + chance.randrange(width) for _ in range(count)]


def chunks[T](items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


async def flight(jobs: Sequence[Callable[[], Awaitable[object]]], width: int) -> tuple[float, float]:
    """Run the jobs, `width` at a time. Return the seconds of wall time and of this process's CPU time."""
    source = iter(jobs)

    async def lane() -> None:
        for job in source:
            await job()

    wall, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(lane() for _ in range(width)))
    return time.perf_counter() - wall, time.process_time() - cpu


def local_settings(connection: str, receiver: str = "http://127.0.0.1:9/", accounts: Sequence[str] = ()) -> Settings:
    """Return the settings of a local app, independent of the environment. accounts: connection strings of further ones."""
    given: dict[str, Any] = {
        "storage": connection,
        "local": True,
        "admin_key": "local-admin-key",
        "signing_key": "local-signing-key",
        "egress_allow": "localhost,127.0.0.0/8",
        "receiver": receiver,
        "accounts": json.dumps(list(accounts)),
        # Processes of a benchmark live for all of it.
        "wakes": "off",
    }
    return Settings(**given)


@asynccontextmanager
async def application(
    connection: str, *, clock: Clock | None = None, storage: Storage | None = None, accounts: Sequence[str] = ()
) -> AsyncIterator[tuple[Application, FakeReceiver]]:
    """The app in this process, its deliveries taken by a receiver in memory."""
    receiver = FakeReceiver(clock)
    app = await Application.open(local_settings(connection, accounts=accounts), clock=clock, storage=storage, senders={"http": receiver})
    try:
        yield app, receiver
    finally:
        await app.close()


def requests_of(counter: Counter[str]) -> int:
    """Return the requests in an adapter's counters, which count rows and messages as well."""
    return sum(count for name, count in counter.items() if not name.startswith(("rows_", "messages_")))


@asynccontextmanager
async def child(
    *arguments: str, env: dict[str, str] | None = None, stdin: bool = False, held: Instance | None = None
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run a Python process, ended with SIGTERM and waited for. Its standard error is shown when it fails.

    stdin: give it a pipe; otherwise it has this process's. held: the instance to whose size it is held.
    """
    command = [sys.executable, *arguments]
    with tempfile.TemporaryFile() as errors:
        process = await asyncio.create_subprocess_exec(
            *(command if held is None else held.command(command)),
            cwd=ROOT,
            env=env,
            stdin=asyncio.subprocess.PIPE if stdin else None,
            stdout=asyncio.subprocess.PIPE,
            stderr=errors,
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), 30)
            except TimeoutError:
                process.kill()
                await process.wait()
            errors.seek(0)
            lines = errors.read().decode(errors="replace").splitlines()
            if process.returncode not in (0, -15):
                print(f"{' '.join(arguments)} ended with {process.returncode}:", *lines[-15:], sep="\n", file=sys.stderr)


@dataclass(slots=True)
class Receiving:
    """A receiver process."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    async def ask(self, what: str) -> dict[str, Any]:
        """`reset`, `count` or `stats`."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(f"GET /{what} HTTP/1.1\r\nhost: x\r\n\r\n".encode())
            head = await reader.readuntil(b"\r\n\r\n")
            size = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0])
            found: dict[str, Any] = json.loads(await reader.readexactly(size))
            return found
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    async def until(self, count: int, deadline: float, report_progress: Callable[[int], None]) -> None:
        """Wait until `count` deliveries have come. Raises TimeoutError."""
        ends_at = time.monotonic() + deadline
        while (arrived := (await self.ask("count"))["count"]) < count:
            report_progress(arrived)
            if time.monotonic() > ends_at:
                raise TimeoutError(f"{arrived} of {count} deliveries came within {deadline:g} s")
            await asyncio.sleep(0.5)
        report_progress(count)


@asynccontextmanager
async def receiving() -> AsyncIterator[Receiving]:
    """A receiver in a process of its own."""
    async with child("-m", "bench.tools.receiver") as process:
        assert process.stdout is not None
        yield Receiving(int(await asyncio.wait_for(process.stdout.readline(), 30)), process.pid)


@dataclass(slots=True)
class Host:
    """The app in a devhost process."""

    url: str
    port: int
    pid: int
    session: aiohttp.ClientSession

    async def batch(self, dues: Sequence[Millis], channel: str = "", size: int = PAYLOAD) -> list[str]:
        """Post a batch. Return the ids. size: bytes of a payload."""
        document = await self._batch(dues, channel, size)
        assert document.get("accepted") == len(dues), str(document)[:500]
        return [line["id"] for line in document["results"]]

    async def accepted(self, dues: Sequence[Millis]) -> list[Millis]:
        """Post a batch to a storage that may refuse. Return the events that were certainly not stored."""
        document = await self._batch(dues, "")
        if "results" not in document:
            assert document.get("status") == 503, str(document)[:500]
            return list(dues)
        return [due for due, line in zip(dues, document["results"], strict=True) if line["status"] == 503]

    async def _batch(self, dues: Sequence[Millis], channel: str, size: int = PAYLOAD) -> dict[str, Any]:
        headers = {"authorization": f"Bearer {KEY}", "content-type": "application/x-ndjson"}
        async with self.session.post(f"{self.url}/api/v1/events/batch", data=batch_text(dues, channel, size), headers=headers) as answer:
            found: dict[str, Any] = await answer.json()
            return found


@asynccontextmanager
async def devhost(
    connection: str, receiver: str = "http://127.0.0.1:9/", settings: Mapping[str, str] | None = None, *, called: bool = True
) -> AsyncIterator[Host]:
    """The real app in a devhost process on a free port. settings: further settings. called: True to open the app with a first call."""
    env = {
        **os.environ,
        "PORT": "0",
        "LOG_LEVEL": "WARNING",
        "DEVHOST_GRACE": "3",
        "TocsinStorage": connection,
        "AzureWebJobsStorage": connection,
        "TOCSIN_LOCAL": "true",
        "TOCSIN_ADMIN_KEY": "local-admin-key",
        "TOCSIN_SIGNING_KEY": "local-signing-key",
        "TOCSIN_EGRESS_ALLOW": "localhost,127.0.0.0/8",
        "TOCSIN_RECEIVER": receiver,
        **(settings or {}),
    }
    async with child("-m", "devhost", "--no-azurite", "--no-receiver", env=env, held=HELD.get()) as process:
        assert process.stdout is not None
        while not (line := (await asyncio.wait_for(process.stdout.readline(), 60)).decode()).startswith("devhost ready "):
            if not line:
                raise RuntimeError("the devhost did not start")
        url = line.split()[-1]
        async with aiohttp.ClientSession() as session:
            host = Host(url, int(url.rpartition(":")[2]), process.pid, session)
            # The first call opens the app: tables, queues, the tenant.
            if called:
                headers = {"authorization": f"Bearer {KEY}"}
                async with session.get(f"{url}/api/v1/events?limit=1", headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
            yield host


async def load(host: Host, requests: Sequence[tuple[str, str, dict[str, str], str]], *, seconds: float | None = None) -> dict[str, Any]:
    """Send requests to a devhost from a process of its own, 64 in flight; see `bench.tools.load`."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "requests.json")
        file.write_text(json.dumps(requests))  # noqa: ASYNC240  nothing else is going on
        arguments = ["-m", "bench.tools.load", str(file), "--port", str(host.port), "--flight", str(FLIGHT)]
        if seconds is not None:
            arguments += ["--seconds", str(seconds)]
        async with child(*arguments) as process:
            out, _ = await asyncio.wait_for(process.communicate(), 180)
    found: dict[str, Any] = json.loads(out)
    return found


def emulator() -> Azurite:
    """An Azurite of its own, in memory."""
    return Azurite(memory=True)
