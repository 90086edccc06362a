"""Tables answer a request that is a value as they answer the call by its name, with or without a wrapper before them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.core.clock import SettableClock
from shared.core.errors import Rejected
from shared.storage.memory import MemoryTables
from shared.storage.ports import Applied, Get, Insert, RowQuery, Tables, WrappedTables, Write, WriteRefused
from shared.storage.sqlite.database import Database
from shared.storage.sqlite.tables import FolderTables


@pytest.fixture(params=["memory", "folder", "wrapped"])
async def tables(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Tables]:
    clock = SettableClock()
    memory = MemoryTables(clock)
    found: Tables = memory if request.param == "memory" else WrappedTables(WrappedTables(memory))
    if request.param == "folder":
        found = FolderTables(Database(tmp_path), clock)
    await found.ensure(["Table"])
    yield found
    await found.close()


async def test_a_request_is_answered_as_the_call_by_its_name(tables: Tables) -> None:
    write = Write("Table", "p", [Insert("a", {"n": 1}), Insert("b", {"n": 2})])
    applied = await tables.perform(write)
    assert isinstance(applied, Applied) and len(applied.etags) == 2
    assert await tables.perform(write) == await tables.write("Table", "p", write.ops) == WriteRefused(0, "exists")
    row = await tables.perform(Get("Table", "p", "b"))
    assert row is not None and (row.etag, row.props) == (applied.etags[1], {"n": 2})
    assert await tables.get("Table", "p", "b") == row
    query = RowQuery("Table", "p", "b", limit=1)
    assert (await tables.perform(query)).rows == (await tables.query(query)).rows == [row]


async def test_an_error_of_a_request_passes_a_wrapper(tables: Tables) -> None:
    with pytest.raises(Rejected):
        await tables.perform(Get("Nowhere", "p", "a"))
