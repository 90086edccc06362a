"""The version of Tocsin, such as `0.2.0.dev12+g1a2b3c4d`. The base version is set here and nowhere else.

N of `.devN` counts the commits since the last change of the line `BASE`. It is 0 where git's history is missing, and in a shallow clone it
counts only the commits that are there. Changes that are not committed do not show. The version comes from:

    an installed wheel        its metadata, which the build computed
    a clone                   git
    an output of git archive  .git_archival.txt, into which git writes the commit
    a deployed app            version.txt beside this file, which the package is made with (infra/hooks/package.py)

The build backend loads this file alone, without the package.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Final

BASE: Final = "0.2.0"
"""The version that is developed. The API's document and the packages of clients in other languages name it alone."""

_FILE: Final = "shared/core/version.py"
_PATIENCE: Final = 5.0
"""Seconds for each call of git. One takes milliseconds."""


@cache
def version() -> str:
    """Return the version. The first call in a clone runs git, for some 50 ms."""
    package = Path(__file__).resolve().parents[1]
    # The folder of an installed package may lie in the clone of another project.
    is_clone = package.name == "shared" and (package.parent / ".git").exists()
    return (_of_clone(package.parent) if is_clone else "") or recorded_version()


@cache
def recorded_version() -> str:
    """Return the version without asking git: `0.2.0.dev0` in a clone."""
    package = Path(__file__).resolve().parents[1]
    if package.name != "shared":
        return _of_wheel()
    written = package / "core" / "version.txt"
    if archived := _of_archive(package.parent):
        return archived
    if written.exists():
        return written.read_text().strip()
    return f"{BASE}.dev0"


def _of_wheel() -> str:
    # The import takes milliseconds, which only those who ask should pay.
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("tocsin")
    except PackageNotFoundError:
        return f"{BASE}.dev0"


def _of_clone(root: Path) -> str:
    """Return the version of a clone; '' if git does not name its commit."""
    commit = _git(root, "rev-parse", "--verify", "HEAD")
    if not commit:
        return ""
    # A partial clone may lack what this compares.
    changed = _git(root, "log", "-1", "--no-follow", "--no-show-signature", "--format=%H", "-G", "^BASE: ", "--", _FILE)
    count = _git(root, "rev-list", "--count", f"{changed}..{commit}") if changed else ""
    return f"{BASE}.dev{count or 0}+g{commit[:8]}"


def _of_archive(root: Path) -> str:
    """Return the version of an unpacked archive; '' if git did not write one."""
    archived = root / ".git_archival.txt"
    found = re.search(r"^commit: ([0-9a-f]{40,64})$", archived.read_text(), re.MULTILINE) if archived.exists() else None
    return f"{BASE}.dev0+g{found[1][:8]}" if found else ""


def _git(root: Path, *arguments: str) -> str:
    """Return git's answer about this clone; '' if it gives none."""
    environment = {
        # Variables of a caller, such as a hook of git, may name another repository; settings of the user may change the output.
        **{name: value for name, value in os.environ.items() if not name.startswith("GIT_")},
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_NOSYSTEM": "1",
        # A partial clone fetches nothing.
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_ALLOW_PROTOCOL": "",
    }
    command = ["git", f"--git-dir={root / '.git'}", *arguments]
    try:
        answer = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_PATIENCE, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        # No git on this machine, or one that hangs: the version only says less.
        return ""
    return answer.stdout.strip() if answer.returncode == 0 else ""
