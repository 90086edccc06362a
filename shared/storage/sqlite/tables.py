"""Tables in the database of a folder."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final

import orjson

from ...core.clock import Clock, to_text
from ...core.errors import Rejected
from .. import limits
from ..ports import Applied, Op, Page, Props, Row, RowQuery, StoringTables, WriteRefused
from ..server_time import ServerTimeEstimator, time_etag
from ..twins import StoredRow, check_transaction, holding, plan_write
from .database import Database

_KIND: Final = "table"


def _key(text: str) -> bytes:
    """Return a row key as bytes in the sort order of the service, by UTF-16 unit."""
    return text.encode("utf-16-be", "surrogatepass")


class FolderTables(StoringTables):
    """Tables in a folder; implements `ports.Tables`.

    `clock` gives timestamps, and `read_at` in whole seconds. `server_time` is given the ETags of each write. `transactions` counts
    calls and rows under the names that the Azure adapter uses.
    """

    def __init__(self, database: Database, clock: Clock, server_time: ServerTimeEstimator | None = None) -> None:
        self._database, self._clock, self._server_time = database, clock, server_time
        self.transactions: Counter[str] = Counter()

    def _number(self, table: str) -> int:
        found = self._database.names.get((_KIND, table))
        if found is None:
            limits.check_table(table)
            raise Rejected(f"TableNotFound: {table}")
        return found

    def _read_at(self) -> int:
        now = self._clock.now()
        return now - now % 1000

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        """Return the row, or None. Raises `Rejected`."""
        limits.check_key("PartitionKey", pk)
        limits.check_key("RowKey", rk)
        number = self._number(table)

        def read(connection: sqlite3.Connection) -> Row | None:
            found = _read(connection, number, pk, rk)
            return None if found is None else Row(pk, rk, found.props, found.etag, found.timestamp, self._read_at())

        self.transactions["get"] += 1
        row = await self._database.read(read)
        self.transactions["rows_read"] += row is not None
        return row

    async def query(self, query: RowQuery) -> Page:
        """Return one page of the partition, see `ports.RowQuery`. Raises `Rejected`."""
        table, pk, first, end, where, select, limit, cursor = query
        limits.check_limit(limit)
        limits.check_key("PartitionKey", pk)
        holds = holding(where) if where else None
        for name in select or ():
            limits.check_name(name)
        number, begin = self._number(table), _key(first)
        if cursor is not None:
            begin = max(begin, _position(cursor))
        bounds, ends = (number, pk, begin), ""
        if end is not None:
            bounds, ends = (number, pk, begin, _key(end)), "AND key < ?"  # type: ignore[assignment]

        def read(connection: sqlite3.Connection) -> Page:
            rows: list[Row] = []
            read_at = self._read_at()
            sql = f"SELECT key, props, etag, at FROM rows WHERE tbl = ? AND pk = ? AND key >= ? {ends} ORDER BY key"
            for key, text, etag, at in connection.execute(sql, bounds):
                if len(rows) == limit:
                    return Page(rows, f"@{key.hex()}", read_at)
                props: Props = orjson.loads(text)
                if holds is None or holds(props):
                    kept = props if select is None else {name: props[name] for name in select if name in props}
                    rows.append(Row(pk, key.decode("utf-16-be"), kept, etag, at, read_at))
            return Page(rows, None, read_at)

        self.transactions["query"] += 1
        page = await self._database.read(read)
        self.transactions["rows_read"] += len(page.rows)
        return page

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        """Apply all of `ops` or none, see `ports.Write`. Raises `Rejected`."""
        plain = check_transaction(table, pk, ops)
        number = self._number(table)

        def change(connection: sqlite3.Connection) -> Applied | WriteRefused:
            now = self._clock.now()
            text = to_text(now)
            olds = [_read(connection, number, pk, op.rk) for op in ops]
            planned = plan_write(pk, ops, olds, lambda _: time_etag(text, self._database.next_version()), now, plain=plain)
            if isinstance(planned, WriteRefused):
                return planned
            gone = [(number, pk, _key(op.rk)) for op, row in zip(ops, planned, strict=True) if row is None]
            kept = [(number, pk, _key(row.rk), orjson.dumps(row.props), row.etag, row.timestamp) for row in planned if row is not None]
            connection.executemany("DELETE FROM rows WHERE tbl = ? AND pk = ? AND key = ?", gone)
            connection.executemany("INSERT OR REPLACE INTO rows (tbl, pk, key, props, etag, at) VALUES (?, ?, ?, ?, ?, ?)", kept)
            return Applied([row.etag if row is not None else "" for row in planned])

        self.transactions["write"] += 1
        times = self._server_time
        sent = times.elapsed() if times is not None else 0.0
        done = await self._database.change(change)
        if isinstance(done, Applied):
            self.transactions["rows_written"] += len(ops)
            if times is not None:
                times.note(sent, times.elapsed(), done.etags)
        return done

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create the tables that are missing. Raises `Rejected` for a bad name."""
        for table in tables:
            limits.check_table(table)
        await self._database.ensure(_KIND, list(tables))

    async def close(self) -> None:
        """Close the database, which the queues share."""
        await self._database.close()


def _read(connection: sqlite3.Connection, number: int, pk: str, rk: str) -> StoredRow | None:
    sql = "SELECT props, etag, at FROM rows WHERE tbl = ? AND pk = ? AND key = ?"
    found = connection.execute(sql, (number, pk, _key(rk))).fetchone()
    return None if found is None else StoredRow(rk, orjson.loads(found[0]), found[1], found[2])


def _position(cursor: str) -> bytes:
    """Return the key at which a cursor continues. Raises `Rejected`."""
    try:
        if cursor.startswith("@"):
            return bytes.fromhex(cursor[1:])
    except ValueError:
        pass
    raise limits.bad_cursor()
