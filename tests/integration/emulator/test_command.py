"""`tocsin imds-emulator` as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests import waiting
from tests.paths import ROOT
from tests.texts import assert_text

SCENARIO = '[[vms]]\nname = "n1"\n\n[[steps]]\nat = "PT1M"\nevent = { name = "update", vms = ["n1"], duration = 9 }\n'


def command(path: Path, *options: str) -> list[str]:
    return [sys.executable, "-m", "shared.cli", "imds-emulator", "--scenario", str(path), *options]


def run(path: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return waiting.run(command(path, *options), cwd=ROOT)


@contextmanager
def running(path: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command(path, *options), cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with bounded(process):
        yield process


@contextmanager
def bounded(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End the process on exit, and after three minutes at most, so that a reader of its output does not wait for ever."""
    limit = threading.Timer(waiting.DEADLINE, process.kill)
    limit.start()
    try:
        yield
    finally:
        limit.cancel()
        process.kill()
        process.communicate()


def lines(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


def test_a_scenario_is_played_to_its_end_in_lines_of_json(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    done = run(path, "--speed", "1000", "--port", "0", "--control-port", "0", "--json", "--until-over")
    assert (done.returncode, done.stderr) == (0, "")
    kinds = [json.loads(line)["kind"] for line in done.stdout.splitlines()]
    assert kinds == ["ready", "scheduled", "started", "impact-began", "impact-ended", "completed"]


def test_a_closed_resize_stays_readable_for_a_while(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    with running(path, "--speed", "1000", "--port", "0", "--control-port", "0", "--json", "--until-over") as process:
        output_lines = lines(process)
        url = next(output_lines)["vms"]["n1"] + "/metadata/scheduledevents?api-version=2020-07-01"
        with httpx.Client(trust_env=False, headers={"Metadata": "true"}, timeout=180) as http:
            assert http.get(url).status_code == 200
            assert any(line["kind"] == "completed" for line in output_lines)
            assert http.get(url).json()["Events"] == []
        assert waiting.ended(process, "the emulator") == 0


def test_without_a_terminal_progress_is_printed_as_plain_lines(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    done = run(path, "--speed", "1000", "--port", "0", "--control-port", "0", "--until-over")
    assert done.returncode == 0
    found = done.stdout.splitlines()
    assert found[0].startswith("n1: http://127.0.0.1:") and found[1].startswith("control: http://127.0.0.1:")
    assert found[2].split()[1:3] == ["scheduled", "update"]


def test_with_speed_0_control_moves_the_time_and_a_signal_ends_it_politely(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    for number in (signal.SIGINT, signal.SIGTERM):
        with running(path, "--speed", "0", "--port", "0", "--control-port", "0", "--json") as process:
            output_lines = lines(process)
            ready = next(output_lines)
            with httpx.Client(trust_env=False, headers={"Metadata": "true"}, timeout=180) as http:
                assert http.post(f"{ready['control']}/clock", json={"advance": "PT16M2S"}).status_code == 200
                answer = http.get(f"{ready['vms']['n1']}/metadata/scheduledevents?api-version=2020-07-01")
            assert answer.json()["Events"][0]["EventStatus"] == "Started"
            assert [next(output_lines)["kind"] for _ in range(5)] == ["scheduled", "started", "impact-began", "on", "read"]
            os.kill(process.pid, number)
            assert waiting.ended(process, "the emulator") == 0


def test_a_scenario_that_is_wrong_is_usage_and_says_where(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text('[[vms]]\nname = "n1"\n[[steps]]\ncancel = "update"\n')
    done = run(path, "--check")
    assert done.returncode == 2 and done.stdout == ""
    assert_text("scenario.command", done.stderr, place=f"{path}:3: steps[1].cancel", event="update")


def test_check_reads_and_starts_nothing(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    done = run(path, "--check")
    assert (done.returncode, done.stdout) == (0, f"{path}: machines: 1, steps: 1\n")


def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    with running(path, "--port", "0", "--control-port", "0", "--json") as process:
        port = next(lines(process))["control"].rpartition(":")[2]
        done = run(path, "--port", "0", "--control-port", port)
    assert done.returncode == 1 and f" 127.0.0.1:{port}: " in done.stderr


def test_on_a_terminal_there_is_a_table_that_goes_away_on_a_signal(tmp_path: Path) -> None:
    path = tmp_path / "s.toml"
    path.write_text(SCENARIO)
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "160", "LINES": "40"}
    arguments = command(path, "--speed", "100", "--port", "0", "--control-port", "0")
    process = subprocess.Popen(arguments, cwd=ROOT, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    with bounded(process), os.fdopen(ours, "rb", buffering=0) as terminal:
        picture = b""
        while b"starts in" not in picture:
            picture += terminal.read(65_536)
        assert b"Machines" in picture and b"update" in picture
        process.send_signal(signal.SIGTERM)
        while b"\x1b[?1049l" not in picture:
            picture += terminal.read(65_536)
        assert waiting.ended(process, "the emulator") == 0
