"""The rows of the state table (states.md), as marks of the tests that show them."""

from __future__ import annotations

from collections.abc import Callable


def row[F: Callable[..., None]](state: str, trigger: str) -> Callable[[F], F]:
    """The test shows the row of this `from` and `trigger`; test_table.py reads the marks."""

    def mark(test: F) -> F:
        return test

    return mark
