"""Several storage accounts behind one `Tables`: a shard's name says which account holds it, so routing needs no look-up.

    EVENTS      by the shard's place, the first letter of its name (`scheduler/keys.py`)
    SHARDS      by the place too: an index partition begins with it
    all others  in the home account

With one account none of this is used.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from ..clock import Clock
from ..errors import StorageError, Unavailable
from .names import EVENTS, SCHEDULES, SHARDS, TENANTS
from .ports import ANY, MAX_PAGE, Applied, Delete, Op, Page, Refused, Row, Tables, Upsert, Where

log = logging.getLogger(__name__)

AWAY = 3.0
"""Seconds for which an account that did not answer is not asked again, so that it does not slow down calls that need others too."""
PROBE = 60.0
"""Longest time one call may take to find out whether it is back, while the others go on without it."""

type Call[T] = Coroutine[Any, Any, T]


def transactions_of(tables: Tables) -> Counter[str]:
    """Requests that these tables have counted, if they count."""
    found: Counter[str] | None = getattr(tables, "transactions", None)
    return Counter() if found is None else found


class AccountTables:
    """One account of several: remembers for some seconds that it does not answer. Calls meanwhile raise `Unavailable` at once."""

    def __init__(self, tables: Tables, clock: Clock, label: str) -> None:
        self._tables, self._clock, self._label = tables, clock, label
        self._until = 0.0

    @property
    def transactions(self) -> Counter[str]:
        """Requests to this account."""
        return transactions_of(self._tables)

    def _admit(self) -> None:
        if self._until:
            now = self._clock.monotonic()
            if now < self._until:
                raise Unavailable(f"the {self._label} did not answer a moment ago")
            # One call finds out for all.
            self._until = now + PROBE

    async def _asked[T](self, call: Call[T]) -> T:
        try:
            answer = await call
        except Unavailable:
            self._until = self._clock.monotonic() + AWAY
            raise
        except BaseException:
            # Not an answer that says whether it is there: the next call finds out.
            self._until = min(self._until, self._clock.monotonic())
            raise
        self._until = 0.0
        return answer

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        """See `ports.Tables`. Raises `Unavailable` at once while the account is away."""
        self._admit()
        return await self._asked(self._tables.get(table, pk, rk))

    async def query(
        self,
        table: str,
        pk: str,
        *,
        first: str = "",
        end: str | None = None,
        where: Sequence[Where] = (),
        select: Sequence[str] | None = None,
        limit: int = MAX_PAGE,
        cursor: str | None = None,
    ) -> Page:
        """See `ports.Tables`. Raises `Unavailable` at once while the account is away."""
        self._admit()
        asked = self._tables.query(table, pk, first=first, end=end, where=where, select=select, limit=limit, cursor=cursor)
        return await self._asked(asked)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | Refused:
        """See `ports.Tables`. Raises `Unavailable` at once while the account is away."""
        self._admit()
        return await self._asked(self._tables.write(table, pk, ops))

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create the tables that are missing."""
        await self._tables.ensure(tables)

    async def close(self) -> None:
        """Release connections."""
        await self._tables.close()


class SpreadTables:
    """Tables over several accounts; implements `ports.Tables`.

    home: everything but shards. shards: place -> account. named: prefix -> account, to address a table of one account of a mirrored pair
    whatever its place (`second:TocsinEvents`). Raises `Unavailable` for a place without an account: it is in use, or the list was cut.
    """

    def __init__(self, home: Tables, shards: Mapping[str, Tables], named: Mapping[str, Tables] | None = None) -> None:
        self._home, self._shards, self._named = home, dict(shards), dict(named or {})

    @property
    def accounts(self) -> list[Tables]:
        """Each account once, the home account first."""
        return list(dict.fromkeys((self._home, *self._shards.values(), *self._named.values())))

    @property
    def transactions(self) -> Counter[str]:
        """Requests to all accounts together."""
        total: Counter[str] = Counter()
        for each in self.by_account:
            total.update(each)
        return total

    @property
    def by_account(self) -> list[Counter[str]]:
        """Requests to each account, the home account first."""
        return [transactions_of(each) for each in self.accounts]

    def _at(self, table: str, pk: str) -> tuple[Tables, str]:
        if table == EVENTS:
            place = pk[3:4]
        elif table == SHARDS:
            place = pk[:1]
        else:
            side, colon, plain = table.rpartition(":")
            return (self._named[side + colon], plain) if colon else (self._home, table)
        found = self._shards.get(place)
        if found is None:
            raise Unavailable(f"no storage account is configured for the place {place!r}")
        return found, table

    async def get(self, table: str, pk: str, rk: str) -> Row | None:
        """See `ports.Tables`."""
        tables, plain = self._at(table, pk)
        return await tables.get(plain, pk, rk)

    async def query(
        self,
        table: str,
        pk: str,
        *,
        first: str = "",
        end: str | None = None,
        where: Sequence[Where] = (),
        select: Sequence[str] | None = None,
        limit: int = MAX_PAGE,
        cursor: str | None = None,
    ) -> Page:
        """See `ports.Tables`."""
        tables, plain = self._at(table, pk)
        return await tables.query(plain, pk, first=first, end=end, where=where, select=select, limit=limit, cursor=cursor)

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | Refused:
        """See `ports.Tables`."""
        tables, plain = self._at(table, pk)
        return await tables.write(plain, pk, ops)

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create what is missing: all in the home account, in the others those of shards. The second of a pair sees to itself."""
        await self._home.ensure(tables)
        of_shards = [name for name in tables if name in (EVENTS, SHARDS)]
        for account in self.accounts[1:]:
            if account not in self._named.values():
                await account.ensure(of_shards)

    async def close(self) -> None:
        """Release the connections of every account."""
        for account in self.accounts:
            await account.close()


FOLLOWED = frozenset({TENANTS, SCHEDULES})
"""Tables whose rows the second account needs, to serve the same tenants."""
FOLLOW_FOR = 2.0
"""Seconds a change of these waits for the second account."""


class PairTables(SpreadTables):
    """The first account of a mirrored pair: what settings say is written to the second too, right after each change.

    As well as it goes: what the second misses while it is away a sweep makes up for.
    """

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | Refused:
        """See `ports.Tables`."""
        answer = await super().write(table, pk, ops)
        if table in FOLLOWED and isinstance(answer, Applied):
            try:
                async with asyncio.timeout(FOLLOW_FOR):
                    for op in ops:
                        row = await self._home.get(table, pk, op.rk)
                        follow: Op = Upsert(op.rk, row.props) if row is not None else Delete(op.rk, ANY)
                        await self._named["second:"].write(table, pk, (follow,))
            except (StorageError, TimeoutError) as error:
                log.info("The second account will learn of a change in %s later: %s", table, error, extra={"action": "follow_failed"})
        return answer
