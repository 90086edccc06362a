"""The proofs that there are. They are found without importing them, so that a check takes little time."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from tests.paths import ROOT

TESTS = ROOT / "tests"
PREFIX = "prove_"


class CatalogueError(Exception):
    """A file of proofs that does not say its parts, or a name that fits no proof; the message says which."""


class Proof(NamedTuple):
    """One proof: the cases of a file, or every `parts`-th of them, beginning with number `part` - 1."""

    name: str
    path: Path
    part: int = 1
    parts: int = 1


def find_proofs(tests: Path = TESTS) -> list[Proof]:
    """Return all proofs, sorted by path and part. Raise CatalogueError when a file's PARTS is no number."""
    return [proof for path in sorted(tests.rglob(f"{PREFIX}*.py")) for proof in _proofs_of(path, tests)]


def _proofs_of(path: Path, tests: Path) -> Iterator[Proof]:
    name = (path.parent.relative_to(tests) / path.stem.removeprefix(PREFIX)).as_posix()
    parts = parts_of(path)
    if parts == 1:
        yield Proof(name, path)
        return
    for part in range(1, parts + 1):
        # Digits of equal number, so that the names sort as the parts do.
        yield Proof(f"{name}-{part:0{len(str(parts))}}", path, part, parts)


def parts_of(path: Path) -> int:
    """Return the number of parts that the file's `PARTS = n` says, 1 without one. Raise CatalogueError unless it is a positive number."""
    for statement in ast.parse(path.read_bytes()).body:
        if isinstance(statement, ast.Assign) and any(isinstance(each, ast.Name) and each.id == "PARTS" for each in statement.targets):
            value = statement.value
            if isinstance(value, ast.Constant) and type(value.value) is int and value.value > 0:
                return value.value
            raise CatalogueError(f"{path}:{statement.lineno}: PARTS must be a positive number, as in PARTS = 3")
    return 1


def named(proofs: Iterable[Proof], name: str) -> list[Proof]:
    """Return the proof of that name, or else those in that folder or file. Raise CatalogueError when there is none."""
    proofs = list(proofs)
    exact = [each for each in proofs if each.name == name]
    within = [each for each in proofs if re.fullmatch(rf"{re.escape(name.rstrip('/'))}(/.+|-\d+)", each.name)]
    if found := exact or within:
        return found
    raise CatalogueError(f"no proof is called {name!r}; `python -m tests.proofs --list` lists the names")
