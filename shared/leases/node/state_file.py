"""The proof that an earlier process has ended: a locked file per server name with the incarnations of its processes.

A process that holds the lock, on the same boot of the same machine, knows that every process that wrote the file has ended: the operating
system releases a lock when the process ends, and a suspended process keeps it. The boot id is part of the proof, because a copied disk
contains a copy of the file. On a system without boot ids nothing is proven, and the server waits T.
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
    """A live server has this name."""


def boot_id() -> str:
    """Return an id of this boot of the machine; '' if the system has none."""
    try:
        return _BOOT.read_text().strip()
    except OSError:
        return ""


class StateFile:
    """The locked file of one server name. It must be on a local disk: locks of network file systems prove nothing."""

    def __init__(self, folder: Path, fleet: str, server: str) -> None:
        """Create the file if needed, and lock it.

        Raises `NameInUse` if another process has locked it, and `TocsinError` if the folder cannot hold it.
        """
        self.path = folder / f"{fleet.replace(':', '~')}~{server}.lease"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # Child processes must not inherit the file: they would keep the lock.
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TocsinError(f"folder {folder} cannot hold the state file of server {server!r}: {error.strerror}") from None
        self._file: IO[str] = os.fdopen(opened, "r+", encoding="utf-8")
        try:
            lock(self._file)
        except OSError:
            self._file.close()
            text = f"another process on this machine is server {server!r}: it has locked {self.path}; stop it or choose another name"
            raise NameInUse(text) from None
        self._gone = self._read()

    def _read(self) -> list[str]:
        boot = boot_id()
        try:
            stored = json.loads(self._file.read() or "{}")
            found = [str(each) for each in stored["incarnations"]]
            return found if boot and stored["boot"] == boot else []
        except (ValueError, KeyError, TypeError):
            # The file is empty, or was cut off by a crash: it proves nothing.
            return []

    def begin(self, incarnation: str) -> tuple[str, ...]:
        """Record an incarnation on disk before it is registered. Return the incarnations that have certainly ended.

        If the disk refuses the write, the incarnation will never count as ended by proof.
        """
        gone = tuple(self._gone)
        self._gone = [incarnation, *gone][:_KEPT]
        try:
            self._file.seek(0)
            self._file.truncate()
            json.dump({"boot": boot_id(), "incarnations": self._gone}, self._file)
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            text = "%s cannot be written (%s): a restart after a crash will wait for T"
            log.warning(text, self.path, error.strerror, extra={"action": "lease_proof_failed"})
        return gone

    def close(self) -> None:
        """Release the lock. The file stays."""
        # An error of a full disk has been logged before; the lock is released anyway.
        with contextlib.suppress(OSError):
            self._file.close()


if sys.platform == "win32":
    import msvcrt

    def lock(file: IO[str]) -> None:
        """Lock the file for this process without waiting. Raises OSError."""
        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)

else:
    import fcntl

    def lock(file: IO[str]) -> None:
        """Lock the file for this process without waiting. Raises OSError."""
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
