"""Pure decisions of the channels: the verdict on an answer, and the text of an error.

2xx                     delivered
410                     final; the channel is paused
FINAL                   final, unless the channel names others
any other               retry, not before Retry-After, unless the answer says `tocsin-retry: never`
421 of a fleet channel  stale

Times and numbers of retries are elsewhere: `scheduler.shard.retries` computes the next attempt, and `tenants.model` has the settings
and their defaults (`Retry`).
"""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING, Final

from ...core.clock import Millis
from ...core.durations import retry_after_of
from ...core.owner_header import STALE
from .model import FINAL, GONE
from .ports import Verdict

if TYPE_CHECKING:
    from ..fleet_owners import PartitionOwner

MAX_ERROR = 500
"""Longest error of a Verdict, in characters."""
MAX_RETRY_AFTER = 7 * 86_400.0
"""Longest time in seconds that a receiver can postpone an attempt: an event's retries last no longer."""

NEVER_HEADER: Final = "tocsin-retry"
NEVER: Final = "never"
"""Header of an answer, and its value, by which a receiver ends an event whatever the status."""

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


def judge(
    status: int,
    retry_after_header: str | None,
    now: Millis,
    owner: PartitionOwner | None = None,
    *,
    final: frozenset[int] = FINAL,
    never: bool = False,
    own_target: bool = False,
) -> Verdict:
    """Return the verdict on an answer's status. The receiver's own reason phrase is not used, because it could contain anything.

    owner: the server that got the delivery as the owner of a partition. final: the statuses that the channel does not retry, besides 410.
    never: the answer says `tocsin-retry: never`. own_target: the request went to a path or query of the event's own, so a 410 says nothing
    about the channel.
    """
    if 200 <= status < 300:
        return Verdict("delivered", status)
    if status == STALE and owner is not None:
        return stale(owner)
    error = _PHRASES.get(status) or f"answered {status}"
    if 300 <= status < 400:
        error = f"{error}: redirects are not followed"
    if status == GONE:
        # One server of a fleet does not speak for the others.
        gone = owner is None and not own_target
        return Verdict("final", status, f"{error}: the receiver wants no more deliveries" if gone else error, gone=gone)
    if never:
        return Verdict("final", status, f"{error}: the receiver wants no further attempt")
    if status in final:
        return Verdict("final", status, error)
    return Verdict("retry", status, error, retry_after(retry_after_header, now))


def stale(owner: PartitionOwner) -> Verdict:
    """Return the verdict on the answer of a server that does not own the partition under this epoch."""
    return Verdict("stale", STALE, one_line(f"{owner.server} does not own partition {owner.partition} under epoch {owner.epoch}"))
