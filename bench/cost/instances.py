"""Limits the processes of an app to the processor and the memory of an instance.

Uses control groups (version 1 or 2) if this process may create them; otherwise it stops each process for a part of each tenth of a second.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, Protocol

from ..tools import machine

CORES: Final[Mapping[int, float]] = {512: 0.25, 2048: 1.0, 4096: 2.0}
"""Cores of an instance by its memory in MB."""
LOOK: Final = 0.02
"""Seconds between two searches for new processes."""
PERIOD: Final = 0.1
"""Seconds in which a process gets its share."""
_ROOT: Final = Path("/sys/fs/cgroup")


class Limit(Protocol):
    """Limits processes to an instance's size."""

    name: str

    def add(self, pid: int) -> None:
        """Limit a process."""

    async def close(self) -> None:
        """Remove all limits."""


class Groups:
    """A control group for each process."""

    def __init__(self, memory_mb: int) -> None:
        self._unified = (_ROOT / "cgroup.controllers").exists()
        self.name = f"control groups of version {2 if self._unified else 1}"
        quota = round(CORES[memory_mb] * PERIOD * 1e6)
        period = round(PERIOD * 1e6)
        size = memory_mb * 1024 * 1024
        if self._unified:
            self._files = {_ROOT: {"cpu.max": f"{quota} {period}", "memory.max": str(size)}}
        else:
            self._files = {
                _ROOT / "cpu": {"cpu.cfs_period_us": str(period), "cpu.cfs_quota_us": str(quota)},
                _ROOT / "memory": {"memory.limit_in_bytes": str(size)},
            }
        self._made: list[Path] = []

    def add(self, pid: int) -> None:
        """See `Limit`. Raises OSError."""
        for root, files in self._files.items():
            folder = root / f"tocsin-cost-{os.getpid()}-{pid}"
            folder.mkdir()
            self._made.append(folder)
            for name, text in files.items():
                (folder / name).write_text(text)
            (folder / "cgroup.procs").write_text(str(pid))

    async def close(self) -> None:
        """See `Limit`."""
        for _ in range(100):
            self._made = [folder for folder in self._made if not _removed(folder)]
            if not self._made:
                return
            # The processes have not ended yet.
            await asyncio.sleep(0.1)


def _removed(folder: Path) -> bool:
    try:
        folder.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Pauses:
    """Stops each process for a part of each period. This is less exact: a process that has nothing to do loses that time too."""

    def __init__(self, memory_mb: int) -> None:
        self.name = "pauses"
        self._share = CORES[memory_mb]
        self._tasks: list[asyncio.Task[None]] = []

    def add(self, pid: int) -> None:
        """See `Limit`."""
        if self._share < 1:
            self._tasks.append(asyncio.create_task(self._pace(pid)))

    async def _pace(self, pid: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            try:
                while True:
                    await asyncio.sleep(PERIOD * self._share)
                    os.kill(pid, signal.SIGSTOP)
                    await asyncio.sleep(PERIOD * (1 - self._share))
                    os.kill(pid, signal.SIGCONT)
            finally:
                os.kill(pid, signal.SIGCONT)

    async def close(self) -> None:
        """See `Limit`."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def limit_for(memory_mb: int) -> Limit:
    """Return the best limit that this process may use."""
    groups = Groups(memory_mb)
    probe = (_ROOT if (_ROOT / "cgroup.controllers").exists() else _ROOT / "cpu") / f"tocsin-cost-{os.getpid()}-probe"
    try:
        probe.mkdir()
        try:
            (probe / ("cpu.max" if (_ROOT / "cgroup.controllers").exists() else "cpu.cfs_quota_us")).stat()
        finally:
            probe.rmdir()
    except OSError:
        return Pauses(memory_mb)
    return groups


@asynccontextmanager
async def limits(memory_mb: int) -> AsyncIterator[Limit]:
    """Yield a limit that ends with the context, in which the processes must have ended."""
    limit = limit_for(memory_mb)
    try:
        yield limit
    finally:
        await limit.close()


@asynccontextmanager
async def limited(pid: int, limit: Limit) -> AsyncIterator[None]:
    """Limit each worker process of a devhost, also those that it starts later."""
    known: set[int] = set()

    async def watch() -> None:
        while True:
            for worker in machine.workers(pid):
                if worker not in known:
                    known.add(worker)
                    with contextlib.suppress(ProcessLookupError):
                        limit.add(worker)
            await asyncio.sleep(LOOK)

    task = asyncio.create_task(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
