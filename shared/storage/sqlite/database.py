"""The database of a folder. One thread uses it, so that the event loop never waits for the disk."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Final, NamedTuple

from ...core.errors import OutcomeUnknown, StorageError, TocsinError, Unavailable

FILE: Final = "tocsin.sqlite"
"""Name of the file in the folder. SQLite keeps its log beside it."""
FORM: Final = 1
"""Number of the schema."""
MARK: Final = 0x70C51
"""`application_id` of the file, which marks it as a file of Tocsin."""
MOST_SHARED: Final = 64
"""Most calls that share a transaction."""
VERSIONS_PER_RUN: Final = 10**9
"""Distance between the first version numbers of two runs, so that no number is given twice."""

_SCHEMA: Final = """
CREATE TABLE names (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, name TEXT NOT NULL, UNIQUE (kind, name));
CREATE TABLE runs (number INTEGER PRIMARY KEY AUTOINCREMENT);
CREATE TABLE rows (
  tbl INTEGER NOT NULL, pk TEXT NOT NULL, key BLOB NOT NULL, props BLOB NOT NULL, etag TEXT NOT NULL, at INTEGER NOT NULL,
  UNIQUE (tbl, pk, key)
);
CREATE TABLE messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT, queue INTEGER NOT NULL, text BLOB NOT NULL, inserted INTEGER NOT NULL, visible INTEGER NOT NULL,
  turn INTEGER NOT NULL, receipt INTEGER NOT NULL DEFAULT 0, taken INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX messages_visible ON messages (queue, visible, turn);
"""

type Work[T] = Callable[[sqlite3.Connection], T]
"""One call. It decides everything before it changes anything, and raises `StorageError` only before its first change."""


class FolderRefused(TocsinError):
    """Raised if the folder cannot be used. in_use: True if the reason is that another process has it."""

    def __init__(self, text: str, *, in_use: bool = False) -> None:
        super().__init__(text)
        self.in_use = in_use


class _Asked(NamedTuple):
    """A call that waits. changes: it may write."""

    work: Work[Any]
    changes: bool
    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]


class Database:
    """The database of one folder. It belongs to one event loop and one process.

    A second process is refused until the first one has ended, even by a kill.
    """

    def __init__(self, folder: Path) -> None:
        """Open the folder, and create it if it does not exist. Raises `FolderRefused`."""
        self._connection = _open(folder)
        try:
            run, found = _begin(self._connection)
        except BaseException:
            self._connection.close()
            raise
        self.names = found
        """Numbers of tables and queues, by kind and name."""
        self._versions = itertools.count(run * VERSIONS_PER_RUN + 1)
        self._asked: SimpleQueue[_Asked | None] = SimpleQueue()
        self._closed: asyncio.Future[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="tocsin-sqlite", daemon=True)
        self._thread.start()

    def next_version(self) -> int:
        """Return a number that no row version and no receipt of this folder has had. Called by the thread."""
        return next(self._versions)

    async def read[T](self, work: Work[T]) -> T:
        """Return the result of work that changes nothing. Raises `StorageError`."""
        return await self._ask(work, changes=False)

    async def change[T](self, work: Work[T]) -> T:
        """Return the result of work that may write, once it is on disk. Raises `StorageError`."""
        return await self._ask(work, changes=True)

    async def ensure(self, kind: str, names: list[str]) -> None:
        """Create the tables or queues that are missing."""

        def add(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
            connection.executemany("INSERT OR IGNORE INTO names (kind, name) VALUES (?, ?)", [(kind, name) for name in names])
            return _names(connection)

        self.names = await self.change(add)

    async def close(self) -> None:
        """End the thread and close the file, after the calls that wait. Closing it again does nothing."""
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
            self._asked.put(None)
            await asyncio.to_thread(self._thread.join)
            self._closed.set_result(None)
        await self._closed

    async def _ask[T](self, work: Work[T], *, changes: bool) -> T:
        if self._closed is not None:
            raise Unavailable("the folder's database is closed")
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[T] = loop.create_future()
        self._asked.put(_Asked(work, changes, loop, answer))
        return await answer

    def _serve(self) -> None:
        """Carry out calls until `close`; all calls that wait share one transaction."""
        ending = False
        while not ending:
            batch: list[_Asked] = []
            found = self._asked.get()
            while found is not None:
                batch.append(found)
                if len(batch) == MOST_SHARED:
                    break
                try:
                    found = self._asked.get_nowait()
                except Empty:
                    break
            ending = found is None
            if batch:
                outcomes = self._carry_out(batch)
                with contextlib.suppress(RuntimeError):
                    # The loop may have ended without closing the storage; then no caller waits.
                    batch[0].loop.call_soon_threadsafe(_settle, batch, outcomes)
        self._connection.close()

    def _carry_out(self, batch: list[_Asked]) -> list[Any]:
        """Return the result of each call, or its error. A failed call does not fail the other calls."""
        outcomes: list[Any] = []
        committing = False
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            for asked in batch:
                try:
                    outcomes.append(asked.work(self._connection))
                except StorageError as error:
                    outcomes.append(error)
            committing = True
            self._connection.execute("COMMIT")
        except Exception as error:
            with contextlib.suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            text = f"the folder's database failed: {error}"
            # A commit that failed may be found on disk after all when the file is opened again.
            lost = OutcomeUnknown(text) if committing else Unavailable(text)
            if len(batch) == 1:
                return [lost if batch[0].changes else Unavailable(text)]
            # Reads work while the disk is full.
            return [lost if committing and asked.changes else self._carry_out([asked])[0] for asked in batch]
        return outcomes


def _settle(batch: list[_Asked], outcomes: list[Any]) -> None:
    for asked, outcome in zip(batch, outcomes, strict=True):
        if asked.answer.done():
            # The caller was cancelled.
            continue
        if isinstance(outcome, Exception):
            asked.answer.set_exception(outcome)
        else:
            asked.answer.set_result(outcome)


def _open(folder: Path) -> sqlite3.Connection:
    """Return a connection with an exclusive lock on the file. Raises `FolderRefused`."""
    try:
        # Only the owner may read it: it holds payloads and hashes of keys.
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # This holds in an existing folder too. SQLite gives its log the mode of the file.
        with contextlib.suppress(FileExistsError):
            os.close(os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(folder / FILE, timeout=0, isolation_level=None, check_same_thread=False)
    except (OSError, sqlite3.Error) as error:
        raise FolderRefused(f"the folder {folder} cannot be used: {getattr(error, 'strerror', None) or error}") from None
    try:
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # From here on the lock is held.
        connection.execute("BEGIN EXCLUSIVE")
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        connection.close()
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise FolderRefused(f"the folder {folder} is in use by another process", in_use=True) from None
        raise FolderRefused(f"the folder {folder} cannot be used: {folder / FILE}: {error}") from None
    return connection


def _begin(connection: sqlite3.Connection) -> tuple[int, dict[tuple[str, str], int]]:
    """Create the schema in a new file, and end the message leases of earlier processes, which have all ended.

    Returns the number of this run, and those of tables and queues. Raises `FolderRefused`.
    """
    try:
        mark, form = (int(connection.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("application_id", "user_version"))
        if (mark, form) == (0, 0) and not connection.execute("SELECT 1 FROM sqlite_master").fetchone():
            connection.executescript(f"BEGIN; {_SCHEMA} PRAGMA application_id = {MARK}; PRAGMA user_version = {FORM}; COMMIT;")
        elif mark != MARK:
            raise FolderRefused(f"the file {FILE} of the folder is not one of Tocsin's")
        elif form != FORM:
            raise FolderRefused(f"the data in the folder has form {form}, and this version knows form {FORM}")
        connection.execute("BEGIN IMMEDIATE")
        run = connection.execute("INSERT INTO runs DEFAULT VALUES").lastrowid
        connection.execute("DELETE FROM runs WHERE number < ?", (run,))
        connection.execute("UPDATE messages SET visible = 0, receipt = 0 WHERE receipt <> 0")
        found = _names(connection)
        connection.execute("COMMIT")
    except sqlite3.Error as error:
        raise FolderRefused(f"the folder's database cannot be read: {error}") from None
    assert run is not None
    return run, found


def _names(connection: sqlite3.Connection) -> dict[tuple[str, str], int]:
    return {(kind, name): number for number, kind, name in connection.execute("SELECT id, kind, name FROM names")}
