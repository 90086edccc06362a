"""Decides about one lock, from its row. Pure. Section Locks of docs/explain/leases.md explains why these rules are safe.

    ask      grants or renews the lock, or queues the caller
    release  ends a grant, or takes a waiter out of the queue
    revoke   lets a grant run out, for an operator

The holder counts the validity of a grant on its own clock, from the SEND of the request whose answer brought it. All others count from the
time of the write, which comes later, by the storage service's clock, and wait longer, so that bounded drift cannot make two holders.
`now` is the storage service's time at the read that showed the row, cut to a second. Every write is conditional on the ETag of that read.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.validity import outlasting
from .rows import EndedAttempt, LockRow, Waiter, mark_of
from .timings import (
    ASKED_STORED,
    ENDED_KEPT,
    FIRST_RETRY,
    KEPT,
    MARGIN,
    MOST_ENDED,
    MOST_RETRY,
    MOST_WAITERS,
    PRESENT,
    RETRY_STEP,
)

type LockRefusal = Literal["lock-held", "lock-lost", "too-many-waiters"]


class LockRequest(NamedTuple):
    """A caller asks for a lock. holder, nonce: together they name one attempt to hold it. ttl: validity that a new grant gets. wait: time
    within which it asks again if it must wait, 0: it does not wait. token: of the grant that it renews, 0: it has none."""

    holder: str
    nonce: str
    ttl: Millis
    wait: Millis = 0
    token: int = 0


class Held(NamedTuple):
    """The caller holds the lock with this row, which is to be written. new: this is a grant and not a renewal. taken_from: the holder whose
    grant ran out without a release, '' if none did."""

    lock: LockRow
    new: bool = False
    taken_from: str = ""


class Waiting(NamedTuple):
    """The caller waits. lock: the row to write, None if it stays as it is. ahead: waiters before it. retry: when it should ask again."""

    lock: LockRow | None
    ahead: int
    retry: Millis


NO_HOLDER: Final = ""


def reuse_delay(ttl: Millis) -> Millis:
    """Return the milliseconds from the write of a grant until another caller can get the lock: its holder has stopped by then, however
    large the drift."""
    return math.ceil(outlasting(ttl)) + MARGIN


def free_at(lock: LockRow) -> Millis:
    """Return the time at which the grant has run out for all callers."""
    return lock.renewed + reuse_delay(lock.validity)


def is_over(lock: LockRow, now: Millis) -> bool:
    """Return True if nobody can hold the lock by its last grant."""
    return lock.state == "free" or now >= free_at(lock)


def next_token(before: int, wall: Millis) -> int:
    """Return the token of the next grant: greater than the one before, and than that of any row of this name that was removed.

    wall: a wall clock. Tokens follow it, so that they also grow if the row is lost, or comes back from a backup.
    """
    return max(before + 1, wall)


def ask(lock: LockRow | None, request: LockRequest, now: Millis, wall: Millis) -> Held | Waiting | LockRefusal:
    """Decide a request. lock: None if there is no row; `now` means nothing then."""
    if lock is None:
        return "lock-lost" if request.token else _grant(request, next_token(0, wall), wall, ())
    mine = _is_attempt(lock, request)
    queue = live_waiters(lock, now)
    over = is_over(lock, now)
    others = any(not _is_attempt(each, request) for each in queue)
    if mine and lock.state == "held" and request.token in (0, lock.token) and not (over and others):
        # Nobody else got the lock since, so the token still fits, even if the grant has run out meanwhile.
        return Held(replace(lock, renewed=0, waiters=queue))
    if request.token or (mine and lock.state != "held") or _has_ended(lock, request.holder, request.nonce):
        # A request that was under way for long must not bring back what its caller has released, or what others got after it.
        return "lock-lost"
    place = next((number for number, each in enumerate(queue) if _is_attempt(each, request)), None)
    if over and not any(now - each.asked < PRESENT for each in queue[:place]):
        silent = lock.holder if lock.state == "held" and not mine else NO_HOLDER
        # The former holder too may wait again, if its grant ran out. Its attempt ends here, so it must not keep its place.
        rest = tuple(each for each in queue if not _is_attempt(each, request) and (each.holder, each.nonce) != (lock.holder, lock.nonce))
        ended = _ended(lock, lock.holder, lock.nonce, now) if lock.holder and not mine else lock.ended
        return _grant(request, next_token(lock.token, wall), now, rest, ended)._replace(taken_from=silent)
    return _queue(lock, request, queue, place, now)


def _grant(request: LockRequest, token: int, at: Millis, waiters: tuple[Waiter, ...], ended: tuple[EndedAttempt, ...] = ()) -> Held:
    return Held(LockRow(token, "held", request.holder, request.nonce, request.ttl, at, 0, waiters, ended=ended), new=True)


def _ended(lock: LockRow, holder: str, nonce: str, now: Millis) -> tuple[EndedAttempt, ...]:
    """Return the ended attempts of the row with one more. Those that no request can belong to any more are left out."""
    mark = mark_of(holder, nonce)
    kept = [each for each in lock.ended if now - each.at < ENDED_KEPT and each.mark != mark]
    return (*kept, EndedAttempt(mark, now))[-MOST_ENDED:]


def _has_ended(lock: LockRow, holder: str, nonce: str) -> bool:
    mark = mark_of(holder, nonce) if lock.ended else ""
    return any(each.mark == mark for each in lock.ended)


def _queue(lock: LockRow, request: LockRequest, queue: tuple[Waiter, ...], place: int | None, now: Millis) -> Waiting | LockRefusal:
    if not request.wait:
        return "lock-held"
    if place is None:
        if len(queue) >= MOST_WAITERS:
            return "too-many-waiters"
        joined = (*queue, Waiter(request.holder, request.nonce, request.wait, now, now))
        return Waiting(replace(lock, waiters=joined), len(queue), retry_after(len(queue), request.wait))
    before = queue[place]
    retry = retry_after(place, request.wait)
    if before.timeout == request.wait and now - before.asked < min(request.wait // 2, ASKED_STORED):
        # Stored often enough: a waiter that asks after `retry` cannot be dropped before its next write.
        return Waiting(None, place, retry)
    again = replace(before, timeout=request.wait, asked=now)
    return Waiting(replace(lock, waiters=(*queue[:place], again, *queue[place + 1 :])), place, retry)


def retry_after(ahead: int, wait: Millis) -> Millis:
    """Return when a waiter should ask again: soon if it is the next, and several times before it is dropped."""
    return min(FIRST_RETRY + RETRY_STEP * ahead, wait // 4, MOST_RETRY)


def live_waiters(lock: LockRow, now: Millis) -> tuple[Waiter, ...]:
    """Return the waiters that have asked within their own time-outs, by the clocks of storage."""
    # `asked` may be half of the time-out old at the waiter's latest request, see `_queue`.
    return tuple(each for each in lock.waiters if now - each.asked < each.timeout + each.timeout // 2 + MARGIN)


def release(lock: LockRow | None, holder: str, nonce: str, now: Millis, token: int = 0) -> LockRow | None:
    """Return the row without the caller's grant and without it among the waiters; None if it stays as it is.

    The row remembers the attempt, so that a request of it that comes later gets nothing. lock: None if there is no row, which then is made
    for that. token: of the grant, 0 for any of this holder and nonce. Without a holder the token alone names the grant: somebody knows that
    its holder has stopped.
    """
    if lock is None:
        return LockRow(0, "free", NO_HOLDER, "", 0, now, ended=(EndedAttempt(mark_of(holder, nonce), 0),)) if holder else None
    waiters = tuple(each for each in lock.waiters if (each.holder, each.nonce) != (holder, nonce))
    own = (lock.holder, lock.nonce) == (holder, nonce)
    if lock.state != "free" and (own and token in (0, lock.token) if holder else token == lock.token):
        return replace(lock, state="free", waiters=waiters, ended=_ended(lock, lock.holder, lock.nonce, now))
    if waiters != lock.waiters or (holder and not own and not _has_ended(lock, holder, nonce)):
        return replace(lock, waiters=waiters, ended=_ended(lock, holder, nonce, now))
    return None


class LockRevoked(NamedTuple):
    """The outcome of a revocation. lock: the row to write, None if it stays as it is. free_after: time until the lock can be granted."""

    lock: LockRow | None
    free_after: Millis


def revoke(lock: LockRow, note: str, author: str, now: Millis) -> LockRevoked:
    """End a grant for an operator: it cannot be renewed, and runs out. Its holder may rely on it until then."""
    if is_over(lock, now):
        return LockRevoked(None, 0)
    left = free_at(lock) - now
    return LockRevoked(None if lock.state == "revoked" else replace(lock, state="revoked", note=note, author=author), left)


def may_remove(lock: LockRow, written: Millis, now: Millis) -> bool:
    """Return True if the row can be removed: it was not written for `KEPT`, and its token is as old. So the token of a new row, which is a
    wall time, is greater, as long as that clock is less than `KEPT` behind.

    written: when the row was last written.
    """
    return is_over(lock, now) and now - max(written, lock.token) >= KEPT


def _is_attempt(one: LockRow | Waiter, request: LockRequest) -> bool:
    return one.holder == request.holder and one.nonce == request.nonce
