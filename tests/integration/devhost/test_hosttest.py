"""The black-box test of a Functions host, against the devhost."""

import os
import subprocess
import sys

import pytest

from devhost.azurite import ROOT
from devhost.hosttest.driver import PORT, host_under_test
from tests import waiting


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "devhost.hosttest", *arguments]
    return waiting.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin", **environment})


DEVHOST = f"PORT={PORT} AZURITE=off exec {sys.executable} -m devhost --no-receiver"
"""The devhost as any other host is started: by a shell command."""


def test_storage_must_be_named_beside_a_host_that_runs_already() -> None:
    result = run(HOST_URL="http://127.0.0.1:9")
    assert result.returncode == 2 and "HOST_URL needs HOST_STORAGE" in result.stderr


def test_the_command_of_the_host_needs_a_place_for_the_port() -> None:
    result = run("--integration", HOST_START="func start")
    assert result.returncode == 2 and "with {port} in it" in result.stderr


def test_the_port_stands_in_both_commands_and_in_the_address() -> None:
    found = host_under_test({"HOST_START": "func start --port {port}", "HOST_STOP": "stop {port}"}, {})
    assert found is not None
    port = found.url.rpartition(":")[2]
    assert port.isdecimal() and (found.start, found.stop) == (f"func start --port {port}", f"stop {port}")
    assert host_under_test({}, {}) is None


def test_a_host_that_cannot_start_is_named_with_its_output() -> None:
    result = run(HOST_START="exit 7 # {port}")
    assert result.returncode != 0 and "the host ended with 7" in result.stderr


def test_tests_run_on_any_host_and_leave_out_what_needs_the_devhost_with_the_reason() -> None:
    chosen = "seen_in_the_terminal or only_to_the_version_that_was_seen"
    result = run("--integration", "-k", chosen, "-p", "no:cacheprovider", HOST_START=DEVHOST, PATH=os.environ["PATH"])
    assert result.returncode == 0 and "1 passed, 1 skipped" in result.stdout, result.stdout + result.stderr
    assert "needs the devhost: it shows failed deliveries in the terminal" in result.stdout


@pytest.mark.long
def test_the_devhost_passes_every_check_restarts_included() -> None:
    result = run()
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "left"))]
    assert lines == [] and result.stdout.endswith("all checks passed\n"), result.stdout + result.stderr
