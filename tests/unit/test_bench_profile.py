"""Profiles of worker processes: what is sampled, and how it is divided."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bench.profile.command import parse
from bench.profile.jobs import JOBS, SAMPLING, Spent
from bench.profile.sampling.sitecustomize import ROOT, layer_of
from tests.waiting import wait_until


@pytest.mark.parametrize(
    ("file", "layer"),
    [
        ("shared/scheduler/ingest/writer.py", "scheduler/ingest"),
        ("shared/scheduler/rows.py", "scheduler"),
        ("shared/web/serve.py", "web"),
        ("shared/__init__.py", ""),
        ("devhost/worker/child.py", "devhost"),
        ("bench/tools/load.py", ""),
        (".venv/lib/python3.13/site-packages/pydantic/main.py", ""),
        (".venv/lib/python3.13/site-packages/azure/functions/http.py", "worker library"),
        (".venv/lib/python3.13/site-packages/azure_functions_runtime/handle_event.py", "worker library"),
    ],
)
def test_layer_of_a_module(file: str, layer: str) -> None:
    assert layer_of(ROOT + file) == layer


BUSY = """
import time
from shared.core.durations import format_duration
print("ready", flush=True)
while True:
    format_duration(93_784_567)
"""


def test_a_process_writes_where_its_time_went_between_two_signals(tmp_path: Path) -> None:
    path = os.pathsep.join((str(SAMPLING), ROOT))
    env = {**os.environ, "PYTHONPATH": path, "BENCH_PROFILES": str(tmp_path)}
    with subprocess.Popen([sys.executable, "-c", BUSY], env=env, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == "ready\n"
            used = _ticks(process.pid)
            process.send_signal(signal.SIGUSR1)
            wait_until(lambda: _ticks(process.pid) >= used + 50, "half a second of CPU time")
            process.send_signal(signal.SIGUSR2)
            file = tmp_path / f"{process.pid}.json"
            wait_until(file.exists, "the profile")
        finally:
            process.kill()
    found = json.loads(file.read_text())
    assert found["cpu"] > 0 and found["layers"]["core"] > 0
    assert set(found["layers"]) <= {"core", "event loop"}


def _ticks(pid: int) -> int:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


def test_shares_of_the_layers_make_the_whole() -> None:
    spent = Spent("a POST", 10, {"web": 60.0, "storage": 40.0}, 5.0, 50.0, "a no-op route")
    assert spent.whole == 100.0


def test_command_takes_some_jobs_and_refuses_others(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse([]).names == list(JOBS) and parse(["post", "post"]).names == ["post"]
    with pytest.raises(SystemExit):
        parse(["get"])
    assert "invalid choice: 'get'" in capsys.readouterr().err
