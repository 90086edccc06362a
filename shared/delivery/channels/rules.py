"""Pure decisions of the channels: the verdict on an answer, and the text of an error.

2xx                      delivered
408, 425, 429, 5xx, 1xx  retry, not before Retry-After
410, any other 4xx, 3xx  final
421 of a fleet channel   stale

Times and numbers of retries are elsewhere: `scheduler.shard.retries` computes the next attempt, and `tenants.model` has the settings
and their defaults (`Retry`).
"""

from __future__ import annotations

from http import HTTPStatus

from ...core.clock import Millis
from ...core.durations import retry_after_of
from ...core.owner_header import STALE
from ..fleet_owners.model import PartitionOwner
from .ports import Verdict

MAX_ERROR = 500
"""Longest error of a Verdict, in characters."""
MAX_RETRY_AFTER = 7 * 86_400.0
"""Longest time in seconds that a receiver can postpone an attempt: an event's retries last no longer."""

_RETRY = frozenset((408, 425, 429))
_PHRASES = {status.value: f"answered {status.value} {status.phrase}" for status in HTTPStatus}


def one_line(text: str, limit: int = MAX_ERROR) -> str:
    """Return `text` on one line of printable characters, cut to `limit` with an ellipsis."""
    clean = " ".join("".join([char if char.isprintable() else " " for char in text[: limit * 4]]).split())
    return clean if len(clean) <= limit else clean[: limit - 1] + "…"


def retry_after(header: str | None, now: Millis) -> float | None:
    """Return the seconds from `now` that a `Retry-After` header asks for (RFC 9110 10.2.3: delta-seconds or HTTP-date), at most 7 days.

    None for no header or an invalid one; 0.0 for a date that has passed. Never raises.
    """
    return retry_after_of(header, now, MAX_RETRY_AFTER)


def judge(status: int, retry_after_header: str | None, now: Millis, owner: PartitionOwner | None = None) -> Verdict:
    """Return the verdict on an answer's status. The receiver's own reason phrase is not used, because it could contain anything.

    owner: the server that got the delivery as the owner of a partition.
    """
    if 200 <= status < 300:
        return Verdict("delivered", status)
    if status == STALE and owner is not None:
        return stale(owner)
    error = _PHRASES.get(status) or f"answered {status}"
    if status in _RETRY or status >= 500 or status < 200:
        return Verdict("retry", status, error, retry_after(retry_after_header, now))
    if status < 400:
        return Verdict("final", status, f"{error}: redirects are not followed")
    if status == 410:
        return Verdict("final", status, f"{error}: the receiver wants no more deliveries")
    return Verdict("final", status, error)


def stale(owner: PartitionOwner) -> Verdict:
    """Return the verdict on the answer of a server that does not own the partition under this epoch."""
    return Verdict("stale", STALE, one_line(f"{owner.server} does not own partition {owner.partition} under epoch {owner.epoch}"))
