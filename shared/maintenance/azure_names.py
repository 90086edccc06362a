"""Compares names of VMs, resource groups and locations. Azure uses upper and lower case differently for one name."""

from __future__ import annotations

from collections.abc import Iterable


def same_name(one: str, other: str) -> bool:
    """Return True if both are the same name, in whatever case."""
    return one.casefold() == other.casefold()


def folded(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set in one case, for comparison."""
    return frozenset(name.casefold() for name in names)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return each name once, in the given order and in its first spelling."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return tuple(found.values())
