"""Trace lines in temporary files, so that a trace may be larger than memory. Each file holds whole partitions, which are verified alone."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from tempfile import SpooledTemporaryFile
from typing import Final, Self

from .lines import TraceLine, parse_line

PARTS: Final = 64
"""Number of files. Memory holds the lines of one of them at a time."""
IN_MEMORY: Final = 512 * 1024
"""Bytes of a file that stay in memory; longer ones go to the disk, where temporary files go (TMPDIR)."""


class LineNumbers:
    """The numbers of lines that were found, by process: a bit for each."""

    def __init__(self) -> None:
        self._words: defaultdict[str, defaultdict[int, int]] = defaultdict(lambda: defaultdict(int))

    def add(self, by: str, number: int) -> None:
        """Note a line."""
        self._words[by][number >> 10] |= 1 << (number & 1023)

    @property
    def processes(self) -> int:
        """The number of processes."""
        return len(self._words)

    @property
    def missing(self) -> int:
        """The number of lines that are missing between the first and the last one of each process."""
        missing = 0
        for words in self._words.values():
            first, last = min(words), max(words)
            low = (first << 10) + (words[first] & -words[first]).bit_length() - 1
            high = (last << 10) + words[last].bit_length() - 1
            missing += high - low + 1 - sum(word.bit_count() for word in words.values())
        return missing


class TraceSpool:
    """Takes lines, and gives them back by partition. As a context manager it removes its files."""

    def __init__(self) -> None:
        self.numbers = LineNumbers()
        self.lines = 0
        self._stack = ExitStack()
        self._files = [self._stack.enter_context(SpooledTemporaryFile(IN_MEMORY)) for _ in range(PARTS)]  # noqa: SIM115

    def add(self, line: TraceLine, body: bytes) -> None:
        """Take a line with its JSON."""
        self.lines += 1
        self.numbers.add(line.by, line.number)
        self._files[zlib.crc32(f"{line.kind}:{line.partition}".encode()) % PARTS].write(body + b"\n")

    def parts(self) -> Iterator[list[TraceLine]]:
        """Yield the lines of each file."""
        for file in self._files:
            file.seek(0)
            yield [parse_line(body) for body in file]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()
