"""Acquires, renews and releases a lock: generators without I/O, which both clients run.

The validity of a grant is counted from before its request is sent, on a clock that goes on while the machine sleeps. The service counts
from later, and longer. So whoever stops when `LockGrant.ends` has come stops before anybody else can get the lock.
"""

from __future__ import annotations

import logging
import os
import re
import socket
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from ...core import backoff
from ...core.durations import format_duration
from ..calls import encode
from ..errors import LockHeld, Refused, Unreachable, Unreadable
from ..exchange import ApiCall, ApiReply, CallSteps, ConnectionFailure, RetrySettings, SendCall, Sleep, exchange, read_empty, refusal
from ..reading import read_json

log = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,98}[A-Za-z0-9])?")
WAITER_TIMEOUT: Final = timedelta(seconds=15)
"""A waiter that does not ask again within this time leaves the queue. It asks at least every 4 s."""
TOLD_EVERY: Final = 30.0
"""Seconds between two lines of the log while the service does not answer a waiter."""
LONGEST_ASKED: Final = 60.0
"""Longest `Retry-After` in seconds that a waiter honours."""
RENEW_AT: Final = 1 / 3
"""Part of the validity after which a grant is renewed. Two more tries fit in the rest."""
FIRST_PAUSE: Final = 0.2
LONGEST_PAUSE: Final = 5.0
"""Seconds between tries without an answer, with full jitter."""
REFUSED_PAUSE: Final = 1.0
"""Seconds until the next try when the queue is full."""
FORKED: Final = "it belongs to the process that this one was forked from"
"""The reason for which a lock is lost in a forked child."""
RELEASE: Final = RetrySettings(retries=1)
RELEASE_TIMEOUT: Final = 5.0
"""Seconds. A release that fails does no harm: the grant runs out."""

type SteadyClock = Callable[[], float]
"""Returns the seconds of a clock that goes on while the machine sleeps."""


@dataclass(slots=True, eq=False)
class LockAttempt:
    """An attempt to hold a lock. nonce: is replaced once the service has ended the attempt, see `acquire`. wait: seconds for which it
    waits at most; None for no limit."""

    name: str
    holder: str
    nonce: str
    ttl: timedelta
    wait: float | None


class LockGrant(NamedTuple):
    """A grant. sent: time at which the request for it was sent. ends: time at which its holder must stop. Both in seconds of the steady
    clock. version: is sent with the next renewal."""

    token: int
    sent: float
    ends: float
    version: str

    def renew_at(self) -> float:
        """Return the time at which to renew the grant."""
        return self.sent + (self.ends - self.sent) * RENEW_AT


class LockEnded(NamedTuple):
    """The end of a grant, as the service has answered. why: the reason, for people."""

    why: str


def check_name(name: str) -> None:
    """Raise ValueError for a name that no lock has."""
    if not _NAME.fullmatch(name):
        raise ValueError(f"{name[:40]!r} is not the name of a lock: 1 to 100 of A-Z a-z 0-9 and inner . _ -")


def new_attempt(name: str, ttl: timedelta, wait: timedelta | None, holder: str | None) -> LockAttempt:
    """Return an attempt with a nonce of its own. Raises TypeError and ValueError for arguments that cannot be sent."""
    for what, given in (("ttl", ttl), ("wait", wait)):
        if given is not None and not isinstance(given, timedelta):
            raise TypeError(f"{what}: {given!r} is not a timedelta; write timedelta(seconds={given!r})")
    if not timedelta(seconds=2) <= ttl <= timedelta(hours=1):
        raise ValueError(f"ttl: {ttl} is not from 2 seconds to 1 hour")
    if wait is not None and wait < timedelta(0):
        raise ValueError(f"wait: {wait} is negative")
    check_name(name)
    own = f"{socket.gethostname()[:50]}/{os.getpid()}" if holder is None else holder
    return LockAttempt(name, own, _nonce(), ttl, None if wait is None else wait.total_seconds())


def acquire(attempt: LockAttempt, now: SteadyClock, chance: Callable[[], float]) -> CallSteps[LockGrant]:
    """Wait for the lock. Raises `LockHeld` when the time is over, `Refused`, `Unreachable`, `Unreadable`.

    While the service is away, 5xx or no answer, the wait goes on, with a line in the log every 30 s. Answers that no time mends (401, 403,
    404), a name that does not resolve, and a failure of TLS end it at once.

    If the answer with a grant was lost, and the grant has ended before the next request, the service refuses the attempt from then on. The
    caller has done nothing under that grant, so it goes on under another nonce.
    """
    began = told = now()
    until = None if attempt.wait is None else began + attempt.wait
    failures = 0
    while True:
        sent = now()
        last = until is not None and sent >= until
        result: ApiReply | ConnectionFailure = yield SendCall(_put(attempt, wait=not last))
        if not isinstance(result, ConnectionFailure) and result.status < 500 and result.status != 429:
            failures = 0
            found = _read(result, attempt, sent)
            if isinstance(found, LockGrant):
                return found
            pause = found
        else:
            failures += 1
            failure = _failure(result, attempt)
            if last or (isinstance(result, ConnectionFailure) and result.lasting):
                raise failure
            if now() - told >= TOLD_EVERY:
                told = now()
                extra = {"action": "lock_waits_for_app", "lock": attempt.name}
                log.warning("Lock %s is asked for again, after %.0f s: %s", attempt.name, told - began, failure, extra=extra)
            pause = _pause(result, failures, chance)
        if last:
            raise LockHeld(attempt.name)
        yield Sleep(pause if until is None else min(pause, max(0.0, until - now())))


def renew(attempt: LockAttempt, grant: LockGrant, now: SteadyClock) -> CallSteps[LockGrant | LockEnded | None]:
    """Renew a grant. Return None if this try failed and the next one may succeed."""
    sent = now()
    body = {"holder": attempt.holder, "nonce": attempt.nonce, "ttl": format_duration(_millis(attempt.ttl)), "token": grant.token}
    left = max(0.5, min(grant.ends - sent, (grant.ends - grant.sent) * RENEW_AT))
    result: ApiReply | ConnectionFailure = yield SendCall(
        ApiCall("PUT", _path(attempt.name), lambda reply: reply, body=encode({**body, "version": grant.version}), timeout=left)
    )
    if isinstance(result, ConnectionFailure):
        return None
    if result.status == 200:
        found = _grant(result, sent)
        return found if found.token == grant.token else LockEnded("the service has given out another grant")
    refused = refusal(result, f"PUT {_path(attempt.name)}")
    return LockEnded(refused.detail) if refused.code == "lock-lost" else None


def renewal_pause(grant: LockGrant, failures: int, now: float, chance: float) -> float:
    """Return the seconds until the next renewal. failures: failed tries since the last renewal."""
    if not failures:
        return max(0.0, grant.renew_at() - now)
    pause = backoff.exponential(FIRST_PAUSE, failures - 1, (grant.ends - grant.sent) * RENEW_AT / 2) * chance
    return max(0.0, min(pause, grant.ends - now))


def release(attempt: LockAttempt) -> CallSteps[None]:
    """Release the lock, and leave its queue. Raises `Refused`, `Unreachable`, `Unreadable`."""
    query = {"holder": attempt.holder, "nonce": attempt.nonce}
    return exchange(ApiCall("DELETE", _path(attempt.name), read_empty, query=query, timeout=RELEASE_TIMEOUT), RELEASE, lambda: 1.0)


def _put(attempt: LockAttempt, *, wait: bool) -> ApiCall[Any]:
    body: dict[str, Any] = {"holder": attempt.holder, "nonce": attempt.nonce, "ttl": format_duration(_millis(attempt.ttl))}
    if wait:
        body["wait"] = format_duration(_millis(WAITER_TIMEOUT))
    return ApiCall("PUT", _path(attempt.name), lambda reply: reply, body=encode(body))


def _read(reply: ApiReply, attempt: LockAttempt, sent: float) -> LockGrant | float:
    """Return the grant, or the seconds until the next try. Raises `Refused`, `Unreadable`."""
    if reply.status == 200:
        return _grant(reply, sent)
    if reply.status == 202:
        return float(_document(reply, "retry_ms")["retry_ms"]) / 1000
    refused = refusal(reply, f"PUT {_path(attempt.name)}")
    if refused.code == "lock-lost":
        attempt.nonce = _nonce()
    elif refused.code not in ("lock-held", "too-many-waiters"):
        raise refused
    return REFUSED_PAUSE


def _grant(reply: ApiReply, sent: float) -> LockGrant:
    found = _document(reply, "token", "valid_ms", "version")
    return LockGrant(int(found["token"]), sent, sent + float(found["valid_ms"]) / 1000, str(found["version"]))


def _document(reply: ApiReply, *names: str) -> dict[str, Any]:
    try:
        found = read_json(reply.body)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found.keys() >= set(names):
        raise Unreadable(f"status {reply.status}, but the body does not fit this API: {', '.join(names)}")
    return found


def _failure(result: ApiReply | ConnectionFailure, attempt: LockAttempt) -> Refused | Unreachable:
    if isinstance(result, ConnectionFailure):
        return Unreachable(result.why, sent=result.sent)
    return refusal(result, f"PUT {_path(attempt.name)}")


def _pause(result: ApiReply | ConnectionFailure, failures: int, chance: Callable[[], float]) -> float:
    asked = refusal(result, "").retry_after if isinstance(result, ApiReply) else None
    return min(asked or 0.0, LONGEST_ASKED) + backoff.exponential(FIRST_PAUSE, failures - 1, LONGEST_PAUSE) * chance()


def _path(name: str) -> str:
    return f"locks/{quote(name, safe='')}"


def _nonce() -> str:
    return uuid.uuid4().hex


def _millis(span: timedelta) -> int:
    return -(-span // timedelta(milliseconds=1))
