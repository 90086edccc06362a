"""The retries of a failed delivery: the pauses, the number of attempts, and the end. Pure.

`tenants.model` has the policy's fields and defaults, and `delivery.channels.rules.judge` says which answers are retried.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import orjson

from ...core import backoff
from ...core.clock import Millis
from ...delivery.channels.model import LONGEST_TIMEOUT
from ...storage.ports import Props
from ...tenants.model import DEFAULT_ATTEMPTS, DEFAULT_FIRST, DEFAULT_MAX, DEFAULT_PAUSES, DEFAULT_WITHIN, Retry
from ..timings import MOST_LOST_OWNERS

PAUSE_JITTER = 0.2
"""Largest part by which a listed pause is lengthened at random. It is never shortened: receivers know the list."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Retry policy of an event, complete. Times in milliseconds.

    `tenants.model` has the defaults, `policy_of` applies them, and `delivery.channels.rules.judge` says which answers are retried.
    """

    attempts: int
    first: Millis
    longest: Millis
    within: Millis
    pauses: tuple[Millis, ...] = ()
    """The pauses between attempts, one fewer than `attempts`; empty for exponential ones."""


def policy_of(tenant: Retry, override: str | None, pauses: str | None = None) -> RetryPolicy:
    """Return the tenant's retry policy with the event's changes. pauses: the event's own pauses, as stored."""
    mine = () if tenant.schedule is None else tuple(tenant.schedule)
    return _policy(tenant.attempts, tenant.first, tenant.max, tenant.within, mine, override or "", pauses or "")


@lru_cache(maxsize=1024)
def _policy(
    attempts: int | None,
    first: Millis | None,
    longest: Millis | None,
    within: Millis | None,
    mine: tuple[Millis, ...],
    override: str,
    pauses: str,
) -> RetryPolicy:
    changed = orjson.loads(override) if override else {}
    within = changed.get("within", DEFAULT_WITHIN if within is None else within)
    attempts, first, longest = (changed.get(name, own) for name, own in (("attempts", attempts), ("first", first), ("max", longest)))
    listed: tuple[Millis, ...] = ()
    if pauses:
        listed = tuple(orjson.loads(pauses))
    elif not changed.keys() & {"attempts", "first", "max"} and mine:
        listed = mine
    elif attempts is None and first is None and longest is None:
        listed = DEFAULT_PAUSES
    if listed:
        return RetryPolicy(len(listed) + 1, listed[0], listed[-1], within, listed)
    return RetryPolicy(
        DEFAULT_ATTEMPTS if attempts is None else attempts,
        DEFAULT_FIRST if first is None else first,
        DEFAULT_MAX if longest is None else longest,
        within,
    )


def back_off(policy: RetryPolicy, tries: int, chance: float) -> Millis:
    """Return the milliseconds to wait after attempt `tries` (1 = the first): the listed pause with jitter, or exponential with full jitter.

    Source: "Exponential Backoff And Jitter" (full jitter).
    """
    if policy.pauses:
        return round(policy.pauses[min(tries, len(policy.pauses)) - 1] * (1 + PAUSE_JITTER * chance))
    return max(1, round(backoff.exponential(policy.first, tries - 1, policy.longest, 40) * chance))


def after_failure(
    policy: RetryPolicy,
    due: Millis,
    tries: int,
    now: Millis,
    chance: float,
    *,
    final: bool,
    retry_after: float | None = None,
    until: Millis | None = None,
) -> Millis | None:
    """Return the time of the next attempt, or None if the event is dead.

    retry_after: seconds that the receiver asks for (RFC 9110). The pause becomes longer for it only while all attempts that are left still
    fit into the policy's time, so that no receiver makes them fewer. until: the last moment at which an attempt of the event may start, if
    it has one: no pause becomes longer than that, and a later result means that the event lapses.
    """
    if final or tries >= policy.attempts:
        return None
    # No attempt counts yet if the event was only the probe of an open circuit breaker: the next one comes after the first pause.
    tries = max(1, tries)
    wait, end = back_off(policy, tries, chance), max(due, 0) + policy.within
    if retry_after is not None:
        rest = sum(LONGEST_TIMEOUT + back_off(policy, each, 1.0) for each in range(tries + 1, policy.attempts))
        latest = end - rest if until is None else min(end - rest, until)
        wait = max(wait, min(round(retry_after * 1000), latest - now))
    return now + wait if now + wait <= end else None


def given_up(props: Props, policy: RetryPolicy) -> bool:
    """Return True if so many owners have ended while they delivered this event that it must not be tried again."""
    counted = int(props.get("tries", 0)) - int(props.get("free", 0))
    return props["state"] == "firing" and counted >= policy.attempts + MOST_LOST_OWNERS
