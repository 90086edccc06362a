"""Applies decisions of `rules` to the row of a lock: generators without I/O, which a runner carries out. All of them are safe to abandon
between any two effects, and to repeat.

Every change is a write on the ETag of the row that was read. After a lost answer, as after a lost race, the row is read again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

from ..core.clock import Millis
from ..engine.conflicts import WriteConflict, give_up, retry_steps, write_for
from ..engine.effects import Steps, get, load_first, write
from ..storage.ports import ANY, MAX_EGT_ROWS, Applied, Delete, Insert, Merge, Replace, Row
from . import rules
from .rows import RENEWED, TABLE, LockRow, parse_lock
from .rules import Held, LockRefusal, LockRequest, LockRevoked, Waiting

TRIES: Final = 10
"""Attempts of a call while others change the row."""
RENEWAL_TRIES: Final = 30
"""Attempts of a renewal, which must get through beside many waiters."""


class AskResult(NamedTuple):
    """The outcome of a request for a lock, and the ETag of the row after it; '' for a refusal."""

    outcome: Held | Waiting | LockRefusal | Literal["missing"]
    etag: str = ""


def ask(pk: str, name: str, request: LockRequest, wall: Millis, *, create: bool) -> Steps[AskResult]:
    """Grant or renew a lock, or queue the caller.

    wall: the wall time, from which new tokens follow. create: make the row if there is none; otherwise the outcome is `missing`.
    Raises `OutcomeUnknown`, `Unavailable`.
    """

    def attempt() -> Steps[AskResult | WriteConflict]:
        row = yield from get(TABLE, pk, name)
        if row is None and not create and not request.token:
            return AskResult("missing")
        decided = rules.ask(parse_lock(row) if row is not None else None, request, row.read_at if row is not None else 0, wall)
        if isinstance(decided, str):
            return AskResult(decided)
        if decided.lock is None:
            return AskResult(decided, row.etag if row is not None else "")
        op = Replace(name, decided.lock.props(), row.etag) if row is not None else Insert(name, decided.lock.props())
        answer = yield from write(TABLE, pk, op)
        return AskResult(decided, answer.etags[0]) if isinstance(answer, Applied) else WriteConflict(answer)

    ended = yield from retry_steps(attempt, RENEWAL_TRIES if request.token else TRIES)
    return give_up(ended, "the lock") if isinstance(ended, WriteConflict) else ended


def look(pk: str, name: str, request: LockRequest) -> Steps[AskResult | None]:
    """Return the answer to a request that changes nothing; None if `ask` has to write. Raises `Unavailable`."""
    row = yield from get(TABLE, pk, name)
    decided = rules.ask(parse_lock(row), request, row.read_at, 0) if row is not None else None
    if isinstance(decided, str) or (isinstance(decided, Waiting) and decided.lock is None):
        return AskResult(decided)
    return None


def renew(pk: str, name: str, etag: str) -> Steps[str | None]:
    """Renew a grant in one request. Return the row's new ETag; None if the row has changed since the holder's last request, or if the
    answer was lost. Call `ask` then, which reads the row.

    etag: of the row that the holder's last grant or renewal wrote.
    """
    answer = yield from write(TABLE, pk, Merge(name, RENEWED, etag))
    return answer.etags[0] if isinstance(answer, Applied) else None


class Released(NamedTuple):
    """The outcome of a release. before: the row before, None if there was none. ended: the caller's grant or wait has ended by it."""

    before: LockRow | None
    ended: bool


class Attempt(NamedTuple):
    """A caller's attempt to hold a lock: by holder and nonce, or, without a holder, by the token of a grant."""

    holder: str
    nonce: str
    token: int


def release(
    pk: str, name: str, own: Attempt, wall: Millis, etag: str = "", *, create: bool = False
) -> Steps[Released | Literal["missing", "changed"]]:
    """End the caller's attempt: its grant, its wait, and what a request of it that is still under way could get.

    wall: the wall time. etag: the outcome is `changed` unless the row has it; '' for any. create: make the row if there is none; otherwise
    the outcome is `missing`. Raises `OutcomeUnknown`, `Unavailable`.
    """

    def attempt() -> Steps[Released | Literal["missing", "changed"] | WriteConflict]:
        row = yield from get(TABLE, pk, name)
        if row is None and not create:
            return "missing"
        if etag and (row is None or row.etag != etag):
            return "changed"
        before = parse_lock(row) if row is not None else None
        after = rules.release(before, own.holder, own.nonce, row.read_at if row is not None else wall, own.token)
        if after is None:
            return Released(before, ended=False)
        op = Replace(name, after.props(), row.etag) if row is not None else Insert(name, after.props())
        answer = yield from write(TABLE, pk, op)
        if not isinstance(answer, Applied):
            return WriteConflict(answer)
        return Released(before, before is not None and (after.state != before.state or after.waiters != before.waiters))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, "the lock") if isinstance(ended, WriteConflict) else ended


def revoke(pk: str, name: str, note: str, author: str) -> Steps[tuple[LockRow, LockRevoked] | None]:
    """Let a grant run out. Return the row before and the outcome; None if there is no row. Raises `OutcomeUnknown`, `Unavailable`."""

    def attempt() -> Steps[tuple[LockRow, LockRevoked] | WriteConflict | None]:
        row = yield from get(TABLE, pk, name)
        if row is None:
            return None
        before = parse_lock(row)
        done = rules.revoke(before, note, author, row.read_at)
        if done.lock is None:
            return before, done
        return (yield from write_for((before, done), TABLE, pk, Replace(name, done.lock.props(), row.etag)))

    ended = yield from retry_steps(attempt, TRIES)
    return give_up(ended, "the lock") if isinstance(ended, WriteConflict) else ended


def remove(pk: str, rows: Iterable[Row]) -> Steps[int]:
    """Remove the rows of locks that nobody has used for long. Return how many. rows: as read."""
    removed = 0
    for row in rows:
        if rules.may_remove(parse_lock(row), row.timestamp, row.read_at):
            # One by one: a lock that is used meanwhile keeps its row, and the other rows are removed nevertheless.
            answer = yield from write(TABLE, pk, Delete(row.rk, row.etag))
            removed += isinstance(answer, Applied)
    return removed


def forget(pk: str) -> Steps[None]:
    """Remove all rows of a partition, whose tenant ends. Raises `OutcomeUnknown`, `Unavailable`; can be repeated."""

    def attempt() -> Steps[WriteConflict | None]:
        while rows := (yield from load_first(TABLE, pk, "", "~", MAX_EGT_ROWS)):
            answer = yield from write(TABLE, pk, *(Delete(row.rk, ANY) for row in rows))
            if not isinstance(answer, Applied):
                return WriteConflict(answer)
        return None

    ended = yield from retry_steps(attempt, TRIES)
    if ended is not None:
        give_up(ended, "the lock")
