"""The imports of indexing, which each cold process pays for before it serves its first message."""

from __future__ import annotations

import pytest

from tests.indexed_modules import FILE, imported, listed

MOST = 185
"""Modules that indexing may import on top of the floor, those of the standard library included."""


@pytest.fixture(scope="module")
def modules() -> list[str]:
    """The modules that indexing imports on top of the floor."""
    return imported()


def test_indexing_imports_exactly_the_listed_modules(modules: list[str]) -> None:
    found, wanted = set(listed(modules)), set(FILE.read_text(encoding="utf-8").split())
    assert not found - wanted, (
        f"Indexing now imports {', '.join(sorted(found - wanted))}. Import it in the function that needs it, or under TYPE_CHECKING for "
        "annotations. If every process that serves a queue message needs it, write the list: python -m tests.indexed_modules"
    )
    assert not wanted - found, (
        f"Indexing no longer imports {', '.join(sorted(wanted - found))}. Write the list: python -m tests.indexed_modules"
    )


def test_indexing_imports_few_modules(modules: list[str]) -> None:
    assert len(modules) <= MOST, f"{len(modules)} modules; `python -m bench cold` shows how many each package has"


def test_indexing_imports_no_handlers_of_calls(modules: list[str]) -> None:
    assert not [name for name in modules if name.endswith("routes") and name != "shared.app.routes"]
