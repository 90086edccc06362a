"""`tocsin agent`, on a machine that may fail: killed at a point of its journal, booted again, with a full disk.

CRASH    "before PREPARED" or "after PREPARED": killed once, when the state file is about to say so, or has just said so.
         INTENT stands for an approval that was decided on and is not answered yet.
BOOT     the file that holds the machine's boot id
FULL     while this file exists, the disk takes nothing
"""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

from shared.cli.main import main
from shared.maintenance.agent import service
from shared.maintenance.agent.journal import STATE, DiskFolder


class Failing(DiskFolder):
    """A folder that the process may not survive to write."""

    def write(self, name: str, data: bytes) -> None:
        if (full := os.environ.get("FULL")) and Path(full).exists():
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(name, data)

    def rename(self, name: str, new: str) -> None:
        when, _, what = os.environ.get("CRASH", "").partition(" ")
        hit = new == STATE and what in _phases(self.read(name) or b"")
        if hit and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().rename(name, new)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)


def _phases(data: bytes) -> set[str]:
    records = json.loads(data.partition(b"\n")[0])["events"]
    intents = {"INTENT" for record in records if record["approve_intent"] is not None and record["approved_at"] is None}
    return intents | {record["phase"] for record in records}


if __name__ == "__main__":
    service.DiskFolder = Failing  # type: ignore[misc]
    if "BOOT" in os.environ:
        service.BOOT = Path(os.environ["BOOT"])  # type: ignore[misc]
    main()
