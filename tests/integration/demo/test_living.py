"""`make demo` lives: everything that the dashboard is to show happens in it, and nothing is left when it ends."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from devhost.azurite import ROOT

COMMAND = [sys.executable, "-m", "devhost.demo.living"]


@pytest.mark.long
def test_events_are_delivered_retried_and_die_checkpoints_are_taken_and_hosts_updated(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run([*COMMAND, "--until-seen"], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    seen = json.loads(ran.stdout)
    assert all(seen[each] for each in ("delivered", "retried", "dead", "checkpoints", "updates")), seen
    assert list(tmp_path.iterdir()) == []


def test_it_tells_where_to_look_and_ends_with_all_that_it_started(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PORT": ""}
    with subprocess.Popen(COMMAND, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout is not None and running.stderr is not None
            address = re.search(r"http://127.0.0.1:\d+/api/dashboard", running.stdout.readline())
            assert address is not None
            with urllib.request.urlopen(address[0], timeout=60) as page:
                assert page.status == 200 and "text/html" in page.headers["content-type"]
            running.send_signal(signal.SIGINT)
            assert running.wait(120) == 0, running.stderr.read()
        finally:
            running.kill()
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(OSError):
        urllib.request.urlopen(address[0], timeout=60)
