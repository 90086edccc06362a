"""Reads of a partition that may take several pages. Each raises `StorageError`."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from ..storage.ports import MAX_PAGE, Page, Row, Tables, Where


async def each_page(
    tables: Tables,
    table: str,
    pk: str,
    *,
    first: str = "",
    end: str | None = None,
    where: Sequence[Where] = (),
    select: Sequence[str] | None = None,
    limit: int = MAX_PAGE,
) -> AsyncIterator[Page]:
    """Yield all pages of a `Tables.query`; each is asked for when the one before it has been used.

    Read all pages: use `first_rows`, or `Tables.query` itself, to stop early.
    """
    cursor: str | None = None
    while True:
        page = await tables.query(table, pk, first=first, end=end, where=where, select=select, limit=limit, cursor=cursor)
        yield page
        cursor = page.next
        if cursor is None:
            return


async def each_row(
    tables: Tables,
    table: str,
    pk: str,
    *,
    first: str = "",
    end: str | None = None,
    where: Sequence[Where] = (),
    select: Sequence[str] | None = None,
    limit: int = MAX_PAGE,
) -> AsyncIterator[Row]:
    """Yield all rows of a `Tables.query`, page after page."""
    async for page in each_page(tables, table, pk, first=first, end=end, where=where, select=select, limit=limit):
        for row in page.rows:
            yield row


async def load_rows(
    tables: Tables,
    table: str,
    pk: str,
    first: str = "",
    end: str | None = None,
    select: Sequence[str] | None = None,
    where: Sequence[Where] = (),
) -> list[Row]:
    """Return all rows with `first` <= key < `end`."""
    return [row async for row in each_row(tables, table, pk, first=first, end=end, where=where, select=select)]


async def first_rows(
    tables: Tables,
    table: str,
    pk: str,
    most: int,
    *,
    first: str = "",
    end: str | None = None,
    where: Sequence[Where] = (),
    select: Sequence[str] | None = None,
) -> tuple[list[Row], bool]:
    """Return the first rows, at most `most`, and True if there may be more. A page may be short, even empty, without being the last."""
    found: list[Row] = []
    cursor: str | None = None
    while True:
        limit = min(MAX_PAGE, most - len(found))
        page = await tables.query(table, pk, first=first, end=end, where=where, select=select, limit=limit, cursor=cursor)
        found += page.rows
        cursor = page.next
        if cursor is None or len(found) >= most:
            return found, cursor is not None


async def has_rows(tables: Tables, table: str, pk: str, where: Sequence[Where] = ()) -> bool:
    """Return True if the partition has a row that meets `where`."""
    found, _ = await first_rows(tables, table, pk, 1, where=where)
    return bool(found)
