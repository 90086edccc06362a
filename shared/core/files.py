"""Files that are whole whatever happens: the old content or the new, and the new one on disk when the call returns."""

from __future__ import annotations

import os
from pathlib import Path


def replace_file(path: Path, text: str) -> None:
    """Put `text` (UTF-8) in place of the file, or make it: beside it, flushed, renamed, the folder flushed. Raises `OSError`: it is as it
    was, or as told."""
    beside = path.with_suffix(".new")
    with beside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)
    if os.name != "posix":
        # A folder cannot be opened there.
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
