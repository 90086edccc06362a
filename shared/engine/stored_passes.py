"""Passes over the rows of several partitions in turn, page by page, whose position is stored between pages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ..storage.ports import Page, RowQuery, Tables


class PassPlace(NamedTuple):
    """The next row to read: its partition, and the first possible key."""

    partition: str
    key: str


async def page_with_rows(tables: Tables, query: RowQuery) -> Page:
    """Return a page of a query that has rows, or the last one: the key of a row says where a pass goes on. Raises `StorageError`."""
    page = await tables.query(query)
    while not page.rows and page.next is not None:
        page = await tables.query(query._replace(cursor=page.next))
    return page


def following(left: Sequence[str], page: Page) -> PassPlace | None:
    """Return where the pass goes on after a `page_with_rows` of the partition `left[0]`; None at the end of the last partition."""
    if page.next is not None:
        return PassPlace(left[0], page.rows[-1].rk + "!")
    return PassPlace(left[1], "") if len(left) > 1 else None
