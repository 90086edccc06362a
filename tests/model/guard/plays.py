"""The plays of the guard. The larger plays of `make model` have more faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .world import Play


def late(level: int) -> Play:
    """Two nodes; an answer comes late, and with more time an event is cancelled."""
    return Play("late", late=1, cancelled=level)


def lost(level: int) -> Play:
    """Two nodes; an answer is lost, and with more time an agent starts again."""
    return Play("lost", lost=1, restarts=level)


def restarts(level: int) -> Play:
    """Two nodes; an agent starts again, and with more time an event is cancelled."""
    return Play("restarts", restarts=1, cancelled=level)


def cancelled(level: int) -> Play:
    """Two nodes; an event is cancelled, and with more time an answer is lost."""
    return Play("cancelled", cancelled=1, lost=level)


def three(level: int) -> Play:
    """Three nodes; with more time an answer is lost."""
    return Play("three", nodes=3, lost=level)


def evicted(level: int) -> Play:
    """Two nodes, of which one is removed; an answer is lost, and with more time an agent starts again."""
    return Play("evicted", lost=1, restarts=level, evicted=1)


def ahead(level: int) -> Play:
    """Two nodes, of which the first has the earlier NotBefore; an answer is lost, and with more time one comes late."""
    return Play("ahead", lost=1, late=level, ahead=True)


PLAYS: Mapping[str, Callable[[int], Play]] = {play.__name__: play for play in (late, lost, restarts, cancelled, three, evicted, ahead)}
