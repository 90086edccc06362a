"""Serves the callers and the operators of locks. Nothing runs without a call: no timer, no sweep."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Literal, NamedTuple
from weakref import WeakValueDictionary

import orjson

from ..core.clock import Clock, Millis
from ..core.errors import Problem, Rejected
from ..engine.async_runner import AsyncRunner
from ..storage.ports import Tables
from ..tenants.model import Limits
from ..web.etag import check_if_match, etag_of
from ..web.problem import conflict, invalid, not_found
from . import protocol
from .limit import LockLimit
from .listing import list_locks, lock_out
from .model import LockHeldOut, LockIn, LockOut, LockReleaseQuery, LockWaitingOut
from .rows import PARTITIONS, TABLE, mark_of, parse_lock, partition_at, partition_of
from .rules import Held, LockRequest, Waiting
from .timings import LEAST_TTL, MOST_TTL, MOST_WAITERS

log = logging.getLogger(__name__)

_WHY: Final = {
    "lock-held": "another caller holds the lock, or waits for it; ask again later, or send wait to join the queue",
    "lock-lost": "this grant has ended: stop the work that it protects, and ask for the lock with a new nonce",
    "too-many-waiters": f"a lock has at most {MOST_WAITERS} waiters; ask again later",
}


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


_ETAG: Final = re.compile(r'W/"[^"]{1,100}"')
"""One ETag, and no list of several."""


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
