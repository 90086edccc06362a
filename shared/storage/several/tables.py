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
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from ...core.clock import Clock
from ...core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable, UnsafeSettings, text_of
from ..names import EVENTS, SCHEDULES, SHARDS, SWEEPS, TENANTS
from ..ports import Applied, Delete, Insert, Op, Replace, TableRequest, Tables, WrappedTables, Write
from .account_stamps import PROVE_FOR

log = logging.getLogger(__name__)

AWAY = 3.0
"""Seconds for which an account that did not answer is not called again. It must not slow down calls that need other accounts too."""
PROBE = 60.0
"""Seconds that one call may take to find out whether the account answers again. Other calls fail at once meanwhile."""

type PendingCall[T] = Coroutine[Any, Any, T]


def transactions_of(tables: Tables) -> Counter[str]:
    """Return the requests that these tables have counted; none for tables that do not count."""
    found: Counter[str] | None = getattr(tables, "transactions", None)
    return Counter() if found is None else found


class AccountTables(WrappedTables):
    """One account of several. After a call without an answer, further calls raise `Unavailable` at once for `AWAY` seconds.

    label: the account's name in errors (`StorageError.account`).
    """

    proof: Callable[[Tables], Awaitable[None]] | None = None
    """The check before the account's first use. It raises `UnsafeSettings` when the account is another than the settings mean."""

    def __init__(self, tables: Tables, clock: Clock, label: str) -> None:
        super().__init__(tables)
        self._clock, self._label = clock, label
        self._until = 0.0

    async def prove(self, proof: Callable[[Tables], Awaitable[None]]) -> None:
        """Run `proof`, or defer it to the first call that reaches the account. Raises `UnsafeSettings`."""
        self.proof = proof
        try:
            async with asyncio.timeout(PROVE_FOR):
                await proof(self.inner)
        except (StorageError, TimeoutError) as error:
            extra = {"action": "account_unproved"}
            log.warning("%s did not answer; its stamp is not verified yet: %s", self._label, text_of(error), extra=extra)
        else:
            self.proof = None

    async def _prove(self, proof: Callable[[Tables], Awaitable[None]]) -> None:
        try:
            await proof(self.inner)
        except UnsafeSettings as wrong:
            raise Rejected(str(wrong)) from None
        self.proof = None

    @property
    def transactions(self) -> Counter[str]:
        """Requests to this account."""
        return transactions_of(self.inner)

    def _admit(self) -> None:
        if self._until:
            now = self._clock.monotonic()
            if now < self._until:
                raise self._labelled(Unavailable(f"{self._label} did not answer a moment ago"))
            # One call tries again, for all.
            self._until = now + PROBE

    async def _asked[T](self, call: PendingCall[T]) -> T:
        try:
            if self.proof is not None:
                await self._prove(self.proof)
            answer = await call
        except Unavailable as error:
            self._until = self._clock.monotonic() + AWAY
            self._labelled(error)
            raise
        except BaseException as error:
            # This does not show whether the account answers: the next call tries again.
            self._until = min(self._until, self._clock.monotonic())
            if isinstance(error, OutcomeUnknown):
                self._labelled(error)
            raise
        finally:
            # The call was never begun.
            call.close()
        self._until = 0.0
        return answer

    def _labelled[E: StorageError](self, error: E) -> E:
        error.account = self._label
        return error

    async def perform(self, request: TableRequest) -> Any:
        """See `ports.Tables`. Raises `Unavailable` at once while the account is away."""
        self._admit()
        return await self._asked(self.inner.perform(request))


class SpreadTables(Tables):
    """Tables over several accounts; implements `ports.Tables`.

    home: everything but shards. shards: place -> account. named: prefix -> account, to address a table of one account of a mirrored pair
    whatever its place (`second:TocsinEvents`). Raises `Unavailable` for a place without an account: it is in use, or the list was cut.
    """

    def __init__(self, home: Tables, shards: Mapping[str, Tables], named: Mapping[str, Tables] | None = None) -> None:
        self._home, self._shards, self._named = home, dict(shards), dict(named or {})

    @property
    def places(self) -> dict[str, Tables]:
        """Place -> account."""
        return dict(self._shards)

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

    async def perform(self, request: TableRequest) -> Any:
        """See `ports.Tables`."""
        tables, plain = self._at(request.table, request.pk)
        return await tables.perform(request if plain == request.table else request._replace(table=plain))

    async def ensure(self, tables: Sequence[str]) -> None:
        """Create what is missing: all tables in the home account, those of shards in the others. The second of a pair creates its own."""
        await self._home.ensure(tables)
        # And the table of the stamp.
        of_shards = [name for name in tables if name in (EVENTS, SHARDS, SWEEPS)]
        for account in self.accounts[1:]:
            if account not in self._named.values():
                await account.ensure(of_shards)

    async def close(self) -> None:
        """Release the connections of every account."""
        for account in self.accounts:
            await account.close()


FOLLOWED = frozenset({TENANTS, SCHEDULES})
"""Tables whose rows the second account needs, to serve the same tenants."""
SILENT_FOR = 30.0
"""Seconds for which changes are not sent to the second account after one timed out."""
FOLLOW_FOR = 2.0
"""Seconds for which a change of a followed table waits for the second account."""


class PairTables(SpreadTables):
    """One account of a mirrored pair. Each change of tenants and schedules is written to the other account right afterwards.

    This is best effort. A sweep writes what the second account missed; failback writes what the first account missed.
    """

    def __init__(self, home: Tables, shards: Mapping[str, Tables], named: Mapping[str, Tables], other: Tables) -> None:
        super().__init__(home, shards, named)
        self._other = other
        self._silent_until = 0.0
        """The loop's time until which changes are not sent to the other account: one timed out."""

    async def perform(self, request: TableRequest) -> Any:
        """See `ports.Tables`."""
        answer = await super().perform(request)
        if isinstance(request, Write) and request.table in FOLLOWED and isinstance(answer, Applied):
            await self._follow(request)
        return answer

    async def _follow(self, change: Write) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._silent_until:
            return
        table = change.table
        try:
            async with asyncio.timeout(FOLLOW_FOR):
                for op in change.ops:
                    await follow_row((self._home, table), (self._other, table), change.pk, op.rk)
        except (StorageError, TimeoutError) as error:
            if isinstance(error, TimeoutError):
                # Otherwise each of many changes would wait, and a sweep over schedules would never end.
                self._silent_until = loop.time() + SILENT_FOR
            extra = {"action": "follow_failed"}
            log.info("A change in %s will be copied to the other account later: %s", table, text_of(error), extra=extra)


async def follow_row(source: tuple[Tables, str], copy: tuple[Tables, str], pk: str, rk: str) -> bool:
    """Copy a row from one account's table to another's. Return False when both are equal already. Raises `StorageError`.

    The copy is read first and written on the condition that it has not changed. Of concurrent copiers, the one that read an older
    original is refused.
    """
    (tables, original), (others, copied) = source, copy
    while True:
        had = await others.get(copied, pk, rk)
        has = await tables.get(original, pk, rk)
        if (had.props if had is not None else None) == (has.props if has is not None else None):
            return False
        op: Op
        if has is None:
            op = Delete(rk, had.etag if had is not None else "")
        else:
            op = Replace(rk, has.props, had.etag) if had is not None else Insert(rk, has.props)
        if isinstance(await others.write(copied, pk, (op,)), Applied):
            return True
