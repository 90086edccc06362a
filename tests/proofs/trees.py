"""Hashes of modules: of their syntax trees without docstrings, so that neither words nor layout make a proof stale."""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import sys
from pathlib import Path

from tests.paths import ROOT

DIGITS = 16
"""Length of a hash: hexadecimal digits of a SHA-256. Nobody looks for collisions here."""
CACHE = ROOT / "build" / "proofs" / f"trees-1-{sys.implementation.cache_tag}.json"
"""The number changes with `tree_hash`. Python's version is part of it because syntax trees depend on it."""


def hash_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:DIGITS]


def tree_hash(source: bytes) -> str:
    """Return the hash of a module's syntax tree, without docstrings, comments and positions. Raise SyntaxError for other text."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list):
            node.body = _undocumented(body)  # type: ignore[attr-defined]
    return hash_of(ast.dump(tree).encode())


def _undocumented(body: list[ast.stmt]) -> list[ast.stmt]:
    """Leave out the strings that stand alone: docstrings, and those that document the assignment before them."""
    return [each for each in body if not _is_text(each)]


def _is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant) and isinstance(statement.value.value, str)


class TreeHashes:
    """The hashes of files. Those of unchanged files come from a cache, because parsing takes seconds."""

    def __init__(self, cache: Path | None = CACHE) -> None:
        self._cache = cache
        self._known: dict[str, str] = _read(cache) if cache is not None else {}
        self._used: dict[str, str] = {}
        self._by_path: dict[Path, str] = {}

    def of(self, path: Path) -> str:
        """Return the hash of the module in this file. Raise OSError or SyntaxError where there is none."""
        if path not in self._by_path:
            content = path.read_bytes()
            key = hash_of(content)
            self._used[key] = self._by_path[path] = self._known.get(key) or _hash_without_pauses(content)
        return self._by_path[path]

    def save(self) -> None:
        """Write the cache. Another process that does so at the same time may win: that costs time, and nothing else."""
        if self._cache is None or self._used.items() <= self._known.items():
            return
        self._cache.parent.mkdir(parents=True, exist_ok=True)
        draft = self._cache.with_suffix(f".{hash_of(repr(id(self)).encode())}.tmp")
        draft.write_text(json.dumps(self._used))
        draft.replace(self._cache)


def _hash_without_pauses(content: bytes) -> str:
    enabled = gc.isenabled()
    # A syntax tree is many objects, none of them garbage: looking for some takes half of the time.
    gc.disable()
    try:
        return tree_hash(content)
    finally:
        if enabled:
            gc.enable()


def _read(cache: Path) -> dict[str, str]:
    try:
        found = json.loads(cache.read_bytes())
    except (OSError, ValueError):
        # No cache, or one that was cut off: the hashes are computed again.
        return {}
    return found if isinstance(found, dict) else {}
