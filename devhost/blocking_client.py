"""Writes the blocking client and lock from those for asyncio: `python -m devhost.blocking_client`.

In each of `FOLDERS`, `concurrent.py` is the source and `blocking.py` is written. An `async` or `await` is left out, a name loses its
`Async`, and texts and comments are put into words of blocking code. What differs otherwise is behind a port that both sides have.
"""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tokenize
from pathlib import Path
from typing import Final

from devhost.azurite import ROOT

CLIENT: Final = ROOT / "shared" / "client"
FOLDERS: Final = ("sending", "operations", "resources", "locking/holding")
NAMES: Final = {"__aenter__": "__enter__", "__aexit__": "__exit__", "aclose": "close", "concurrent": "blocking"}
"""Names that do not begin with `Async`, and those of blocking code."""
PHRASES: Final = (
    (r"\b([Aa])n (`?)Async(?=[A-Z])", r"\1 \2"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"\b([Aa])n (`?)async with", r"\1 \2with"),
    (r"\basync with", "with"),
    (r"\bawait ", ""),
    ("on the event loop", "from a thread of its own"),
)
"""Expressions for parts of texts and comments, and the parts of blocking code; used in this order."""
_LEFT: Final = re.compile(r"async|await|event loop", re.IGNORECASE)
_TEXTS: Final = (tokenize.STRING, tokenize.COMMENT, tokenize.FSTRING_MIDDLE)


class LeftOver(ValueError):
    """The blocking code would hold a word of asyncio."""


def blocking(source: str) -> str:
    """Return the blocking code. Raises `LeftOver`."""
    lines, edits = source.splitlines(keepends=True), list[tuple[tuple[int, int], tuple[int, int], str]]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.NAME and token.string in ("async", "await"):
            edits.append((token.start, (token.end[0], token.end[1] + 1), ""))
        elif token.type == tokenize.NAME:
            edits.append((token.start, token.end, NAMES.get(token.string) or token.string.removeprefix("Async")))
        elif token.type in _TEXTS:
            edits.append((token.start, token.end, _reworded(_between(lines, token.start, token.end))))
    found, at = "", (1, 0)
    for start, end, text in edits:
        found += _between(lines, at, start) + text
        at = end
    found += _between(lines, at, (len(lines) + 1, 0))
    for number, line in enumerate(found.splitlines(), start=1):
        if word := _LEFT.search(line):
            raise LeftOver(
                f"line {number} of the blocking code has {word[0]!r}: {line.strip()}. Add it to PHRASES, or put it behind a port."
            )
    return found


def _between(lines: list[str], start: tuple[int, int], end: tuple[int, int]) -> str:
    if start[0] == end[0]:
        return lines[start[0] - 1][start[1] : end[1]] if start[0] <= len(lines) else ""
    last = lines[end[0] - 1][: end[1]] if end[0] <= len(lines) else ""
    return "".join([lines[start[0] - 1][start[1] :], *lines[start[0] : end[0] - 1], last])


def _reworded(text: str) -> str:
    for before, after in PHRASES:
        text = re.sub(before, after, text)
    return text


def written(folder: str) -> tuple[Path, str]:
    """Return the file that is written in a folder of the client, and its text."""
    path = CLIENT / folder / "blocking.py"
    head, quotes, rest = blocking((CLIENT / folder / "concurrent.py").read_text(encoding="utf-8")).removeprefix('"""').partition('"""')
    text = f'"""{head}\n\n`make clients` writes this file from `concurrent.py`: edit that.\n{quotes}{rest}'
    for command in (["check", "--fix", "--unsafe-fixes", "--select", "I,UP028"], ["format"]):
        arguments = [sys.executable, "-m", "ruff", *command, "--quiet", "--stdin-filename", str(path), "-"]
        text = subprocess.run(arguments, input=text, stdout=subprocess.PIPE, text=True, check=True, cwd=ROOT).stdout
    return path, text


if __name__ == "__main__":
    for path, text in map(written, FOLDERS):
        path.write_text(text, encoding="utf-8")
        print(f"{path} is written.")
