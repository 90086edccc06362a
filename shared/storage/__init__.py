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
    accounts        several accounts behind one `Tables`

`open_storage` is the way in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..clock import Clock
from ..settings import Settings
from . import account, names
from .accounts import AccountTables, PairTables, SpreadTables
from .azure_queues import AzureQueues
from .azure_tables import AzureTables
from .memory import MemoryQueues, MemoryTables
from .ports import Queues, Tables
from .transport import Transport

__all__ = ["Storage", "memory_storage", "open_storage", "spread_storage"]


HOME, MIRRORED = "0", "m"
FIRST, SECOND = "first:", "second:"


@dataclass(slots=True)
class Storage:
    """Tables and queues: of one account, or of several whose shards are told apart by their place.

    places: all places that shards may have. fresh: those that take new shards, in turn.
    """

    tables: Tables
    queues: Queues
    places: tuple[str, ...] = (HOME,)
    fresh: tuple[str, ...] = (HOME,)
    second: Storage | None = None
    """The same as the second account of a mirrored pair sees it: with its own home tables and queues."""

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
            if self.second is not None:
                await self.second.queues.close()


def open_storage(settings: Settings, clock: Clock) -> Storage:
    """The storage the settings name. Nothing is sent until the first call. Raises `UnsafeSettings`."""
    home, queues = AzureTables.from_settings(settings, clock), AzureQueues.from_settings(settings, clock)
    others = [
        AzureTables(Transport(account.further("table", text, settings, f"TOCSIN_ACCOUNTS, entry {number}"), clock))
        for number, text in enumerate(settings.account_list, 1)
    ]
    second: tuple[Tables, Queues] | None = None
    if settings.mirrored:
        tables = AzureTables(Transport(account.second_from_settings("table", settings), clock))
        second = tables, AzureQueues(Transport(account.second_from_settings("queue", settings), clock))
    return spread_storage([home, *others], queues, clock, settings.fresh_accounts, second)


def spread_storage(
    accounts: Sequence[Tables], queues: Queues, clock: Clock, fresh: Sequence[int] = (), second: tuple[Tables, Queues] | None = None
) -> Storage:
    """Storage over these accounts, the home account first; it has the queues. fresh: numbers of those that take new shards. second: the
    other account of the mirrored pair, whose first is the home account."""
    if len(accounts) == 1 and second is None:
        return Storage(accounts[0], queues)
    shards = {f"{number:x}": AccountTables(tables, clock, f"storage account {number}") for number, tables in enumerate(accounts)}
    new = tuple(f"{number:x}" for number in fresh) or tuple(shards)
    home = shards[HOME]
    if second is None:
        return Storage(SpreadTables(home, shards), queues, tuple(shards), new)
    other = AccountTables(second[0], clock, "second storage account")
    named = {FIRST: home, SECOND: other}
    places = (*shards, MIRRORED)
    there = Storage(SpreadTables(other, {**shards, MIRRORED: other}, named), second[1], places, (MIRRORED,))
    return Storage(PairTables(home, {**shards, MIRRORED: home}, named), queues, places, new, there)


def memory_storage(clock: Clock) -> Storage:
    """A storage in memory, empty: call `ensure` for Tocsin's tables and queues."""
    return Storage(MemoryTables(clock), MemoryQueues(clock))
