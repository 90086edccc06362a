"""The proof that a predecessor is gone: a file per server name that its process keeps locked, with the incarnations it was.

Whoever holds the lock on the file of that name, on the same boot of the same machine, knows that every process that wrote it has ended: the
operating system lets go of a lock with the process. A process that is merely stopped keeps its lock. The boot's id is part of the proof,
since a copied disk brings a copy of the file; where the system has none, nothing is proven, and T is waited for as by anybody.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import IO, Final

from ...core.errors import TocsinError

log = logging.getLogger(__name__)

_BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
_KEPT: Final = 8


class NameInUse(TocsinError):
    """A living server has this name."""


def boot_id() -> str:
    """An id of this boot of the machine, '' where the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class StateFile:
    """The locked file of one server name. On a local disk: locks of network file systems prove nothing."""

    def __init__(self, folder: Path, fleet: str, server: str) -> None:
        """Locks the file, which is created when missing. Raises `NameInUse` when another process has it locked, `TocsinError` when the
        folder cannot keep it."""
        self.path = folder / f"{fleet.replace(':', '~')}~{server}.lease"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Not inherited by children that are started: they must not keep the lock.
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TocsinError(f"the folder {folder} cannot keep the file of server {server!r}: {error.strerror}") from None
        self._file: IO[str] = os.fdopen(opened, "r+", encoding="utf-8")
        try:
            lock(self._file)
        except OSError:
            self._file.close()
            raise NameInUse(f"another process on this machine is server {server!r}: it holds the lock on {self.path.name}") from None
        self._gone = self._read()

    def _read(self) -> list[str]:
        boot = boot_id()
        try:
            stored = json.loads(self._file.read() or "{}")
            found = [str(each) for each in stored["incarnations"]]
            return found if boot and stored["boot"] == boot else []
        except (ValueError, KeyError, TypeError):
            # Cut short by a crash, or empty: no proof.
            return []

    def begin(self, incarnation: str) -> tuple[str, ...]:
        """Note an incarnation, on disk when this returns, before it is registered. Returns those that are proven gone. Where the disk does
        not take it, nothing will be proven of this one."""
        gone = tuple(self._gone)
        self._gone = [incarnation, *gone][:_KEPT]
        try:
            self._file.seek(0)
            self._file.truncate()
            json.dump({"boot": boot_id(), "incarnations": self._gone}, self._file)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            text = "%s cannot be written (%s): a restart after a crash waits for T"
            log.warning(text, self.path, error.strerror, extra={"action": "lease_proof_failed"})
        return gone

    def close(self) -> None:
        """Let go of the lock; the file stays."""
        # What a full disk did not take is told already; the lock goes all the same.
        with contextlib.suppress(OSError):
            self._file.close()


if sys.platform == "win32":
    import msvcrt

    def lock(file: IO[str]) -> None:
        """Lock the file for this process, at once or not at all: OSError."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(file: IO[str]) -> None:
        """Lock the file for this process, at once or not at all: OSError."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
