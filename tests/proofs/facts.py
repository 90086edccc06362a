"""The facts that a proof records about its cases."""

from __future__ import annotations

from typing import Any

_noted: dict[str, Any] = {}


def note(**facts: Any) -> None:
    """Record facts about the test that runs: JSON values that are the same on every machine. Without a recorder, nothing reads them."""
    _noted.update(facts)


def take() -> dict[str, Any]:
    """Return the facts noted since the last call, and forget them."""
    taken = dict(_noted)
    _noted.clear()
    return taken
