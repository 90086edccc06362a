"""Compares names of VMs. Azure's documents, its Resource Manager and the VMs themselves write one name in different case."""

from __future__ import annotations

from collections.abc import Iterable


def same_vm(one: str, other: str) -> bool:
    """Return true if both are the name of one VM."""
    return one.casefold() == other.casefold()


def folded(names: Iterable[str]) -> frozenset[str]:
    """Return the names as a set for comparison."""
    return frozenset(name.casefold() for name in names)


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Return the names in their order and first spelling, each VM once."""
    found: dict[str, str] = {}
    for name in names:
        found.setdefault(name.casefold(), name)
    return tuple(found.values())
