"""The plays of locks. The larger plays of `make model` have more faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .world import LockPlay


def lost(level: int) -> LockPlay:
    """A write or an answer is lost; the next caller comes as early as it may."""
    return LockPlay("lost", lost=1 + level)


def stray(level: int) -> LockPlay:
    """A caller gives a request up, which is carried out later."""
    return LockPlay("stray", stray=1, lost=level, renewals=0)


def delayed(level: int) -> LockPlay:
    """A write is applied late; callers ask for a second grant."""
    return LockPlay("delayed", delayed=1, lost=level, renewals=level, tries=1 + level)


def holder(level: int) -> LockPlay:
    """The holder crashes, and one caller waits."""
    return LockPlay("holder", waiting=True, crashes=1, lost=level, renewals=level, steps=2 + level)


def queue(level: int) -> LockPlay:
    """Three callers wait for each other; with more time one of them crashes."""
    return LockPlay("queue", callers=3, waiting=True, crashes=level, renewals=0, steps=1 + level)


PLAYS: Mapping[str, Callable[[int], LockPlay]] = {play.__name__: play for play in (lost, stray, delayed, holder, queue)}
