"""The blocking port: the twin and the adapter on the service behave alike."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from devhost.conformance.access import StorageAccess
from shared.core.clock import SettableClock
from shared.core.errors import Rejected
from shared.storage.blocking import BlockingTables, HttpTables, MemoryBlockingTables, run_through
from shared.storage.memory import MemoryTables
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Replace, Row, RowQuery, Upsert, Where, WriteRefused

_names = itertools.count(1)


class Store:
    """A store under test, with a table of the test's own."""

    def __init__(self, tables: BlockingTables, table: str) -> None:
        self.tables, self.table = tables, table

    def write(self, *ops: Op, pk: str = "p") -> Applied | WriteRefused:
        return self.tables.write(self.table, pk, ops, timeout=60)

    def get(self, rk: str, pk: str = "p") -> Row | None:
        return self.tables.get(self.table, pk, rk, timeout=60)

    def all(self, first: str = "", end: str = "~") -> list[Row]:
        rows: list[Row] = []
        cursor = None
        while True:
            page = self.tables.query(RowQuery(self.table, "p", first=first, end=end, cursor=cursor), timeout=60)
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows


@pytest.fixture(params=["twin", "service"])
async def store(request: pytest.FixtureRequest) -> Store:
    table = f"Block{os.getpid()}x{next(_names)}"
    if request.param == "twin":
        memory = MemoryTables(SettableClock(), page_rows=400)
        run_through(memory.ensure([table]))
        return Store(MemoryBlockingTables(memory), table)
    access: StorageAccess = request.getfixturevalue("access")
    tables = access.tables()
    await tables.ensure([table])
    await tables.close()
    return Store(request.getfixturevalue("http_tables"), tables.named(table))


@pytest.fixture
def http_tables(access: StorageAccess) -> Iterator[HttpTables]:
    tables = access.blocking_tables()
    yield tables
    tables.close()


def test_a_row_comes_back_as_it_went(store: Store) -> None:
    props = {"text": "é😀'\u2028", "number": 2**53 + 1, "share": 1.0, "flag": True}
    assert isinstance(store.write(Insert("r:1", props)), Applied)  # type: ignore[arg-type]
    row = store.get("r:1")
    assert row is not None
    assert (row.pk, row.rk, row.props) == ("p", "r:1", props)


def test_a_missing_row_is_none(store: Store) -> None:
    assert store.get("r") is None


def test_conditions_are_judged_and_name_their_operation(store: Store) -> None:
    first = store.write(Insert("a", {"n": 1}), Insert("b", {"n": 1}))
    assert isinstance(first, Applied)
    second = store.write(Merge("a", {"m": 2}, first.etags[0]))
    assert isinstance(second, Applied)
    assert store.write(Merge("b", {"n": 2}, ANY), Replace("a", {}, first.etags[0])) == WriteRefused(1, "changed")
    assert store.write(Upsert("c", {}), Insert("b", {})) == WriteRefused(1, "exists")
    assert store.write(Delete("z", ANY)) == WriteRefused(0, "missing")
    assert [(row.rk, row.props) for row in store.all()] == [("a", {"n": 1, "m": 2}), ("b", {"n": 1})]


def test_etags_of_a_write_are_those_that_are_read(store: Store) -> None:
    written = store.write(Insert("a", {}), Upsert("b", {}))
    assert isinstance(written, Applied)
    assert [row.etag for row in store.all()] == written.etags


def test_a_range_comes_in_key_order_and_whole(store: Store) -> None:
    for start in range(0, 1200, 100):
        store.write(*(Insert(f"p:{number:05d}", {"n": number}) for number in range(start, start + 100)))
    store.write(Insert("s:a", {}), Insert("fleet", {}))
    rows = store.all("p:", "p;")
    assert [row.props["n"] for row in rows] == list(range(1200))


def test_a_query_can_ask_for_conditions_properties_and_a_number_of_rows(store: Store) -> None:
    store.write(*(Insert(f"r{number}", {"n": number, "text": "x"}) for number in range(5)))
    query = RowQuery(store.table, "p", "r1", where=[Where("n", "ge", 2)], select=["n"])
    assert [(row.rk, row.props) for row in store.tables.query(query, timeout=60).rows] == [(f"r{n}", {"n": n}) for n in (2, 3, 4)]
    page = store.tables.query(RowQuery(store.table, "p", limit=2), timeout=60)
    assert [row.rk for row in page.rows] == ["r0", "r1"] and page.next is not None


def test_what_can_never_be_applied_is_rejected(store: Store) -> None:
    with pytest.raises(Rejected):
        store.write(Insert("a/b", {}))
    with pytest.raises(Rejected):
        store.tables.write("TableThatIsNotThere", "p", [Insert("a", {})], timeout=60)
    with pytest.raises(Rejected):
        store.tables.query(RowQuery(store.table, "p", first="", end="~", cursor="nonsense"), timeout=60)
