"""Describes the machine, versions and settings of a run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from devhost.azurite import ROOT, AzuriteError, find_node
from devhost.loops import chosen_loop

AZURITE_SETTINGS = "in memory, --silent --loose --skipApiVersionCheck --disableTelemetry, a fresh one for each group of figures"
_PACKAGES = ("aiohttp", "azure-data-tables", "azure-functions", "azure-functions-runtime", "orjson", "pydantic", "uvloop")


def describe() -> dict[str, str]:
    """Return the machine, versions and settings, one line each."""
    return {
        "machine": f"{os.cpu_count()} cores, {_cpu()}, {_memory()}, {platform.system()} {platform.release()}",
        "load": "{:.1f} {:.1f} {:.1f} (1, 5, 15 minutes) when the run began".format(*os.getloadavg()),
        "versions": f"python {platform.python_version()}, node {_node()}, azurite {_azurite()}, "
        + ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
        "loop": chosen_loop(os.environ),
        "azurite": AZURITE_SETTINGS,
        "date": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def cpu_seconds(pid: int) -> float:
    """Return the user and system time that a process has used, in seconds, the worker processes of a devhost included; 0.0 if /proc does
    not show it."""
    return _seconds(Path(f"/proc/{pid}/stat")) + sum(map(cpu_seconds, workers(pid)))


def thread_seconds(pid: int) -> float:
    """Return the user and system time that a process's first thread has used, in seconds; 0.0 if /proc does not show it.

    In Node.js, that thread runs the JavaScript.
    """
    return _seconds(Path(f"/proc/{pid}/task/{pid}/stat"))


def _seconds(stat: Path) -> float:
    try:
        fields = stat.read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / float(os.sysconf("SC_CLK_TCK"))


def workers(pid: int) -> list[int]:
    """Return the worker processes of a devhost."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return []
    return [int(child) for child in children if b"devhost.worker.child" in _command(child)]


def _command(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident(pid: int | None = None) -> int:
    """Return the resident bytes of a process."""
    for line in Path(f"/proc/{pid or 'self'}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _memory() -> str:
    return f"{os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES') / 2**30:.0f} GiB"


def _node() -> str:
    try:
        return subprocess.run([find_node(), "--version"], capture_output=True, text=True, timeout=20).stdout.strip().lstrip("v")
    except (AzuriteError, OSError, subprocess.SubprocessError):
        return "missing"


def _azurite() -> str:
    try:
        return str(json.loads((ROOT / "node_modules" / "azurite" / "package.json").read_text())["version"])
    except (OSError, ValueError, KeyError):
        return "missing"


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
