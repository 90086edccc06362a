"""Holds a measurement's processes to the size of an instance on Flex Consumption, by control groups of Linux (version 1 or 2)."""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path("/sys/fs/cgroup")
PERIOD: Final = 100_000
"""Microseconds in which a group may use its share of CPU time."""
CORES: Final = {512: 0.25, 2048: 1.0, 4096: 2.0}
"""Cores of an instance, by its size in MB."""
PLATFORM: Final = 272
"""MB that an instance has beside its size, for the platform's own processes."""


HELD: ContextVar[Instance | None] = ContextVar("HELD", default=None)
"""The instance to whose size the apps of a measurement are held. Storage, receivers and clients never are."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--as`, the size to which a measurement's apps are held."""
    text = "hold the app's processes to an instance of this many MB on Flex Consumption (control groups of Linux, as root)"
    parser.add_argument("--as", dest="size", type=int, choices=CORES, metavar="|".join(map(str, CORES)), help=text)


class NotHeldError(Exception):
    """This machine does not let the processes be held. The message says why."""


@dataclass(slots=True)
class Instance:
    """The limits of an instance. groups: the folders of the control groups that its processes join."""

    size: int
    groups: tuple[Path, ...]
    processes: int = field(default=0, init=False)
    """Number of processes that were held."""

    def command(self, arguments: Sequence[str]) -> list[str]:
        """Return the command that joins the groups and then becomes `arguments`, so that its own children are held too."""
        self.processes += 1
        joins = "".join(f"echo $$ > {shlex.quote(str(group / 'cgroup.procs'))} && " for group in self.groups)
        return ["sh", "-c", f"{joins}exec {shlex.join(arguments)}"]

    def paused(self) -> float:
        """Return the seconds for which the processes had to wait for their share of CPU time."""
        for group in self.groups:
            for line in _read(group / "cpu.stat").splitlines():
                match line.split():
                    case ["throttled_usec", value]:
                        return int(value) / 1e6
                    case ["throttled_time", value]:
                        return int(value) / 1e9
        return 0.0


@contextlib.contextmanager
def instance(size: int, root: Path = ROOT) -> Iterator[Instance]:
    """Make the control groups of an instance of `size` MB, and remove them at the end. Raises `NotHeldError`."""
    name = f"bench-{os.getpid()}-{time.monotonic_ns()}"
    quota, memory = round(CORES[size] * PERIOD), (size + PLATFORM) * 2**20
    second = (root / "cgroup.controllers").exists()
    if second:
        limits = {root / name: {"cpu.max": f"{quota} {PERIOD}", "memory.max": str(memory)}}
    else:
        limits = {
            root / "cpu" / name: {"cpu.cfs_period_us": str(PERIOD), "cpu.cfs_quota_us": str(quota)},
            root / "memory" / name: {"memory.limit_in_bytes": str(memory)},
        }
    try:
        if second:
            (root / "cgroup.subtree_control").write_text("+cpu +memory")
        for group, files in limits.items():
            group.mkdir()
            for file, text in files.items():
                (group / file).write_text(text)
    except OSError as error:
        _remove(limits)
        raise NotHeldError(f"processes cannot be held to {size} MB here: {error}") from error
    held = Instance(size, tuple(limits))
    token = HELD.set(held)
    try:
        yield held
    finally:
        HELD.reset(token)
        _remove(limits)


def held_to(size: int | None) -> contextlib.AbstractContextManager[Instance | None]:
    """Return the context of an instance of `size` MB, or for None one that holds nothing. Entering it raises `NotHeldError`."""
    return contextlib.nullcontext() if size is None else instance(size)


def _remove(groups: Iterable[Path]) -> None:
    for group in groups:
        for _ in range(50):
            # The group of a process that has just ended may still count it.
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError:
                time.sleep(0.1)
            else:
                break
        else:
            print(f"the control group {group} could not be removed", file=sys.stderr)


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except OSError:
        return ""
