"""Measures how much space each part of the set-up takes, and writes devhost/setup_sizes.txt: `python -m devhost.dependencies.sizes`.

A part of .venv is what its lock pins, as it is installed here, with pip, which each .venv has.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from ..setup_progress import megabytes
from .locks import pins_of

ROOT = Path(__file__).resolve().parents[2]
SIZES = ROOT / "devhost" / "setup_sizes.txt"
LOCKS = {
    "run": ("requirements-run.txt",),
    "docs": ("requirements-docs.txt",),
    "audit": ("requirements-audit.txt",),
    "dev": ("requirements-dev.txt", "requirements-generators.txt"),
}


def measured() -> dict[str, int]:
    """Return the MB of each part."""
    found = {part: sum(map(_bytes_of, {"pip", *_names(locks)})) for part, locks in LOCKS.items()}
    return {**{part: round(size / 1_000_000) for part, size in found.items()}, "node_modules": megabytes(ROOT / "node_modules")}


def _names(locks: tuple[str, ...]) -> set[str]:
    return {name for lock in locks for name in pins_of((ROOT / lock).read_text())}


def _bytes_of(name: str) -> int:
    """Return the space that the installed package takes; 0 if it is not installed."""
    try:
        files = distribution(name).files or ()
    except PackageNotFoundError:
        return 0
    return sum(path.lstat().st_blocks * 512 for path in (Path(str(each.locate())) for each in files) if path.exists())


def main() -> int:
    """Write the file."""
    [head, *_] = SIZES.read_text().splitlines()
    SIZES.write_text("\n".join([head, *(f"{part} {size}" for part, size in measured().items())]) + "\n")
    print(SIZES.read_text(), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
