"""The plays of approvals. The larger plays of `make model` have more faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .world import Play


def lost(level: int) -> Play:
    """Two fleets of a node each; an answer is lost, and with more time one comes late."""
    return Play("lost", lost=1, late=level)


def stale(level: int) -> Play:
    """Two fleets of a node each; one is read before it changes, and a person holds the event in the second."""
    return Play("stale", stale=1, held=1, lost=level)


def killed(level: int) -> Play:
    """Two fleets of a node each; an agent is killed and starts again, and a POST fails."""
    return Play("killed", killed=1, failed=1, lost=level)


def gone(level: int) -> Play:
    """Two fleets of a node each; an agent is killed for good, and with more time an answer is lost."""
    return Play("gone", gone=1, lost=level)


def wide(level: int) -> Play:
    """Two fleets, one of them with two nodes; with more time an answer is late."""
    return Play("wide", ("ab", "d"), late=level)


def stranger(level: int) -> Play:
    """Two fleets of a node each, and a VM that nobody knows; an answer is lost, and with more time an agent is killed."""
    return Play("stranger", lost=1, killed=level, stranger=True)


def turns(level: int) -> Play:
    """A fleet of two nodes that prepare; an answer is late, an agent is killed for good, and with more time a POST fails."""
    return Play("turns", ("ab",), late=1, gone=1, failed=level)


def at_once(level: int) -> Play:
    """A fleet of two nodes that approve without preparation; an answer is late, an agent is killed for good; later a POST fails."""
    return Play("at_once", ("ab",), late=1, gone=1, failed=level, at_once=True)


def at_once_lost(level: int) -> Play:
    """The same; an answer is lost, an agent is killed and starts again, and with more time an answer is late."""
    return Play("at_once_lost", ("ab",), lost=1, killed=1, late=level, at_once=True)


def at_once_three(level: int) -> Play:
    """Three nodes of a fleet that approve without preparation; with more time an answer is late."""
    return Play("at_once_three", ("abc",), late=level, at_once=True)


def at_once_early(level: int) -> Play:
    """Two nodes that approve without preparation, in a fleet that approves events before their time; an answer is late."""
    return Play("at_once_early", ("ab",), late=1, failed=level, at_once=True, early=True)


def granted(level: int) -> Play:
    """A fleet of two nodes that prepare; a person approves at any moment, and with more time an answer is late."""
    return Play("granted", ("ab",), granted=1, late=level)


PLAYS: Mapping[str, Callable[[int], Play]] = {
    play.__name__: play
    for play in (lost, stale, killed, gone, wide, stranger, turns, at_once, at_once_lost, at_once_three, at_once_early, granted)
}
