"""Starts, stops and kills the host under test: the devhost, or whatever the commands in the environment start."""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from devhost.azurite import ROOT, free_ports

PORT = "{port}"
"""In HOST_START: the port on which the host is to listen."""
START_AGAIN = 3.0
"""Seconds after which a host that has ended by itself is started anew."""
START_TIMEOUT = 120.0
STOP_TIMEOUT = 60.0
WORKER_OPTIONS = (b"--functions-worker-id", b"--workerId")
"""Options with which hosts start their workers."""


@dataclass(frozen=True)
class HostUnderTest:
    """The host under test."""

    url: str
    start: str
    """Shell command that runs the host until it is stopped; empty if it runs already, and is not restarted then."""
    stop: str
    """Shell command that ends it in order; empty: SIGTERM. `HOST_PID` is the process that `start` began."""
    environment: Mapping[str, str]


def host_under_test(environ: Mapping[str, str], settings: Mapping[str, str]) -> HostUnderTest | None:
    """Return the host that HOST_URL and HOST_START name, with these settings; None if they name none.

    `{port}` in HOST_START or HOST_STOP is replaced by a free port, on which the host then listens.
    """
    url, start, stop = (environ.get(name, "") for name in ("HOST_URL", "HOST_START", "HOST_STOP"))
    if PORT in start and not url:
        port = str(free_ports("127.0.0.1", 1)[0])
        url, start, stop = f"http://127.0.0.1:{port}", start.replace(PORT, port), stop.replace(PORT, port)
    return HostUnderTest(url.rstrip("/"), start, stop, settings) if url else None


def devhost_under_test(storage: str, master_key: str) -> HostUnderTest:
    """Return the devhost of this repository, on a free port."""
    port = free_ports("127.0.0.1", 1)[0]
    environment = {
        "PORT": str(port),
        "AZURITE": "off",
        "LOG_LEVEL": "WARNING",
        "DEVHOST_MASTER_KEY": master_key,
        "TocsinStorage": storage,
        "AzureWebJobsStorage": storage,
        "PYTHONPATH": str(ROOT),
    }
    return HostUnderTest(f"http://127.0.0.1:{port}", f"exec {sys.executable} -m devhost --no-receiver", "", environment)


class HostDriver:
    """Runs the host under test. Its output goes to a file."""

    def __init__(self, host: HostUnderTest, output: Path) -> None:
        self.url, self.restarts, self.output = host.url, bool(host.start), output
        self._host = host
        self.ends = 0
        """Number of times that the host has ended by itself while it was kept."""
        self._kept = False
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start the host and wait until the app answers; return the seconds that it took. Raises TimeoutError with the reason."""
        began = time.monotonic()
        await self.spawn()
        await self.until_it_answers()
        return time.monotonic() - began

    async def spawn(self) -> None:
        """Begin to start the host, if it is this test that starts it."""
        if self._host.start:
            with self.output.open("ab") as file:
                # A session of its own, so that everything that the host starts can be found and killed.
                self._process = await asyncio.create_subprocess_shell(
                    self._host.start, env={**os.environ, **self._host.environment}, stdout=file, stderr=file, start_new_session=True
                )

    async def keep(self) -> None:
        """Start the host anew whenever it has ended by itself, as a platform does. Runs until it is cancelled."""
        self._kept = True
        try:
            while self._process is not None:
                await self._process.wait()
                self.ends += 1
                await asyncio.sleep(START_AGAIN)
                await self.spawn()
        finally:
            self._kept = False

    async def until_it_answers(self) -> None:
        """Return when the app answers. Raises TimeoutError with the reason."""
        ends_at = time.monotonic() + START_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            while True:
                if not self._kept and self._process is not None and self._process.returncode is not None:
                    raise TimeoutError(f"the host ended with {self._process.returncode}; see {self.output}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.url}/api/healthz") as answer:
                        if answer.status == 200:
                            return
                if time.monotonic() > ends_at:
                    raise TimeoutError(f"{self.url}/api/healthz did not answer 200 within {START_TIMEOUT:g} s; see {self.output}")
                await asyncio.sleep(0.1)

    async def stop(self) -> float:
        """End the host in order; return the seconds that it took."""
        process = self._process
        if process is None:
            return 0.0
        began = time.monotonic()
        if self._host.stop:
            environment = {**os.environ, **self._host.environment, "HOST_PID": str(process.pid)}
            stopping = await asyncio.create_subprocess_shell(self._host.stop, env=environment)
            await stopping.wait()
        elif process.returncode is None:
            process.terminate()
        await asyncio.wait_for(process.wait(), STOP_TIMEOUT)
        return time.monotonic() - began

    async def kill(self) -> None:
        """Kill the host and everything that it has started."""
        if self._process is None:
            return
        for pid in (*self.workers(), self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    def kill_worker(self) -> bool:
        """Kill the worker processes alone; False if none was found."""
        found = self.workers()
        for pid in found:
            os.kill(pid, signal.SIGKILL)
        return bool(found)

    def workers(self) -> list[int]:
        """Worker processes of the host."""
        return [pid for pid in self._descendants() if any(option in _command(pid) for option in WORKER_OPTIONS)]

    def _descendants(self) -> list[int]:
        found = [] if self._process is None else [self._process.pid]
        for pid in found:
            with contextlib.suppress(OSError):
                found += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
        return found[1:]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
