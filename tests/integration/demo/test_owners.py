"""Real servers, killed with SIGKILL while a fleet channel delivers to the owners of partitions: every counter is exact."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from devhost.azurite import ROOT

EVENTS = 60


def test_counters_are_exact_although_servers_are_killed(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "devhost.demo.owners", "--events", str(EVENTS), "--kills", "2", "--seconds", "12", "--json"]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    found = json.loads(ran.stdout)
    assert sum(expected for expected, _ in found["counters"].values()) == EVENTS
    assert all(expected == counted for expected, counted in found["counters"].values())
    assert found["attempts"]["delivered"] == EVENTS
    assert list(tmp_path.iterdir()) == []
