"""Real servers, killed with SIGKILL while a fleet channel delivers to the owners of partitions: every counter is exact."""

from __future__ import annotations

import json
from pathlib import Path

from devhost.azurite import ROOT
from tests import waiting
from tests.making import make_command, make_environment

EVENTS = 60


def test_counters_are_exact_although_servers_are_killed(tmp_path: Path) -> None:
    command = [*make_command("demo-owners", f"--events {EVENTS} --kills 2 --seconds 12 --json"), "--silent"]
    environment = make_environment(TMPDIR=str(tmp_path))
    ran = waiting.run(command, cwd=ROOT, env=environment)
    assert ran.returncode == 0, ran.stderr + ran.stdout
    found = json.loads(ran.stdout)
    assert sum(expected for expected, _ in found["counters"].values()) == EVENTS
    assert all(expected == counted for expected, counted in found["counters"].values())
    assert found["attempts"]["delivered"] == EVENTS
    assert list(tmp_path.iterdir()) == []
