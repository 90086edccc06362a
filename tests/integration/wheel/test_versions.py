"""The version of wheels that are built in a clone and in an archive: it is in their metadata, where the package reads it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from shared.core.version import BASE
from tests.paths import ROOT

NEEDED = ("pyproject.toml", "README.md", "LICENSE", "requirements-agent.txt", ".gitattributes", ".gitignore", ".git_archival.txt")
NOBODY = {f"GIT_{who}_{what}": "nobody@example.com" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}


def run(*command: str | Path, cwd: Path, **more: str) -> str:
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | NOBODY | more
    done = subprocess.run([*map(str, command)], cwd=cwd, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone with the part of the package that has the version, and two commits after the first."""
    folder = tmp_path_factory.mktemp("clone")
    hook = "devhost/dependencies/wheel_metadata.py"
    (folder / hook).parent.mkdir(parents=True)
    shutil.copy(ROOT / hook, folder / hook)
    for name in NEEDED:
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "shared" / "core", folder / "shared" / "core", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "shared" / "__init__.py", folder / "shared")
    run("git", "init", "-q", cwd=folder)
    run("git", "add", "-A", cwd=folder)
    for number in range(3):
        run("git", "commit", "-q", "--allow-empty", "-m", f"change {number}", cwd=folder)
    return folder


@pytest.mark.parametrize(("source", "count"), [("clone", 2), ("archive", 0)])
def test_a_wheel_has_the_version_of_the_commit_it_was_built_from(source: str, count: int, clone: Path, tmp_path: Path) -> None:
    folder = clone
    if source == "archive":
        run("git", "archive", "--prefix=unpacked/", "-o", tmp_path / "archive.tar", "HEAD", cwd=clone)
        run("tar", "-xf", "archive.tar", cwd=tmp_path)
        folder = tmp_path / "unpacked"
    pip = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    run(*pip, "wheel", "--no-deps", "--no-index", "--no-build-isolation", "--wheel-dir", tmp_path, ".", cwd=folder)
    [wheel] = tmp_path.glob("*.whl")
    version = f"{BASE}.dev{count}+g{run('git', 'rev-parse', 'HEAD', cwd=clone)[:8]}"
    assert wheel.name == f"tocsin-{version}-py3-none-any.whl"
    # In the clone, where a package must not take the version of what lies around it.
    look = "from tocsin.core.version import version; print(version())"
    assert run(sys.executable, "-c", look, cwd=clone, PYTHONPATH=str(wheel)) == version
