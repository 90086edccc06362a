"""The plays of locks. The larger plays of `make model` have more faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from shared.locks.timings import KEPT

from .world import LockPlay


def lost(level: int) -> LockPlay:
    """A write or an answer is lost; the next caller comes as early as it may."""
    return LockPlay("lost", lost=1 + level, renewals=level)


def slow(level: int) -> LockPlay:
    """An answer arrives late."""
    return LockPlay("slow", slow=1 + level, renewals=level)


def stray(level: int) -> LockPlay:
    """A caller gives a request up, which is carried out later."""
    return LockPlay("stray", stray=1, lost=level, renewals=0)


def given_up(level: int) -> LockPlay:
    """A caller gives its attempt up while its request is under way: the release comes first."""
    return LockPlay("given_up", stray=1, leaves=1, lost=level, renewals=0)


def delayed(level: int) -> LockPlay:
    """A write is applied late; callers ask for a second grant."""
    return LockPlay("delayed", delayed=1, lost=level, renewals=level, tries=1 + level)


def renewed(level: int) -> LockPlay:
    """The holder renews its grant; meanwhile somebody else comes."""
    return LockPlay("renewed", held=True, lost=1, renewals=1 + level, steps=2 + level)


def drift(level: int) -> LockPlay:
    """The holder's clock is slow, and the grant long."""
    return LockPlay("drift", lost=level, ttl=1_000_000, step=1_010_000, skews=(0,), renewals=level)


def holder(level: int) -> LockPlay:
    """The holder or the waiter crashes."""
    return LockPlay("holder", held=True, waiting=True, crashes=1, lost=level, renewals=level, steps=3 + level)


def queue(level: int) -> LockPlay:
    """Two callers wait in order, with times of two machines, and the holder releases the lock."""
    return LockPlay("queue", callers=3, held=True, waiting=True, renewals=level, steps=1)


def abandoned(level: int) -> LockPlay:
    """Two callers wait. One of the three crashes, or a waiter leaves."""
    return LockPlay("abandoned", callers=3, held=True, waiting=True, crashes=1, leaves=level, renewals=0, steps=1 + level, skews=(0,))


def revoked(level: int) -> LockPlay:
    """An operator revokes the grant while its holder renews it."""
    return LockPlay("revoked", held=True, revokes=1, lost=level, renewals=1 + level)


def removed(level: int) -> LockPlay:
    """The row of a lock is removed after a day, and made anew by processes whose clocks are nearly a day wrong."""
    walls = (0, 1 - KEPT, KEPT)
    return LockPlay("removed", removals=1 + level, renewals=0, step=KEPT, steps=3, skews=(0,), walls=walls)


PLAYS: Mapping[str, Callable[[int], LockPlay]] = {
    play.__name__: play for play in (lost, slow, stray, given_up, delayed, renewed, drift, holder, queue, abandoned, revoked, removed)
}
