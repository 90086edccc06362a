"""Table and Queue storage: the only package that knows how rows and messages are stored.

    ports             the ports `Tables` and `Queues`, and the values they return
    names             the names of Tocsin's tables and queues
    memory            the in-memory twin with the same behaviour, for tests, the simulator and users' own tests
    sqlite            the twin that keeps rows and messages in a folder, for one process
    twins             decisions that both twins share
    blocking          tables for threads, for programs that run on nodes
    server_time       bounds of the service's time, from the ETags of writes
    transition_trace  the log lines of gates, leases and turns, for `tocsin verify-trace`
    limits            the service's limits, checked by the twins and by the adapters
    azure/tables      the adapters: Azure Storage and its emulator over HTTP
    azure/queues
    azure/transport   timeouts, retries, and the meaning of a failure
    azure/connections the connections to an account
    azure/account     connection strings, signatures, tokens
    azure/wire        the bytes of the Table service
    several/tables    several accounts behind one `Tables`
    several/account_stamps   a stamp in each account, which proves its identity

`open_storage` opens the storage that the settings name. Only it imports the adapters: nodes use `blocking`, over httpx.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from ..core.clock import Clock
from ..core.errors import StorageError, text_of
from ..core.pressure import PressureGauge
from . import names
from .names import FIRST, HOME, MIRRORED, SECOND
from .ports import Queues, Tables
from .server_time import ServerTimeEstimator
from .several import account_stamps
from .several.account_stamps import PROVE_FOR

if TYPE_CHECKING:
    from ..core.settings import Settings

__all__ = ["Storage", "check", "memory_storage", "open_storage", "spread_storage"]

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Storage:
    """The tables and queues of one account, or of several accounts; a shard's place names its account.

    places: all places that shards may have. fresh: those that take new shards, in turn.
    """

    tables: Tables
    queues: Queues
    places: tuple[str, ...] = (HOME,)
    fresh: tuple[str, ...] = (HOME,)
    second: Storage | None = None
    """The storage as the second account of a mirrored pair sees it, with its own home tables and queues."""
    server_times: tuple[ServerTimeEstimator, ...] = ()
    """The observed time of each account, the home account first. Empty where the adapters do not observe it."""
    pressure: PressureGauge | None = None
    """Counts the requests to the home account's tables; None where the adapters do not count them."""

    async def ensure(self) -> None:
        """Create all of Tocsin's tables and queues that are missing. Raises `Rejected` or `Unavailable`."""
        await self.tables.ensure(names.ALL_TABLES)
        await self.queues.ensure((*names.ALL_QUEUES, *names.POISON_QUEUES))

    async def close(self) -> None:
        """Release connections."""
        try:
            await self.tables.close()
        finally:
            await self.queues.close()
            if self.second is not None:
                await self.second.queues.close()


def open_storage(settings: Settings, clock: Clock, watch: Callable[[str], object] | None = None) -> Storage:
    """Open the storage that the settings name. Nothing is sent before the first call. Raises `UnsafeSettings`.

    watch: is called with each line of the trace (`transition_trace`), if there is one.
    """
    from .azure import account
    from .azure.queues import AzureQueues
    from .azure.tables import AzureTables
    from .azure.transport import Transport

    second_time = ServerTimeEstimator(clock)
    times = [ServerTimeEstimator(clock) for _ in range(1 + len(settings.account_list))]
    pressure = PressureGauge(clock.monotonic)
    home = AzureTables.from_settings(settings, clock, server_time=times[0], pressure=pressure)
    queues = AzureQueues.from_settings(settings, clock)
    others = [
        AzureTables(Transport(account.further("table", text, settings, f"TOCSIN_ACCOUNTS, entry {number}"), clock), times[number])
        for number, text in enumerate(settings.account_list, 1)
    ]
    accounts: list[Tables] = [home, *others]
    if settings.trace != "off":
        from .transition_trace import TracedTables, open_trace

        if (trace := open_trace(settings.trace, clock.now, watch)) is not None:
            accounts = [TracedTables(tables, trace) for tables in accounts]
    second: tuple[Tables, Queues] | None = None
    if settings.mirrored:
        tables = AzureTables(Transport(account.second_from_settings("table", settings), clock), second_time)
        second = tables, AzureQueues(Transport(account.second_from_settings("queue", settings), clock))
    storage = spread_storage(accounts, queues, clock, settings.fresh_accounts, second, detached=bool(settings.mirror_detached))
    there = replace(storage.second, server_times=(second_time, *times)) if storage.second is not None else None
    return replace(storage, second=there, server_times=tuple(times), pressure=pressure)


def spread_storage(
    accounts: Sequence[Tables],
    queues: Queues,
    clock: Clock,
    fresh: Sequence[int] = (),
    second: tuple[Tables, Queues] | None = None,
    *,
    detached: bool = False,
) -> Storage:
    """Return a storage over these accounts. The first one is the home account, which has the queues.

    fresh: numbers of the accounts that take new shards. second: the other account of the mirrored pair; the home account is its first.
    detached: the second account is given up, and the home account alone keeps the mirrored shards.
    """
    if len(accounts) == 1 and second is None and not detached:
        return Storage(accounts[0], queues)
    from .several.tables import AccountTables, PairTables, SpreadTables

    shards = {f"{number:x}": AccountTables(tables, clock, f"storage account {number}") for number, tables in enumerate(accounts)}
    new = tuple(f"{number:x}" for number in fresh) or tuple(shards)
    home = shards[HOME]
    if second is None:
        alone = {**shards, MIRRORED: home} if detached else shards
        return Storage(SpreadTables(home, alone), queues, tuple(alone), new)
    other = AccountTables(second[0], clock, "the second storage account")
    named = {FIRST: home, SECOND: other}
    places = (*shards, MIRRORED)
    there = Storage(PairTables(other, {**shards, MIRRORED: other}, named, home), second[1], places, (MIRRORED,))
    return Storage(PairTables(home, {**shards, MIRRORED: home}, named, other), queues, places, new, there)


async def check(storage: Storage, detached: account_stamps.Detached = "") -> None:
    """Verify by its stamp that each account is the one that the settings mean (`account_stamps`). Raises `UnsafeSettings`.

    An account that does not answer is verified at its first use. The home account, and the second of a pair, at the next start.
    """
    if storage.places == (HOME,) and storage.second is None:
        await _check_stamps(storage.tables, {HOME: storage.tables}, None, detached)
        return
    from .several.tables import AccountTables, SpreadTables

    places = storage.tables.places if isinstance(storage.tables, SpreadTables) else {HOME: storage.tables}
    second = storage.second.tables if storage.second is not None else None
    home, there = places[HOME], second.places[MIRRORED] if isinstance(second, SpreadTables) else second
    await _check_stamps(home, places, there, detached)
    proofs = (
        tables.prove(partial(account_stamps.prove, home, place))
        for place, tables in places.items()
        if place not in (HOME, MIRRORED) and isinstance(tables, AccountTables)
    )
    for wrong in await asyncio.gather(*proofs, return_exceptions=True):
        if wrong is not None:
            raise wrong


async def _check_stamps(home: Tables, places: Mapping[str, Tables], second: Tables | None, detached: account_stamps.Detached) -> None:
    """Verify the stamps of the home account and of the second account of a pair. Raises `UnsafeSettings`."""
    try:
        async with asyncio.timeout(PROVE_FOR):
            await account_stamps.check_list(home, places)
            if second is None:
                await account_stamps.check_alone(home, detached)
            else:
                await account_stamps.prove_second(home, second)
    except (StorageError, TimeoutError) as error:
        extra = {"action": "account_unproved"}
        log.warning("The stamps of the storage accounts could not be read: %s", text_of(error), extra=extra)


def memory_storage(clock: Clock, observer: Clock | None = None) -> Storage:
    """Return an empty storage in memory. Call `ensure` to create Tocsin's tables and queues.

    clock: the storage's own. observer: the clock of the machine that uses the storage, if it is another one.
    """
    from .memory import MemoryQueues, MemoryTables

    times = ServerTimeEstimator(observer or clock)
    return Storage(MemoryTables(clock, server_time=times), MemoryQueues(clock), server_times=(times,))
