"""Reads that may take several pages."""

from __future__ import annotations

from collections.abc import Sequence

from ..storage.ports import Row, Tables, Where


async def load_rows(tables: Tables, table: str, pk: str, first: str, end: str, select: Sequence[str] | None = None) -> list[Row]:
    """Return all rows with `first` <= key < `end`, page after page. Raises `StorageError`."""
    page = await tables.query(table, pk, first=first, end=end, select=select)
    rows = page.rows
    while page.next is not None:
        page = await tables.query(table, pk, first=first, end=end, select=select, cursor=page.next)
        rows.extend(page.rows)
    return rows


async def has_rows(tables: Tables, table: str, partition: str, where: Sequence[Where] = ()) -> bool:
    """Return True if the partition has a row that meets `where`. Raises `StorageError`."""
    cursor: str | None = None
    while True:
        page = await tables.query(table, partition, where=where, limit=1, cursor=cursor)
        cursor = page.next
        if page.rows or cursor is None:
            return bool(page.rows)
