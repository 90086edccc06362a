"""Any Functions host in the place of the devhost: the one that the shell command in HOST_START runs, on the port in the place of `{port}`.

`make host-test ARGS=--integration` runs the tests. A test that needs the devhost itself has the marker `devhost`, with the reason.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from devhost.azurite import ROOT
from devhost.host.settings import load_values
from devhost.hosttest.driver import PORT, START_AGAIN

from .logs import watch
from .starting import fail
from .waiting import DEADLINE, ended, wait_until

START, STOP = os.environ.get("HOST_START", ""), os.environ.get("HOST_STOP", "")


def leave_out(items: list[pytest.Item]) -> None:
    """Skip the tests that need the devhost, if another host runs the app."""
    if START:
        for item in items:
            if (mark := item.get_closest_marker("devhost")) is not None:
                item.add_marker(pytest.mark.skip(reason=f"needs the devhost: {mark.args[0]}"))


class AnyHost:
    """The host of HOST_START on one port. It is started anew when it ends by itself, as a platform does."""

    def __init__(self, port: int, output: Path, environment: Mapping[str, str]) -> None:
        self._port, self._output = port, output
        # Other hosts than the devhost do not read local.settings.sample.json.
        self._environment = {**os.environ, **load_values(ROOT), **environment}
        self.process: subprocess.Popen[bytes] | None = None
        self._kept = threading.Event()

    def start(self) -> subprocess.Popen[bytes]:
        """Start it, and wait until the app answers."""
        watch(self._output)
        process = self._spawn()
        kept = self._kept = threading.Event()
        kept.set()
        threading.Thread(target=self._keep, args=(kept,), daemon=True).start()

        def answers() -> bool:
            if process.poll() is not None:
                fail(f"the host ended with {process.returncode}", self._output.read_text(errors="replace"))
            connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=30)
            try:
                connection.request("GET", "/api/healthz")
                return connection.getresponse().status == 200
            except (OSError, http.client.HTTPException):
                return False
            finally:
                connection.close()

        wait_until(answers, "the app on the host of HOST_START", seen=lambda: self._output.read_text(errors="replace"))
        return process

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self._output.open("ab") as file:
            # A session of its own, so that everything that it starts can be killed.
            self.process = subprocess.Popen(
                START.replace(PORT, str(self._port)),
                shell=True,
                cwd=ROOT,
                env=self._environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self.process

    def _keep(self, kept: threading.Event) -> None:
        while (process := self.process) is not None:
            process.wait()
            time.sleep(START_AGAIN)
            if not kept.is_set():
                return
            self._spawn()

    def kill(self) -> None:
        """SIGKILL of the host and of everything that it has started."""
        self._kept.clear()
        process, self.process = self.process, None
        if process is None:
            return
        for pid in (process.pid, *descendants(process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def terminate(self, deadline: float = DEADLINE) -> None:
        """End it in order. Its exit code means nothing: hosts differ."""
        self._kept.clear()
        process = self.process
        assert process is not None
        if STOP:
            subprocess.run(
                STOP.replace(PORT, str(self._port)), shell=True, env={**self._environment, "HOST_PID": str(process.pid)}, check=True
            )
        else:
            process.send_signal(signal.SIGTERM)
        ended(process, "the host", deadline, lambda: self._output.read_text(errors="replace"))


def descendants(pid: int) -> list[int]:
    """Return the processes that a process has started, and those that they have."""
    found = [pid]
    for each in found:
        with contextlib.suppress(OSError):
            found += map(int, Path(f"/proc/{each}/task/{each}/children").read_text().split())
    return found[1:]
