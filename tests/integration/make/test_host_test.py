"""`make host-test` against this repository's devhost, without the restarts."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tests.making import make_command, make_environment
from tests.paths import ROOT


def test_the_devhost_passes_every_check_but_the_restarts(tmp_path: Path) -> None:
    command = make_command("host-test", "--quick")
    ran = subprocess.run(command, cwd=ROOT, env=make_environment(TMPDIR=str(tmp_path)), capture_output=True, text=True, timeout=900)
    assert [line for line in ran.stdout.splitlines() if line.startswith("FAILED")] == [], ran.stdout + ran.stderr
    assert ran.returncode == 0 and ran.stdout.endswith("all checks passed\n"), ran.stdout + ran.stderr
