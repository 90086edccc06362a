"""Compares names of VMs, resource groups and locations. Azure writes one name in different case in its documents and on its VMs."""

from __future__ import annotations

from collections.abc import Iterable


def same_name(one: str, other: str) -> bool:
    """Return true if both are one name."""
    return one.casefold() == other.casefold()


def folded(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set for comparison."""
    return frozenset(name.casefold() for name in names)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in their order and first spelling, each once."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return tuple(found.values())
