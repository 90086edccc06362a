"""How far an import is: a small file beside the one that is imported, replaced after each part. One process at a time has it."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

from ...leases.node.state_file import lock

HEAD: Final = 64 * 1024
"""Bytes at a file's beginning by which it is known again."""
TAIL: Final = 4 * 1024
"""Bytes before the place it goes on from."""


class OtherImport(ValueError):
    """The progress is of another file, another app, or another way to read."""


class InUse(Exception):
    """Another process has it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Everything before `offset`, the place after line `line`, is done. The import is known by the fields before that."""

    url: str
    tenant: str
    form: str
    ids: bool
    head: str
    """Digest of the first `head_bytes` bytes of the file."""
    head_bytes: int
    offset: int = 0
    line: int = 0
    accepted: int = 0
    """Events that are new to the service."""
    known: int = 0
    """Events that it had already."""
    rejected: int = 0
    tail: str = ""
    """Digest of the last bytes before `offset`: what was put in or taken out before it would shift the lines."""
    rejects_bytes: int = 0
    """So long was the file of rejects then: what comes after it is of a part that was not done."""

    def goes_on(self, now: Progress, file: BinaryIO) -> bool:
        """Whether this is the progress of the import that `now` begins. A file that has grown since is the same."""
        same = ("url", "tenant", "form", "ids")
        if any(getattr(self, name) != getattr(now, name) for name in same):
            return False
        return head_of(file, self.head_bytes)[0] == self.head and _size(file) >= self.offset and tail_of(file, self.offset) == self.tail

    def after(self, offset: int, line: int, *, accepted: int, known: int, rejected: int, rejects_bytes: int, tail: str = "") -> Progress:
        """With another part done."""
        return replace(
            self,
            offset=offset,
            line=line,
            accepted=self.accepted + accepted,
            known=self.known + known,
            rejected=self.rejected + rejected,
            tail=tail,
            rejects_bytes=rejects_bytes,
        )


def head_of(file: BinaryIO, most: int = HEAD) -> tuple[str, int]:
    """A digest of the file's beginning, and of how many bytes."""
    file.seek(0)
    head = file.read(most)
    file.seek(0)
    return blake2b(head, digest_size=16).hexdigest(), len(head)


def tail_of(file: BinaryIO, offset: int) -> str:
    """A digest of what stands before a place of the file."""
    begin = max(0, offset - TAIL)
    file.seek(begin)
    found = file.read(offset - begin)
    file.seek(0)
    return blake2b(found, digest_size=16).hexdigest() if offset else ""


def _size(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def load(path: Path) -> Progress | None:
    """What is kept there; None where there is nothing. Raises `OtherImport` for a file that is none of ours."""
    try:
        told = json.loads(path.read_text("utf-8"))
        return Progress(**told)
    except FileNotFoundError:
        return None
    except (ValueError, TypeError):
        raise OtherImport("it is no progress of an import") from None


def save(path: Path, progress: Progress) -> None:
    """Keep it: whoever reads finds the old one or the new one, whole."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(asdict(progress)), "utf-8")
    os.replace(beside, path)


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """No other process has the progress meanwhile. Raises `InUse`; OSError where nothing can be kept."""
    # A file of its own: the other one is replaced with each part.
    beside = path.with_name(f"{path.name}.lock")
    while True:
        with beside.open("a") as file:
            try:
                lock(file)
            except (BlockingIOError, PermissionError):
                raise InUse from None
            # Whoever had it takes the file away: a lock on one that is gone keeps nobody out.
            if not _is(beside, file.fileno()):
                continue
            try:
                yield
            finally:
                # Some systems take no file away that is open: it does no harm.
                with contextlib.suppress(OSError):
                    beside.unlink()
            return


def _is(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
