"""The plays of the turns: actors and faults. The larger plays of `make model` allow more reports and more trouble at once."""

from __future__ import annotations

from collections.abc import Callable

from .state import FASTEST, SLOWEST, TRUE, Faults, Node, Play

PRIMARY = Node(role="primary")


def secondaries(a: int, b: int, last: int = 0) -> dict[str, Node]:
    """The primary is silent. a, b: the reports that these replicas may send. last: the sequence of a's checkpoint of an earlier turn."""
    return {"p": PRIMARY, "a": Node(reports=a, last=last, said=last), "b": Node(reports=b)}


def hand_out(level: int) -> Play:
    """a comes for its turn, now or later; b waits for its end. `Date` is up to a second late."""
    return Play("hand out", secondaries(1 + level, 1), until=6)


def drift(level: int) -> Play:
    """a's clock runs, second by second, as slow as it may, as fast as it may, or right; its process may die."""
    rates = (SLOWEST, TRUE, FASTEST) if level else (SLOWEST, FASTEST)
    return Play("drift", secondaries(1, 1), Faults(crash=level), until=6, dates=(0, 1)[: 1 + level], split=False, rates=rates)


def again(level: int) -> Play:
    """Replica a asks for its turn repeatedly."""
    return Play("again", secondaries(2 + level, 1), until=5, dates=(0,))


def lost_answers(level: int) -> Play:
    """The store's answers to instances get lost, before or after the write."""
    return Play("lost answers", secondaries(1 + level, 1), Faults(again=1), until=5, dates=(0,))


def ends(level: int) -> Play:
    """a finishes or fails, with or without a new sequence, and its publish takes any time."""
    return Play("ends", secondaries(2, 1, last=1), Faults(finish=1 + level, fail=level), until=3 + 2 * level, dates=(0,), split=level > 0)


def revoke(level: int) -> Play:
    """The turn is revoked at any moment."""
    return Play("revoke", secondaries(2, 1), Faults(revoke=1, scan=level), until=3 + 2 * level, dates=(0,), split=level > 0)


def crash(level: int) -> Play:
    """a's process dies, and leaves its checkpoint running; a new one begins. It has a checkpoint of an earlier turn."""
    return Play("crash", secondaries(2 + level, 1, last=1), Faults(crash=1), until=5, dates=(0,), split=False)


def promotion(level: int) -> Play:
    """a becomes primary, and perhaps secondary again; or its process dies, and the next one is primary at once."""
    faults = Faults(promote=1, demote=level, crash=1)
    return Play("promotion", secondaries(2, 1), faults, until=2 + 3 * level, dates=(0,), split=False)


def forgotten(level: int) -> Play:
    """An operator takes back the claim to be primary, at any moment; a becomes primary before that or after, and its process may die."""
    faults = Faults(promote=1, demote=level, crash=level, forget=1)
    return Play("forgotten", secondaries(2, 1), faults, until=2 + level, dates=(0,), split=False)


def latest(level: int) -> Play:
    """Turn after turn is published, in any order; or revoked, and published nevertheless."""
    faults = Faults(finish=2, revoke=1)
    return Play("latest", secondaries(1 + level, 1, last=5), faults, until=1 + 3 * level, dates=(0,), split=False)


PLAYS: dict[str, Callable[[int], Play]] = {
    "hand out": hand_out,
    "drift": drift,
    "again": again,
    "lost answers": lost_answers,
    "ends": ends,
    "revoke": revoke,
    "crash": crash,
    "promotion": promotion,
    "forgotten": forgotten,
    "latest": latest,
}
