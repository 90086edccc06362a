"""Table and Queue storage: the only part of Tocsin that knows how rows and messages are kept.

    ports           what the domain may ask (Tables, Queues), and the values it gets
    names           the tables and queues Tocsin keeps
    memory          the twin: the same behaviour in memory, for tests, the simulator and users' own tests
    azure_tables    the adapters: Azure Storage and its emulator over HTTP
    azure_queues
    transport       sessions, time-outs, retries, and what a failure means
    account         connection strings, signatures, tokens
    wire            the bytes of the Table service
    limits          the service's limits, checked alike by twin and adapters

`open_storage` is the way in.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..clock import Clock
from ..settings import Settings
from . import names
from .azure_queues import AzureQueues
from .azure_tables import AzureTables
from .memory import MemoryQueues, MemoryTables
from .ports import Queues, Tables

__all__ = ["Storage", "memory_storage", "open_storage"]


@dataclass(slots=True)
class Storage:
    """Tables and queues of one account."""

    tables: Tables
    queues: Queues

    async def ensure(self) -> None:
        """Create all of Tocsin's tables and queues that are missing. Raises `Rejected` or `Unavailable`."""
        await self.tables.ensure(names.ALL_TABLES)
        await self.queues.ensure(names.ALL_QUEUES)

    async def close(self) -> None:
        """Release connections."""
        try:
            await self.tables.close()
        finally:
            await self.queues.close()


def open_storage(settings: Settings, clock: Clock) -> Storage:
    """The storage the settings name. Nothing is sent until the first call. Raises `UnsafeSettings`."""
    return Storage(AzureTables.from_settings(settings, clock), AzureQueues.from_settings(settings, clock))


def memory_storage(clock: Clock) -> Storage:
    """A storage in memory, empty: call `ensure` for Tocsin's tables and queues."""
    return Storage(MemoryTables(clock), MemoryQueues(clock))
