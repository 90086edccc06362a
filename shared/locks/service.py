"""Serves the callers and the operators of locks. Nothing runs without a call: no timer, no sweep.

A tenant has a limited number of locks; old ones are removed when there are too many.

A list goes by name, over the partitions that hold the locks. Each partition is read in small parts, and a page ends early when it shows
many waiters: a row may have 30 kB of them, and one request must not fill the memory of a process that serves other tenants too.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import math
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import orjson

from ..core.clock import Clock, Millis
from ..core.errors import Problem, Rejected
from ..engine.async_runner import AsyncRunner
from ..engine.effects import each_page, load_rows
from ..storage.ports import Row, RowQuery, Tables
from ..tenants.model import MOST_LOCKS, Limits
from ..web.etag import check_if_match, etag_of
from ..web.problem import conflict, invalid, not_found, too_many
from . import protocol
from .model import LockHeldOut, LockIn, LockOut, LockReleaseQuery, LockWaiterOut, LockWaitingOut
from .rows import PARTITIONS, TABLE, WITHOUT_WAITERS, LockRow, mark_of, parse_lock, partition_at, partition_of
from .rules import Held, LockRequest, Waiting, free_at, is_over, live_waiters
from .timings import COUNT_FRESH_FOR, KEPT, LEAST_TTL, LIMIT_RETRY, MOST_COUNTED, MOST_TTL, MOST_WAITERS, REMOVED_AT_ONCE

log = logging.getLogger(__name__)

AT_ONCE: Final = 32
"""Most rows of a partition that are read together: 512 of all partitions."""
MOST_SHOWN: Final = 2_000
"""Waiters after which a page ends."""
_WHY: Final = {
    "lock-held": "another caller holds the lock, or waits for it; ask again later, or send wait to join the queue",
    "lock-lost": "this grant has ended: stop the work that it protects, and ask for the lock with a new nonce",
    "too-many-waiters": f"a lock has at most {MOST_WAITERS} waiters; ask again later",
}
_ETAG: Final = re.compile(r'W/"[^"]{1,100}"')
"""One ETag, and no list of several."""


@dataclass(slots=True)
class _LockCount:
    """A tenant's locks. at: monotonic seconds of the count. count: with those admitted since. nothing_old_until: monotonic seconds before
    which no row is old enough to be removed. one_at_a_time: held while locks are counted, so that simultaneous requests share a count."""

    at: float = -math.inf
    count: int = 0
    nothing_old_until: float = -math.inf
    one_at_a_time: asyncio.Lock = field(default_factory=asyncio.Lock)


class LockLimit:
    """Admits new locks up to the tenant's limit. Several processes together may admit a few more: each counts once in 30 s."""

    def __init__(self, tables: Tables, runner: AsyncRunner, clock: Clock, limits: Callable[[str], Awaitable[Limits]]) -> None:
        """limits: returns a tenant's limits."""
        self._tables, self._runner, self._clock, self._limits = tables, runner, clock, limits
        self._counts: dict[str, _LockCount] = {}

    async def admit(self, tenant: str) -> None:
        """Count one more lock, or raise 429 if the tenant may not have it. Old locks that nobody holds are removed first."""
        own = (await self._limits(tenant)).locks
        most = MOST_LOCKS if own is None else own
        if tenant not in self._counts and len(self._counts) >= MOST_COUNTED:
            del self._counts[next(iter(self._counts))]
        known = self._counts.setdefault(tenant, _LockCount())
        async with known.one_at_a_time:
            if self._clock.monotonic() - known.at >= COUNT_FRESH_FOR:
                known.count = sum(await asyncio.gather(*(self._count(tenant, number) for number in range(len(PARTITIONS)))))
                known.at = self._clock.monotonic()
            if known.count >= most > 0 and self._clock.monotonic() >= known.nothing_old_until:
                removed = await self._remove_old(tenant)
                known.count -= removed
                if not removed:
                    # All rows were read. A tenant that keeps asking for too many locks must not cause that for each request.
                    known.nothing_old_until = self._clock.monotonic() + COUNT_FRESH_FOR
            if known.count >= most:
                raise too_many(LIMIT_RETRY, f"the tenant may have {most:,} locks; those that are unused for a day are removed", "locks")
            known.count += 1

    def forget(self, tenant: str) -> None:
        """Forget the count of a tenant that ends."""
        self._counts.pop(tenant, None)

    async def _count(self, tenant: str, number: int) -> int:
        found = each_page(self._tables, RowQuery(TABLE, partition_at(tenant, number), end="~", select=("token",)))
        return sum([len(page.rows) async for page in found])

    async def _remove_old(self, tenant: str) -> int:
        removed = sum(await asyncio.gather(*(self._remove_in(partition_at(tenant, number)) for number in range(len(PARTITIONS)))))
        if removed:
            log.info("%d unused locks of %s are removed", removed, tenant, extra={"action": "locks_removed", "tenant": tenant})
        return removed

    async def _remove_in(self, pk: str) -> int:
        # Without the waiters, of which a row may have 30 kB: nobody has waited for a day.
        rows = await load_rows(self._tables, RowQuery(TABLE, pk, "", "~", select=WITHOUT_WAITERS))
        old = [row for row in rows if row.read_at - row.timestamp >= KEPT]
        return await self._runner.run(protocol.remove(pk, old[:REMOVED_AT_ONCE]))


@dataclass(slots=True)
class _PartitionReader:
    """Reads the rows of a partition in order. rows: read, and not taken yet."""

    tables: Tables
    pk: str
    first: str
    rows: deque[Row] = field(default_factory=deque)
    cursor: str | None = None
    ended: bool = False

    async def fill(self, limit: int) -> None:
        """Read on until there is a row, or none is left."""
        while not self.rows and not self.ended:
            page = await self.tables.query(RowQuery(TABLE, self.pk, first=self.first, limit=limit, cursor=self.cursor))
            self.rows.extend(page.rows)
            self.cursor, self.ended = page.next, page.next is None


async def list_locks(tables: Tables, tenant: str, limit: int, after: str = "") -> tuple[list[LockOut], str | None]:
    """Return locks by name after `after`, at most `limit`, and the last name if there are more. Raises `StorageError`."""
    # `!` sorts before every character of a name.
    first = f"{after}!" if after else ""
    readers = [_PartitionReader(tables, partition_at(tenant, number), first) for number in range(len(PARTITIONS))]
    found: list[LockOut] = []
    shown = 0
    while True:
        await asyncio.gather(*(each.fill(min(limit, AT_ONCE)) for each in readers if not each.rows and not each.ended))
        rest = [each for each in readers if each.rows]
        if not rest:
            return found, None
        if len(found) >= limit or shown >= MOST_SHOWN:
            return found, found[-1].name
        row = min(rest, key=lambda each: each.rows[0].rk).rows.popleft()
        found.append(lock_out(row.rk, parse_lock(row), row.read_at))
        shown += len(found[-1].waiters)


def lock_out(name: str, lock: LockRow, now: Millis) -> LockOut:
    """Return a lock as the API shows it. now: the storage service's time."""
    waiters = [LockWaiterOut(holder=each.holder, since=each.since) for each in live_waiters(lock, now)]
    if is_over(lock, now):
        return LockOut(name=name, state="free", token=lock.token, waiters=waiters)
    revoked = lock.state == "revoked"
    return LockOut(
        name=name,
        state=lock.state,
        token=lock.token,
        holder=lock.holder,
        granted=lock.granted,
        renewed=lock.renewed,
        free_at=free_at(lock),
        waiters=waiters,
        note=lock.note if revoked else None,
        author=lock.author if revoked else None,
    )


class LockService:
    """Serves locks. One per process; keeps how many locks the tenants have, and whose turn it is to write the row of a lock."""

    def __init__(self, tables: Tables, runner: AsyncRunner, clock: Clock, limits: Callable[[str], Awaitable[Limits]]) -> None:
        """limits: returns a tenant's limits."""
        self._tables, self._runner, self._clock = tables, runner, clock
        self._limit = LockLimit(tables, runner, clock, limits)
        self._turns: WeakValueDictionary[tuple[str, str], asyncio.Lock] = WeakValueDictionary()
        self.counters: Counter[str] = Counter()
        """Requests since the start of the process by their outcome; `lock_refused`: without the lock, and not queued."""

    async def ask(self, tenant: str, name: str, body: LockIn) -> LockHeldOut | LockWaitingOut:
        """Grant or renew a lock, or queue the caller. Raises 409 `lock-held`, `lock-lost`, `too-many-waiters`, 429, `StorageError`."""
        pk = partition_of(tenant, name)
        known = _unpack_version(body.version) if body.version is not None else None
        if known is not None and known.token == body.token and known.attempt == mark_of(body.holder, body.nonce):
            try:
                etag = await self._runner.run(protocol.renew(pk, name, known.etag))
            except Rejected:
                # Storage takes no such ETag: the caller has made the version up.
                etag = None
            if etag is not None:
                self.counters["lock_renewed"] += 1
                return LockHeldOut(token=known.token, valid_ms=known.ttl, version=_pack_version(known._replace(etag=etag)))
        request = LockRequest(body.holder, body.nonce, body.ttl, body.wait or 0, body.token or 0)
        return self._answer(tenant, name, await self._ask(tenant, pk, name, request))

    async def _ask(self, tenant: str, pk: str, name: str, request: LockRequest) -> protocol.AskResult:
        if request.token:
            # A renewal does not stand behind callers that wait for the lock.
            return await self._runner.run(protocol.ask(pk, name, request, self._clock.now(), create=False))
        # One after the other: callers that write at the same time fail all but one, and a hundred of them do little else.
        turn = self._turns.setdefault((pk, name), asyncio.Lock())
        if turn.locked() and (answer := await self._runner.run(protocol.look(pk, name, request))) is not None:
            return answer
        async with turn:
            asked = await self._runner.run(protocol.ask(pk, name, request, self._clock.now(), create=False))
            if asked.outcome == "missing":
                await self._limit.admit(tenant)
                asked = await self._runner.run(protocol.ask(pk, name, request, self._clock.now(), create=True))
            return asked

    def _answer(self, tenant: str, name: str, asked: protocol.AskResult) -> LockHeldOut | LockWaitingOut:
        outcome = asked.outcome
        if isinstance(outcome, Held):
            lock = outcome.lock
            self.counters["lock_granted" if outcome.new else "lock_renewed"] += 1
            if outcome.taken_from:
                self.counters["lock_taken_over"] += 1
                about = {"holder": lock.holder, "former": outcome.taken_from, "token": lock.token}
                extra = {"action": "lock_taken_over", "tenant": tenant, "lock": name, **about}
                text = "Lock %s of %s goes to %s with token %d: %s did not renew it"
                log.info(text, name, tenant, lock.holder, lock.token, outcome.taken_from, extra=extra)
            version = _pack_version(_Version(lock.token, lock.validity, asked.etag, mark_of(lock.holder, lock.nonce)))
            return LockHeldOut(token=lock.token, valid_ms=lock.validity, version=version)
        if isinstance(outcome, Waiting):
            self.counters["lock_waiting"] += 1
            return LockWaitingOut(ahead=outcome.ahead, retry_ms=outcome.retry)
        self.counters["lock_lost" if outcome == "lock-lost" else "lock_refused"] += 1
        raise conflict(outcome, _WHY[outcome], "waiters" if outcome == "too-many-waiters" else "")

    async def release(self, tenant: str, name: str, query: LockReleaseQuery, headers: Mapping[str, str]) -> None:
        """End the caller's grant and its wait. Honours `If-Match` in `headers`. Raises 404, 412, 422, `StorageError`."""
        pk, etag, holder = partition_of(tenant, name), "", query.holder or ""
        if not holder and query.token is None:
            raise invalid("?holder", "is missing; give holder and nonce, or the token of a holder that has stopped")
        if holder and query.nonce is None:
            raise invalid("?nonce", "is missing; give the nonce of the request for the lock")
        if "if-match" in headers:
            row = await self._tables.get(TABLE, pk, name)
            check_if_match(headers, etag_of(row.etag) if row is not None else None)
            etag = row.etag if row is not None else ""
        token = query.token or 0
        own = protocol.Attempt(holder, query.nonce or "", token)
        outcome = await self._release(pk, name, own, etag)
        if outcome == "missing" and holder and not etag:
            # A request for the lock may still be under way, and must find that its attempt has ended.
            with contextlib.suppress(Problem):
                await self._limit.admit(tenant)
                outcome = await self._release(pk, name, own, etag, create=True)
        if outcome == "missing":
            raise not_found("lock")
        if outcome == "changed":
            raise Problem(412, "precondition-failed", "The lock has changed since it was read. Read it again and repeat the call.")
        before = outcome.before
        if not outcome.ended:
            if not holder and before is not None and before.state != "free" and before.token != token:
                detail = f"grant {token} does not hold the lock: {before.holder} does, with token {before.token}"
                raise conflict("lock-held", f"{detail}; read the lock, and give this token if its holder has stopped")
            return
        assert before is not None  # a grant or a wait has ended
        self.counters["lock_released"] += 1
        if not holder:
            extra = {"action": "lock_released_by_token", "tenant": tenant, "lock": name, "holder": before.holder, "token": before.token}
            log.info("Lock %s of %s is released by its token, held by %s", name, tenant, before.holder, extra=extra)

    async def _release(
        self, pk: str, name: str, own: protocol.Attempt, etag: str, *, create: bool = False
    ) -> protocol.Released | Literal["missing", "changed"]:
        return await self._runner.run(protocol.release(pk, name, own, self._clock.now(), etag, create=create))

    async def revoke(self, tenant: str, name: str, note: str, author: str) -> Millis:
        """Let a grant run out. Return the milliseconds until the lock can be granted. Raises 404, `StorageError`."""
        done = await self._runner.run(protocol.revoke(partition_of(tenant, name), name, note, author))
        if done is None:
            raise not_found("lock")
        before, revoked = done
        if revoked.lock is not None:
            self.counters["lock_revoked"] += 1
            extra = {"action": "lock_revoked", "tenant": tenant, "lock": name, "holder": before.holder, "author": author, "note": note}
            log.info("Lock %s of %s, held by %s, is revoked by %s: %s", name, tenant, before.holder, author, note, extra=extra)
        return revoked.free_after

    # -- views

    async def get(self, tenant: str, name: str) -> tuple[LockOut, str]:
        """Return a lock as the API shows it, and its entity tag. Raises 404, `StorageError`."""
        row = await self._tables.get(TABLE, partition_of(tenant, name), name)
        if row is None:
            raise not_found("lock")
        return lock_out(name, parse_lock(row), row.read_at), etag_of(row.etag)

    async def page(self, tenant: str, limit: int, after: str = "") -> tuple[list[LockOut], str | None]:
        """Return locks by name after `after`, and the last name if there are more. Raises `StorageError`."""
        return await list_locks(self._tables, tenant, limit, after)

    async def forget(self, tenant: str) -> None:
        """Remove all locks of a tenant that ends. Raises `StorageError`; can be repeated."""
        for number in range(len(PARTITIONS)):
            await self._runner.run(protocol.forget(partition_at(tenant, number)))
        self._limit.forget(tenant)


class _Version(NamedTuple):
    """The data with which a renewal is one write: the grant's token and validity, the row's ETag, and the mark of the attempt."""

    token: int
    ttl: Millis
    etag: str
    attempt: str


def _pack_version(known: _Version) -> str:
    return base64.urlsafe_b64encode(orjson.dumps(tuple(known))).decode().rstrip("=")


def _unpack_version(version: str) -> _Version | None:
    """Return what `_pack_version` packed; None for any other text: a version only saves a request."""
    try:
        token, ttl, etag, attempt = orjson.loads(base64.urlsafe_b64decode(version + "=" * (-len(version) % 4)))
    except (binascii.Error, ValueError, TypeError):
        return None
    bounded = type(token) is int and type(ttl) is int and LEAST_TTL <= ttl <= MOST_TTL
    known = bounded and isinstance(attempt, str) and isinstance(etag, str) and _ETAG.fullmatch(etag) is not None
    return _Version(token, ttl, etag, attempt) if known else None
