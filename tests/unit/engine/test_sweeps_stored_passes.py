"""Positions of passes over several partitions."""

from __future__ import annotations

from typing import Any

from shared.engine.sweeps import PassPlace, following, page_with_rows
from shared.storage.ports import Page, Row, RowQuery


class SparsePages:
    """A store that looks at 2 of 7 rows for each page, of which only the last one matches."""

    async def query(self, query: RowQuery) -> Page:
        keys = [f"k{number}" for number in range(7) if f"k{number}" >= query.first]
        at = int(query.cursor or 0)
        rows = [Row(query.pk, rk, {}, "e", 0, 0) for rk in keys[at : at + 2] if rk == "k6"]
        return Page(rows, str(at + 2) if at + 2 < len(keys) else None, 0)


async def test_pass_gets_on_although_pages_are_empty() -> None:
    tables: Any = SparsePages()
    page = await page_with_rows(tables, RowQuery("t", "a", first="k0"))
    assert [row.rk for row in page.rows] == ["k6"] and page.next is None


def test_pass_goes_on_behind_the_last_row_and_then_in_the_next_partition() -> None:
    row = Row("a", "k3", {}, "e", 0, 0)
    assert following(["a", "b"], Page([row], "more", 0)) == PassPlace("a", "k3!")
    assert following(["a", "b"], Page([row], None, 0)) == PassPlace("b", "")
    assert following(["b"], Page([], None, 0)) is None
