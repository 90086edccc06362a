"""The progress of an import: a small file beside the imported file, replaced after each part. One process at a time may use it."""

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
"""Bytes at the beginning of a file by which it is recognized."""
TAIL: Final = 4 * 1024
"""Bytes before the position at which an import resumes. They must not have changed since."""


class OtherImport(ValueError):
    """The progress belongs to another file or app, or to other import options."""


class ProgressInUse(Exception):
    """Another process uses the progress file."""


@dataclass(frozen=True, slots=True)
class ImportProgress:
    """Everything before `offset`, which is the position after line `line`, is done. The fields before these two identify the import."""

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
    """Events that were new to the service."""
    known: int = 0
    """Events that the service already had."""
    rejected: int = 0
    tail: str = ""
    """Digest of the last bytes before `offset`. It shows whether lines were inserted or removed before that position."""
    rejects_bytes: int = 0
    """Length of the file of rejects at that time. Bytes after it belong to a part that was not finished."""
    in_doubt: tuple[tuple[int, int, int], ...] = ()
    """Parts after `offset` that were being sent: first and last line, and the number of events that must not be sent twice."""

    @property
    def doubtful_events(self) -> int:
        """Events that must not be sent twice, and of which it is not known whether they are stored."""
        return sum(events for _, _, events in self.in_doubt)

    def is_doubtful(self, line: int) -> bool:
        """Return True if the line was being sent."""
        return any(first <= line <= last for first, last, _ in self.in_doubt)

    def is_continuation(self, now: ImportProgress, file: BinaryIO) -> bool:
        """Return True if this progress belongs to the import that `now` begins. A file that has grown since is the same file."""
        same = ("url", "tenant", "form", "ids")
        if any(getattr(self, name) != getattr(now, name) for name in same):
            return False
        return head_of(file, self.head_bytes)[0] == self.head and _size(file) >= self.offset and tail_of(file, self.offset) == self.tail

    def after(
        self, offset: int, line: int, *, accepted: int, known: int, rejected: int, rejects_bytes: int, tail: str = ""
    ) -> ImportProgress:
        """Return the progress after another part."""
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
    """Return a digest of the file's beginning, and the number of bytes it covers."""
    file.seek(0)
    head = file.read(most)
    file.seek(0)
    return blake2b(head, digest_size=16).hexdigest(), len(head)


def tail_of(file: BinaryIO, offset: int) -> str:
    """Return a digest of the bytes before a position of the file; an empty text for its beginning."""
    begin = max(0, offset - TAIL)
    file.seek(begin)
    found = file.read(offset - begin)
    file.seek(0)
    return blake2b(found, digest_size=16).hexdigest() if offset else ""


def _size(file: BinaryIO) -> int:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    return size


def load(path: Path) -> ImportProgress | None:
    """Return the stored progress, or None if there is none. Raises `OtherImport` for a file that is not the progress of an import."""
    try:
        found = json.loads(path.read_text("utf-8"))
        return ImportProgress(**found | {"in_doubt": tuple((first, last, events) for first, last, events in found.get("in_doubt", ()))})
    except FileNotFoundError:
        return None
    except (ValueError, TypeError, AttributeError):
        raise OtherImport("the file is not the progress of an import") from None


def save(path: Path, progress: ImportProgress) -> None:
    """Store the progress. A reader finds the old file or the new file, never a part of one."""
    beside = path.with_name(f"{path.name}.new")
    beside.write_text(json.dumps(asdict(progress)), "utf-8")
    os.replace(beside, path)


@contextlib.contextmanager
def exclusive_progress(path: Path) -> Iterator[None]:
    """Keep other processes from using the progress meanwhile. Raises `ProgressInUse`; OSError if the lock file cannot be written."""
    # A separate file is locked, because the progress file is replaced after each part.
    beside = path.with_name(f"{path.name}.lock")
    while True:
        with beside.open("a") as file:
            try:
                lock(file)
            except (BlockingIOError, PermissionError):
                raise ProgressInUse from None
            # The process that had the lock deletes the file at its end. A lock on a deleted file excludes no other process.
            if not _is_same_file(beside, file.fileno()):
                continue
            try:
                yield
            finally:
                # Some systems do not delete an open file. The file that is left does no harm.
                with contextlib.suppress(OSError):
                    beside.unlink()
            return


def _is_same_file(path: Path, opened: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(opened))
    except FileNotFoundError:
        return False
