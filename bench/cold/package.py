"""Makes a folder with what is deployed."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from devhost.azurite import ROOT


def build(folder: Path) -> None:
    """Copy what `.funcignore` leaves of the checkout into an empty folder, and compile it. The bytecode is used without a look at its
    source, as in a package that is mounted."""
    ignored = f"--exclude-from={ROOT / '.funcignore'}"
    kept = set(_listed("--cached")) - set(_listed("--cached", "--ignored", ignored))
    for name in sorted(kept | set(_listed("--others", "--exclude-standard", ignored))):
        source, target = ROOT / name, folder / name
        if source.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash", str(folder)], check=True)


def _listed(*options: str) -> list[str]:
    found = subprocess.run(["git", "ls-files", "-z", *options], cwd=ROOT, capture_output=True, check=True, text=True)
    return [name for name in found.stdout.split("\0") if name]
