"""One suite for all stores: each test that asks for `store` runs on both twins, on several accounts behind one, and on the real service
through the adapters. The service is Azurite, or the account that `python -m devhost.conformance` tests.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from devhost.azurite import Azurite
from devhost.conformance.access import StorageAccess
from devhost.conformance.plugin import ACCESS
from shared.core.clock import SettableClock
from shared.storage import spread_storage
from shared.storage.memory import MemoryQueues, MemoryTables
from shared.storage.ports import Queues, Tables
from shared.storage.sqlite.database import Database
from shared.storage.sqlite.queues import FolderQueues
from shared.storage.sqlite.tables import FolderTables
from tests.waiting import eventually

_names = itertools.count(1)


@dataclass
class Store:
    """A store under test. `clock` is the twin's, None for the service, which has its own."""

    tables: Tables
    queues: Queues
    clock: SettableClock | None
    table: str = field(default_factory=lambda: f"Test{os.getpid()}x{next(_names)}")
    queue: str = field(default_factory=lambda: f"test-{os.getpid()}-{next(_names)}")
    fleet: str = field(default_factory=lambda: f"fleet-{os.getpid()}-{next(_names)}")

    @property
    def short(self) -> int:
        """Seconds that end within a test, and not between two of its calls, however slow the machine is."""
        return 5 if self.clock is None else 1

    async def until[T](self, look: Callable[[], Awaitable[T]]) -> T:
        """Return the first result of `look` that is true. The twin's clock is advanced meanwhile."""

        async def looked() -> T:
            found = await look()
            if not found and self.clock is not None:
                await self.clock.advance(0.05, settle=1)
            return found

        found: T = await eventually(looked, "what the store is to do", pause=0.05 if self.clock is None else 0.0)
        return found


@pytest.fixture(scope="session")
def access(pytestconfig: pytest.Config) -> Iterator[StorageAccess]:
    """The account that `python -m devhost.conformance` tests; otherwise one emulator for the session, on free ports, in memory."""
    if (chosen := pytestconfig.stash.get(ACCESS, None)) is not None:
        yield chosen
        return
    with Azurite(memory=True) as emulator:
        yield StorageAccess(connection=emulator.connection_string)


@pytest.fixture
async def twin() -> AsyncIterator[Store]:
    """The twin with one table and one queue."""
    clock = SettableClock()
    store = Store(MemoryTables(clock), MemoryQueues(clock), clock)
    await store.tables.ensure([store.table])
    await store.queues.ensure([store.queue])
    yield store
    await store.tables.close()
    await store.queues.close()


@pytest.fixture
async def spread() -> AsyncIterator[Store]:
    """Two twins as the accounts of one app: what is no shard goes to the first, through the layer that knows who is away."""
    clock = SettableClock()
    storage = spread_storage([MemoryTables(clock), MemoryTables(clock)], MemoryQueues(clock), clock)
    store = Store(storage.tables, storage.queues, clock)
    await store.tables.ensure([store.table])
    await store.queues.ensure([store.queue])
    yield store
    await storage.close()


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Store]:
    """The twin in a folder."""
    clock, database = SettableClock(), Database(tmp_path)
    store = Store(FolderTables(database, clock), FolderQueues(database, clock), clock)
    await store.tables.ensure([store.table])
    await store.queues.ensure([store.queue])
    yield store
    await store.tables.close()
    await store.queues.close()


@pytest.fixture
async def service(access: StorageAccess) -> AsyncIterator[Store]:
    """The service through the real adapters, with one table and one queue of the test's own."""
    tables, queues = access.tables(), access.queues()
    store = Store(tables, queues, None)
    store.table, store.queue = tables.named(store.table), queues.named(store.queue)
    await tables.ensure([store.table])
    await queues.ensure([store.queue])
    yield store
    await tables.close()
    await queues.close()


@pytest.fixture(params=["twin", "folder", "spread", "service"])
def store(request: pytest.FixtureRequest) -> Store:
    """Each store in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, Store)
    return found
