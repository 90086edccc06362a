"""Shows how far a long step of setup.sh is: packages of packages and MB of MB, at intervals, until its parent ends.

    setup_progress.py LOG SECONDS PART [LOCK...]

PART names a line of setup_sizes.txt. LOG is the output of pip; without locks the step is npm, which writes into node_modules.
It runs before anything is installed: standard library alone.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# Packages that no Linux machine installs.
_ELSEWHERE = re.compile(r"sys_platform == '(win32|darwin)'|platform_system == '(Windows|Darwin)'")


def megabytes(folder: Path) -> int:
    """Return the space that the files of the folder take. Files may come and go meanwhile."""
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
            except FileNotFoundError:
                continue
    return round(total / 1_000_000)


def packages_of(locks: Sequence[Path]) -> int:
    """Return the number of packages that the locks name for this machine."""
    lines = [line for lock in locks for line in lock.read_text().splitlines() if re.match(r"[a-z0-9-]+(\[.*\])?==", line)]
    return len([line for line in lines if not _ELSEWHERE.search(line)])


def sizes() -> dict[str, int]:
    """Return the MB on disk of each part."""
    lines = (FOLDER / "setup_sizes.txt").read_text().splitlines()
    return {name: int(size) for name, size in (line.split() for line in lines if line and not line.startswith("#"))}


def pip_line(log: str, installed: int, packages: int, there: int, expected: int) -> str:
    """Return the state of pip: it collects all packages, then installs one after the other.

    installed: packages in the environment. there: MB in it. expected: MB at the end.
    """
    if "Installing collected packages" not in log:
        found = len(re.findall(r"^(?:Collecting|Requirement already satisfied:) ", log, re.MULTILINE))
        return f"{min(found, packages)} of {packages} packages fetched"
    return f"{min(installed, packages)} of {packages} packages installed, {min(there, expected)} of {expected} MB"


def main(log: Path, pause: float, part: str, locks: Sequence[Path]) -> None:
    """Print a line at intervals."""
    began, parent, expected = time.monotonic(), os.getppid(), sizes()[part]
    packages = packages_of(locks)
    while True:
        time.sleep(pause)
        if os.getppid() != parent:
            return
        if locks:
            installed = len(list(Path(".venv").glob("lib/python3*/site-packages/*.dist-info")))
            line = pip_line(log.read_text(errors="replace"), installed, packages, megabytes(Path(".venv")), expected)
        else:
            line = f"{min(megabytes(Path('node_modules')), expected)} of {expected} MB"
        print(f"setup:   {time.monotonic() - began:.0f} s  {line}", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), float(sys.argv[2]), sys.argv[3], [Path(each) for each in sys.argv[4:]])
