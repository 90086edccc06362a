"""The file in which a replica keeps its last checkpoint, and an unanswered publish, over restarts."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core.errors import TocsinError
from ...core.files import replace_file
from ...leases.node.state_file import NameInUse, lock

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MadeCheckpoint:
    """A finished checkpoint of a turn. sequence: up to which it applies, 1 or more. location: where it is stored. bytes: its size."""

    epoch: int
    sequence: int
    location: str
    bytes: int = 0

    def body(self, node: str) -> dict[str, Any]:
        """Return the body of the publish request."""
        return {"node": node, "sequence": self.sequence, "location": self.location, "bytes": self.bytes}


@dataclass(frozen=True, slots=True)
class ReplicaMemory:
    """The content of the file. last: sequence of the last checkpoint, 0 for none. unpublished: a checkpoint without an answered publish."""

    last: int = 0
    unpublished: MadeCheckpoint | None = None


class ReplicaFile:
    """The file of one replica, in a folder on a local disk. One process at a time holds its lock."""

    def __init__(self, folder: Path, fleet: str, node: str) -> None:
        """Take the file's lock. Raises `NameInUse` when another process has it, `TocsinError` when the folder cannot be used."""
        self.path = folder / f"{quote(fleet, safe='')}~{quote(node, safe='')}.turns"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # The lock is on a file of its own, because each change replaces the other one.
            opened = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise TocsinError(f"the file of replica {node!r} cannot be opened in {folder}: {error.strerror}") from None
        self._writing = threading.Lock()
        self._lock = os.fdopen(opened, "r+", encoding="utf-8")
        try:
            lock(self._lock)
        except OSError:
            self._lock.close()
            raise NameInUse(f"another process on this machine is replica {node!r}: it holds the lock on {self.path.name}") from None

    def read(self) -> ReplicaMemory:
        """Return the content; the empty state if there is no file or it cannot be read."""
        try:
            stored = json.loads(self.path.read_text(encoding="utf-8"))
            unpublished = stored["unpublished"]
            return ReplicaMemory(int(stored["last"]), None if unpublished is None else MadeCheckpoint(**unpublished))
        except FileNotFoundError:
            return ReplicaMemory()
        except (OSError, ValueError, KeyError, TypeError) as error:
            text = "%s cannot be read (%s): this replica starts without a last checkpoint"
            log.warning(text, self.path, type(error).__name__, extra={"action": "turn_memory_lost"})
            return ReplicaMemory()

    def write(self, memory: ReplicaMemory) -> None:
        """Replace the file; it is on disk when this returns. Raises `TocsinError` if that fails, and leaves the file as it was."""
        try:
            # A write whose publish was cancelled may still be under way on its thread.
            with self._writing:
                replace_file(self.path, json.dumps(asdict(memory)))
        except OSError as error:
            raise TocsinError(f"{self.path} cannot be written: {error.strerror}") from None

    def close(self) -> None:
        """Release the lock. The file stays."""
        with contextlib.suppress(OSError):
            self._lock.close()
