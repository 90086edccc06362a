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
        self.url, self.restarts = host.url, bool(host.start)
        self._host, self._output = host, output
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> float:
        """Start the host and wait until the app answers; return the seconds that it took. Raises TimeoutError with the reason."""
        began = time.monotonic()
        if self._host.start:
            with self._output.open("ab") as file:
                # A session of its own, so that everything that the host starts can be found and killed.
                self._process = await asyncio.create_subprocess_shell(
                    self._host.start, env={**os.environ, **self._host.environment}, stdout=file, stderr=file, start_new_session=True
                )
        await self.until_it_answers()
        return time.monotonic() - began

    async def until_it_answers(self) -> None:
        """Return when the app answers. Raises TimeoutError with the reason."""
        ends_at = time.monotonic() + START_TIMEOUT
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
            while True:
                if self._process is not None and self._process.returncode is not None:
                    raise TimeoutError(f"the host ended with {self._process.returncode}; see {self._output}")
                with contextlib.suppress(aiohttp.ClientError, TimeoutError):
                    async with session.get(f"{self.url}/api/healthz") as answer:
                        if answer.status == 200:
                            return
                if time.monotonic() > ends_at:
                    raise TimeoutError(f"{self.url}/api/healthz did not answer 200 within {START_TIMEOUT:g} s; see {self._output}")
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
