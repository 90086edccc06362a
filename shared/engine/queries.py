"""Reads of a partition that may take several pages. Each raises `StorageError`."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..storage.ports import MAX_PAGE, Page, Row, RowQuery, Tables


async def each_page(tables: Tables, query: RowQuery) -> AsyncIterator[Page]:
    """Yield all pages of a query; each is asked for when the one before it has been used.

    Read all pages: use `first_rows`, or `Tables.query` itself, to stop early.
    """
    while True:
        page = await tables.query(query)
        yield page
        if page.next is None:
            return
        query = query._replace(cursor=page.next)


async def each_row(tables: Tables, query: RowQuery) -> AsyncIterator[Row]:
    """Yield all rows of a query, page after page."""
    async for page in each_page(tables, query):
        for row in page.rows:
            yield row


async def load_rows(tables: Tables, query: RowQuery) -> list[Row]:
    """Return all rows of a query."""
    return [row async for page in each_page(tables, query) for row in page.rows]


async def first_rows(tables: Tables, query: RowQuery, most: int) -> tuple[list[Row], bool]:
    """Return the first rows, at most `most`, and True if there may be more. A page may be short, even empty, without being the last."""
    found: list[Row] = []
    while True:
        page = await tables.query(query._replace(limit=min(MAX_PAGE, most - len(found))))
        found += page.rows
        if page.next is None or len(found) >= most:
            return found, page.next is not None
        query = query._replace(cursor=page.next)


async def has_rows(tables: Tables, query: RowQuery) -> bool:
    """Return True if the query has a row."""
    found, _ = await first_rows(tables, query, 1)
    return bool(found)
