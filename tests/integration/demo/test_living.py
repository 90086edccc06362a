"""`make demo` lives: everything that the dashboard is to show happens in it, and nothing is left when it ends, however it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from devhost.azurite import ROOT
from devhost.demo.living import SEEN
from tests import waiting

COMMAND = [sys.executable, "-m", "devhost.demo.living"]


@contextmanager
def begun(folder: Path) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """A demonstration that goes on, the address of its dashboard, and the log that it names."""
    environment = {**os.environ, "TMPDIR": str(folder), "PORT": ""}
    with subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None
            address = next((found[0] for line in running.stdout if (found := re.search(r"http://127.0.0.1:\d+/api/dashboard", line))), None)
            assert address is not None, running.stderr.read() if running.stderr is not None else ""
            log = next((found[1] for line in running.stdout if (found := re.search(r"^App's log +(\S+)", line))), None)
            assert log is not None
            yield running, address, Path(log)
        finally:
            running.kill()


@pytest.mark.long
def test_events_are_delivered_retried_and_die_checkpoints_are_taken_and_every_chapter_happens(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = waiting.run([*COMMAND, "--until-seen"], 1800, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    seen = json.loads(ran.stdout)
    assert all(seen[each] for each in SEEN), seen
    assert list(tmp_path.iterdir()) == []


def test_it_prints_where_to_look_and_a_signal_ends_all_that_it_started(tmp_path: Path) -> None:
    with begun(tmp_path) as (running, address, log):
        assert "devhost ready" in log.read_text()
        with urllib.request.urlopen(address, timeout=180) as page:
            assert page.status == 200 and "text/html" in page.headers["content-type"]
        running.send_signal(signal.SIGHUP)
        assert waiting.ended(running, "the demonstration") == 0, running.stderr and running.stderr.read()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=180)


@pytest.mark.long
def test_what_it_started_ends_with_it_when_it_is_killed(tmp_path: Path) -> None:
    with begun(tmp_path) as (running, address, _):
        parts = urlsplit(address)
        with socket.create_connection((parts.hostname, parts.port), timeout=180) as connection:
            running.kill()
            # The app closes it when it ends, after its port.
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    with pytest.raises(OSError):
        urllib.request.urlopen(address, timeout=180)


def test_a_port_that_is_taken_is_reported_and_nobody_elses_app_is_touched(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        environment = {**os.environ, "TMPDIR": str(tmp_path), "PORT": str(port)}
        ran = waiting.run(COMMAND, cwd=ROOT, env=environment)
        taken.setblocking(False)
        with pytest.raises(BlockingIOError):
            taken.accept()
    assert ran.returncode == 1 and list(tmp_path.iterdir()) == []
    assert f"port {port} (the app)" in ran.stderr and "PORT=<port>" in ran.stderr
