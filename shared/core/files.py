"""Atomic replacement of files: after a crash a file holds the old content or the new content, never a part."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Replace the file's content with `text` (UTF-8), or create the file. The new content is on disk when the call returns.

    Raises `OSError`; the file then has its old content or the new one.
    """
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    if os.name != "posix":
        # Windows cannot open a folder.
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
