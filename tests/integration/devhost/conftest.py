"""Fixtures for the devhost's own tests: processes that are always ended."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from devhost.azurite import ROOT, Azurite
from tests.starting import ready
from tests.waiting import ended, wait_until

BODY_LIMIT = 30_000_000
SAMPLE = Path(__file__).parent / "apps" / "sample"


def workers_of(pid: int) -> list[int]:
    """The worker processes of a devhost."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        try:
            command = Path(f"/proc/{child}/cmdline").read_bytes()
        except OSError:
            continue
        if b"devhost.worker.child" in command:
            found.append(int(child))
    return found


class Process:
    """One `python -m devhost`. Its output goes to a file; `meeting` is the folder in which it meets the test."""

    def __init__(self, folder: Path, *arguments: str, app: Path = SAMPLE, **environment: str) -> None:
        self.meeting = folder
        self.output = folder / "output.txt"
        keep = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with self.output.open("wb") as file:
            self.popen = subprocess.Popen(
                [sys.executable, "-m", "devhost", "--app", str(app), *arguments],
                cwd=ROOT,
                env={**keep, "PORT": "0", "RECEIVER_PORT": "0", "SAMPLE_DIR": str(folder), "DEVHOST_REFUSED": "off", **environment},
                stdout=file,
                stderr=subprocess.STDOUT,
            )

    @property
    def text(self) -> str:
        return self.output.read_text()

    def ready(self) -> str:
        """Waits for the ready line and returns the URL."""
        return ready(self.popen, self.output)

    def exit_code(self) -> int:
        """Waits for the end."""
        return ended(self.popen, "the devhost", seen=lambda: self.text)

    def signal(self, number: signal.Signals) -> None:
        self.popen.send_signal(number)

    def wait_for_file(self, name: str) -> None:
        wait_until((self.meeting / name).exists, name)

    def notes(self, name: str) -> list[dict[str, Any]]:
        """Return the app's notes so far."""
        path = self.meeting / f"{name}.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def devhost(tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts `python -m devhost` with arguments and environment; ends all of them after the test."""
    started: list[Process] = []

    def start(*arguments: str, **options: Any) -> Process:
        folder = tmp_path / f"run{len(started)}"
        folder.mkdir()
        started.append(Process(folder, *arguments, **options))
        return started[-1]

    yield start
    for process in started:
        if process.popen.poll() is None:
            for pid in (process.popen.pid, *workers_of(process.popen.pid)):
                os.kill(pid, signal.SIGKILL)
        process.popen.wait()


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    """The sample app with a storage and a receiver of its own, shared by tests that only talk to it."""
    ports = {f"AZURITE_{name}_PORT": "0" for name in ("BLOB", "QUEUE", "TABLE")}
    process = Process(
        tmp_path_factory.mktemp("sample"),
        AZURITE="memory",
        DEVHOST_HOSTS="tocsin, named.example, fd00::7",
        FUNCTIONS_REQUEST_BODY_SIZE_LIMIT=str(BODY_LIMIT),
        **ports,
    )
    try:
        process.ready()
        yield process
        process.signal(signal.SIGINT)
        assert process.exit_code() == 0
    finally:
        if process.popen.poll() is None:
            process.popen.kill()
        process.popen.wait()


@pytest.fixture(scope="session")
def sample_url(sample: Process) -> str:
    return sample.ready()


@pytest.fixture(scope="session")
def azurite() -> Iterator[Azurite]:
    """Storage in memory for tests that drive parts of the devhost in this process."""
    with Azurite(memory=True) as running:
        yield running
