"""Broken locks. Each leaves out one rule of the protocol; the checker must find what it leads to."""

from __future__ import annotations

import dataclasses
from typing import Any

from shared.locks import protocol, rules
from shared.storage import ports
from tests.model.checking.checker import Report, explore
from tests.model.checking.mutants import Mutant, Patch

from .plays import PLAYS
from .world import LockPlay, LockWorld


def hunt(mutant: Mutant, limit: int = 1_000_000) -> Report:
    """Explore the mutant's play with its rule left out."""
    change: Any = mutant.change
    with mutant.applied():
        return explore(LockWorld(change(PLAYS[mutant.play](0))), limit=limit)


# -- validity


def no_margin() -> list[Patch]:
    return [(rules, "MARGIN", 0)]


def no_drift() -> list[Patch]:
    return [(rules, "reuse_delay", lambda ttl: ttl + rules.MARGIN)]


def from_the_answer() -> list[Patch]:
    return [(LockWorld, "_since", lambda self, state, caller: state.now)]


def never_over() -> list[Patch]:
    return [(rules, "is_over", lambda lock, now: lock.state == "free")]


def free_at_once() -> list[Patch]:
    plain = rules.revoke

    def revoke(*args: Any) -> Any:
        done = plain(*args)
        return done if done.lock is None else done._replace(lock=dataclasses.replace(done.lock, state="free"))

    return [(rules, "revoke", revoke)]


def _asked(change: Any) -> list[Patch]:
    """Decide each request as if the row were `change(row, request)`."""
    plain = rules.ask
    return [(rules, "ask", lambda lock, request, now, wall: plain(lock and change(lock, request), request, now, wall))]


def revoked_renewed() -> list[Patch]:
    return _asked(lambda lock, request: dataclasses.replace(lock, state="held") if lock.state == "revoked" else lock)


def released_got_again() -> list[Patch]:
    return _asked(lambda lock, request: dataclasses.replace(lock, holder="", nonce="", ended=()) if lock.state == "free" else lock)


def new_for_each_request() -> list[Patch]:
    def change(lock: Any, request: Any) -> Any:
        mine = (lock.holder, lock.nonce) == (request.holder, request.nonce)
        return dataclasses.replace(lock, state="free", holder="", nonce="") if mine and lock.state == "held" else lock

    return _asked(change)


def any_grant_released() -> list[Patch]:
    plain = rules.release

    def release(lock: Any, holder: str, nonce: str, now: int, token: int = 0) -> Any:
        return plain(lock, holder, lock.nonce if lock is not None and lock.holder == holder else nonce, now, 0)

    return [(rules, "release", release)]


# -- tokens


def same_token() -> list[Patch]:
    return [(rules, "next_token", lambda before, wall: max(before, wall, 1))]


def tokens_from_one() -> list[Patch]:
    return [(rules, "next_token", lambda before, wall: before + 1)]


def removed_when_free() -> list[Patch]:
    return [(rules, "may_remove", lambda lock, written, now: rules.is_over(lock, now))]


def removed_by_age_alone() -> list[Patch]:
    return [(rules, "may_remove", lambda lock, written, now: rules.is_over(lock, now) and now - written >= rules.KEPT)]


# -- conditions of writes


def written_without_etag() -> list[Patch]:
    return [(protocol, "Replace", lambda rk, props, etag: ports.Replace(rk, props, ports.ANY))]


def renewed_without_etag() -> list[Patch]:
    return [(protocol, "Merge", lambda rk, props, etag: ports.Merge(rk, props, ports.ANY))]


def removed_without_etag() -> list[Patch]:
    return [(protocol, "Delete", lambda rk, etag: ports.Delete(rk, ports.ANY))]


# -- waiters


def waiters_forgotten() -> list[Patch]:
    return [(rules, "live_waiters", lambda lock, now: ())]


def waiters_never_dropped() -> list[Patch]:
    # Nor passed over by a free lock.
    return [(rules, "live_waiters", lambda lock, now: lock.waiters), (rules, "PRESENT", 10**9)]


def last_come_first() -> list[Patch]:
    plain = rules._queue

    def queue(lock: Any, request: Any, waiters: Any, place: Any, now: int) -> Any:
        found = plain(lock, request, waiters, place, now)
        if place is None and isinstance(found, rules.Waiting) and found.lock is not None:
            *rest, last = found.lock.waiters
            return found._replace(lock=dataclasses.replace(found.lock, waiters=(last, *rest)))
        return found

    return [(rules, "_queue", queue)]


def _twice(play: Any) -> Any:
    assert isinstance(play, LockPlay)
    return dataclasses.replace(play, tries=2)


def _from_the_first(play: Any) -> Any:
    return dataclasses.replace(_twice(play), held=True, steps=0, skews=(0,))


def ended_forgotten() -> list[Patch]:
    return [(rules, "_has_ended", lambda lock, holder, nonce: False)]


def unknown_not_remembered() -> list[Patch]:
    plain = rules.release

    def release(lock: Any, holder: str, nonce: str, now: int, token: int = 0) -> Any:
        known = lock is not None and any((each.holder, each.nonce) == (holder, nonce) for each in (lock, *lock.waiters))
        return plain(lock, holder, nonce, now, token) if known else None

    return [(rules, "release", release)]


def another_grant_forgets() -> list[Patch]:
    plain = rules.ask

    def ask(lock: Any, request: Any, now: int, wall: int) -> Any:
        found = plain(lock, request, now, wall)
        if isinstance(found, rules.Held) and found.new:
            return found._replace(lock=dataclasses.replace(found.lock, ended=()))
        return found

    return [(rules, "ask", ask)]


MUTANTS = [
    Mutant("no margin for the times of two machines", "lost", no_margin),
    Mutant("no room for a slow clock", "drift", no_drift),
    Mutant("validity counted from the answer", "slow", from_the_answer),
    Mutant("a grant that does not run out", "lost", never_over),
    Mutant("a revoked lock is free at once", "revoked", free_at_once),
    Mutant("a revoked grant is renewed", "revoked", revoked_renewed),
    Mutant("a request from before the release gets the lock", "stray", released_got_again),
    Mutant("ended attempts that are forgotten", "stray", ended_forgotten),
    Mutant("a grant that forgets the attempts before it", "stray", another_grant_forgets),
    Mutant("a release that finds nothing and is not remembered", "given_up", unknown_not_remembered),
    Mutant("a repeated request gets another grant", "lost", new_for_each_request),
    Mutant("a release ends a later attempt of the same holder", "stray", any_grant_released, _from_the_first),
    Mutant("a token that stays", "lost", same_token),
    Mutant("tokens that begin anew with the row", "removed", tokens_from_one),
    Mutant("a row removed as soon as the lock is free", "removed", removed_when_free),
    Mutant("a row removed although its token is ahead of the time", "removed", removed_by_age_alone),
    Mutant("a grant written without the row's ETag", "lost", written_without_etag),
    Mutant("a renewal without the row's ETag", "renewed", renewed_without_etag),
    Mutant("a removal without the row's ETag", "removed", removed_without_etag, _twice),
    Mutant("waiters that are forgotten", "queue", waiters_forgotten),
    Mutant("waiters that are never dropped", "abandoned", waiters_never_dropped),
    Mutant("the last waiter first", "abandoned", last_come_first),
]
