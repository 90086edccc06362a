"""The database of a folder: acknowledged writes survive a kill, transactions are atomic, and only one process can open the folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from shared.core.clock import SettableClock, SystemClock
from shared.core.errors import OutcomeUnknown, StorageError, Unavailable
from shared.storage.ports import Applied, Insert, Row, RowQuery, Upsert
from shared.storage.sqlite import database as module
from shared.storage.sqlite.database import FILE, Database, FolderRefused
from shared.storage.sqlite.queues import FolderQueues
from shared.storage.sqlite.tables import FolderTables
from tests.paths import ROOT
from tests.waiting import wait_until

from .writer import QUEUE, SIDE, TABLE

WRITER = Path(__file__).parent / "writer.py"


@contextlib.asynccontextmanager
async def opened(folder: Path, clock: SettableClock | None = None) -> AsyncIterator[tuple[FolderTables, FolderQueues]]:
    """Tables and queues of the folder, with one of each."""
    database = Database(folder)
    tables, queues = FolderTables(database, clock or SystemClock()), FolderQueues(database, clock or SystemClock())
    try:
        await tables.ensure([TABLE])
        await queues.ensure([QUEUE])
        yield tables, queues
    finally:
        await tables.close()
        await queues.close()


async def all_rows(tables: FolderTables, pk: str) -> list[Row]:
    rows: list[Row] = []
    cursor: str | None = None
    while True:
        page = await tables.query(RowQuery(TABLE, pk, cursor=cursor))
        rows += page.rows
        cursor = page.next
        if cursor is None:
            return rows


@pytest.mark.parametrize("after", [3, 40, 150])
async def test_a_kill_in_the_middle_of_writes_loses_nothing_acknowledged_and_leaves_no_half_transaction(tmp_path: Path, after: int) -> None:
    writers = 3
    output, folder = tmp_path / "acknowledged", tmp_path / "data"
    with output.open("wb") as out, (tmp_path / "errors").open("wb") as errors:
        process = subprocess.Popen(
            [sys.executable, str(WRITER), str(folder), str(writers)], stdout=out, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        try:
            wait_until(
                lambda: process.poll() is not None or output.read_text().count("\n") >= after,
                "writes",
                seen=(tmp_path / "errors").read_text,
            )
        finally:
            process.kill()
            process.wait()
    assert (tmp_path / "errors").read_text() == ""
    lines = output.read_text().rpartition("\n")[0].splitlines()
    assert len(lines) >= after
    async with opened(folder) as (tables, queues):
        messages: set[str] = set()
        while taken := await queues.receive(QUEUE):
            messages |= {message.text for message in taken}
        assert set(lines) <= messages
        for name in range(writers):
            rows = {row.rk: row.props["number"] for row in await all_rows(tables, f"p{name}")}
            sides = {rows.pop(f"side-{at}") for at in range(SIDE)}
            acknowledged = [int(line.split()[1]) for line in lines if line.startswith(f"p{name} ")]
            numbers = sorted(map(int, rows.values()))
            # Every transaction wrote its own row and all the others, or nothing.
            assert sides == {numbers[-1]} and numbers == list(range(len(numbers)))
            assert numbers[-1] >= max(acknowledged, default=0)


async def test_a_second_process_is_refused_until_the_first_one_has_ended(tmp_path: Path) -> None:
    code = f"from pathlib import Path\nfrom shared.storage.sqlite.database import Database\nDatabase(Path({str(tmp_path)!r}))"

    def second() -> subprocess.CompletedProcess[str]:
        return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)

    async with opened(tmp_path):
        refused = await asyncio.to_thread(second)
        assert refused.returncode == 1 and f"FolderRefused: the folder {tmp_path} is in use by another process" in refused.stderr
    assert (await asyncio.to_thread(second)).returncode == 0


@pytest.mark.parametrize("content", [b"no database", b"x" * 5000])
def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(FolderRefused, match="cannot be used"):
        Database(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content


def test_a_database_of_something_else_and_one_of_a_newer_form_are_refused(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute("CREATE TABLE mine (a)")
    with pytest.raises(FolderRefused, match="not one of Tocsin's"):
        Database(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / FILE)) as other:
        other.execute(f"PRAGMA application_id = {module.MARK}")
        other.execute(f"PRAGMA user_version = {module.FORM + 1}")
    with pytest.raises(FolderRefused, match=rf"form {module.FORM + 1}"):
        Database(tmp_path)


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(FolderRefused, match="cannot be used"):
        Database(tmp_path / "data")


def test_only_its_owner_can_read_a_folder_that_is_made(tmp_path: Path) -> None:
    database = Database(tmp_path / "data")
    assert (tmp_path / "data").stat().st_mode & 0o777 == 0o700
    asyncio.run(database.close())


def test_only_its_owner_can_read_the_files_in_a_folder_that_was_there_before(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0o022)
    try:
        database = Database(tmp_path)
    finally:
        os.umask(before)
    assert {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()} == {FILE: 0o600, f"{FILE}-wal": 0o600}
    asyncio.run(database.close())


async def test_the_messages_that_an_ended_process_had_taken_are_visible_at_once(tmp_path: Path) -> None:
    clock = SettableClock()
    async with opened(tmp_path, clock) as (_, queues):
        await queues.send(QUEUE, "taken")
        await queues.send(QUEUE, "later", visible_in=60)
        (first,) = await queues.receive(QUEUE)
    async with opened(tmp_path, clock) as (_, queues):
        (second,) = await queues.receive(QUEUE)
        assert (second.id, second.text, second.dequeue_count) == (first.id, "taken", 2)
        assert await queues.delete(QUEUE, first) is False


async def test_no_version_of_a_row_occurs_twice_even_if_the_clock_stands_still(tmp_path: Path) -> None:
    clock, etags = SettableClock(), []
    for _ in range(3):
        async with opened(tmp_path, clock) as (tables, _):
            for _ in range(3):
                done = await tables.write(TABLE, "p", [Upsert("r", {})])
                assert isinstance(done, Applied)
                etags += done.etags
    assert len(set(etags)) == 9


async def test_calls_at_the_same_time_see_each_others_writes_in_order(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tables, _):
        done = await asyncio.gather(*(tables.write(TABLE, "p", [Insert("r", {"by": by})]) for by in range(50)))
        winners = [by for by, outcome in enumerate(done) if isinstance(outcome, Applied)]
        row = await tables.get(TABLE, "p", "r")
        assert row is not None and winners == [row.props["by"]]


async def test_a_call_after_the_end_is_refused(tmp_path: Path) -> None:
    async with opened(tmp_path) as (tables, _):
        pass
    with pytest.raises(Unavailable, match="closed"):
        await tables.get(TABLE, "p", "r")


class FailingConnection:
    """A connection on which one statement fails."""

    def __init__(self, connection: sqlite3.Connection, fails: str) -> None:
        self._connection, self._fails = connection, fails

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        if sql.startswith(self._fails):
            raise sqlite3.OperationalError("disk I/O error")
        return self._connection.execute(sql, *arguments)  # type: ignore[arg-type]

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)


@pytest.mark.parametrize(("fails", "expected"), [("BEGIN", Unavailable), ("INSERT INTO messages", Unavailable), ("COMMIT", OutcomeUnknown)])
async def test_a_failing_disk_is_reported_and_leaves_no_half_transaction(
    tmp_path: Path, fails: str, expected: type[StorageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(tmp_path) as (_, queues):
        database = queues._database
        whole = database._connection
        monkeypatch.setattr(database, "_connection", FailingConnection(whole, fails))
        with pytest.raises(expected, match="disk I/O error"):
            await queues.send(QUEUE, "a")
        monkeypatch.setattr(database, "_connection", whole)
        assert await queues.length(QUEUE) == 0
        await queues.send(QUEUE, "b")
        assert await queues.length(QUEUE) == 1


async def test_a_call_that_fails_takes_no_other_one_with_it(tmp_path: Path) -> None:
    def fails(connection: sqlite3.Connection) -> None:
        raise OverflowError("Python int too large to convert to SQLite INTEGER")

    async with opened(tmp_path) as (tables, queues):
        # Called in one turn of the event loop, while the thread works: they share transactions.
        others = [queues.send(QUEUE, str(number)) for number in range(20)]
        *sent, failed = await asyncio.gather(*others, queues._database.change(fails), return_exceptions=True)
        assert sent == [None] * 20 and isinstance(failed, Unavailable)
        assert await queues.length(QUEUE) == 20
        assert await all_rows(tables, "p") == []


async def test_reads_are_answered_while_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path) as (tables, queues):
        await tables.write(TABLE, "p", [Upsert("r", {"a": 1})])
        database = queues._database
        whole = database._connection

        class Full(FailingConnection):
            """Commits fail that have something to write."""

            def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
                if sql == "COMMIT" and whole.total_changes > self.changes:
                    raise sqlite3.OperationalError("database or disk is full")
                if sql.startswith("BEGIN"):
                    self.changes = whole.total_changes
                return super().execute(sql, *arguments)

        monkeypatch.setattr(database, "_connection", Full(whole, "nothing"))
        calls = [part for number in range(10) for part in (queues.send(QUEUE, str(number)), tables.get(TABLE, "p", "r"))]
        done = await asyncio.gather(*calls, return_exceptions=True)
        monkeypatch.setattr(database, "_connection", whole)
        assert all(isinstance(each, OutcomeUnknown) for each in done[::2])
        assert all(isinstance(each, Row) and each.props == {"a": 1} for each in done[1::2])
        assert await queues.length(QUEUE) == 0
