"""The measurement of cost, with the app in its groups of functions on the storage emulator."""

from __future__ import annotations

import json
import sys

import pytest

from tests import waiting
from tests.paths import ROOT


@pytest.mark.long
def test_an_idle_app_is_measured() -> None:
    command = [sys.executable, "-m", "bench", "cost", "--only", "idle", "--quick", "--memory", "512", "--json"]
    ran = waiting.run(command, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout)
    [idle] = found["loads"]
    assert found["failed"] == {} and (idle["load"], idle["unit"], idle["memory_mb"]) == ("idle", "month", 512)
    # The timers ran, asked storage, and were billed for a second each at least.
    assert idle["executions"] > 0 and idle["operations"]["table"] > 0
    assert sum(idle["billed_seconds"].values()) >= sum(idle["executions_by_function"].values()) * 0.9
    assert idle["measured"]["events"] == 0 and idle["operations"]["polls"] == 0
