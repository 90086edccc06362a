"""The black-box test of a Functions host, against the devhost."""

import subprocess
import sys

import pytest

from devhost.azurite import ROOT
from tests import waiting


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "devhost.hosttest", *arguments]
    return waiting.run(command, cwd=ROOT, env={"PATH": "/usr/bin:/bin", **environment})


def test_storage_must_be_named_beside_the_host() -> None:
    result = run(HOST_URL="http://127.0.0.1:9")
    assert result.returncode == 2 and "HOST_URL needs HOST_STORAGE" in result.stderr


@pytest.mark.long
def test_the_devhost_passes_every_check_restarts_included() -> None:
    result = run()
    lines = [line for line in result.stdout.splitlines() if line.startswith(("FAILED", "left"))]
    assert lines == [] and result.stdout.endswith("all checks passed\n"), result.stdout + result.stderr
