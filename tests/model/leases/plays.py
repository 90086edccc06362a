"""The plays of the lease protocol. V = 1, T = 2; the larger plays of `make model` allow more beats and more lost answers."""

from __future__ import annotations

from collections.abc import Callable

from shared.leases.profiles import Profile

from .world import Doing, Life, Play

PROFILE = Profile(0, 1, 2)
JOINED = ("register",)
OWNS = ("register", "claim")


def take_over(level: int) -> Play:
    """b1 fences the silent owner and claims; the owner may beat at any time, however late."""
    return Play(
        "take over",
        PROFILE,
        {"a1": Life("a", "b", Doing(beat=1 + level), OWNS), "b1": Life("b", "a", Doing(fence=2 + level, claim=1), JOINED)},
        until=3 + level,
        lost=1,
    )


def slow_beats(level: int) -> Play:
    """Beats whose answers get lost and that are found applied later."""
    return Play(
        "slow beats",
        PROFILE,
        {"a1": Life("a", "b", Doing(beat=2 + level), OWNS), "b1": Life("b", "a", Doing(fence=2, claim=1), JOINED)},
        until=2 + level,
        lost=1 + level,
    )


def race(level: int) -> Play:
    """Two claim a free partition, and one of them may be taken for dead."""
    return Play(
        "race",
        PROFILE,
        {
            "a1": Life("a", "b", Doing(beat=level, claim=1), JOINED),
            "b1": Life("b", "a", Doing(fence=2, claim=1), JOINED),
        },
        until=2 + level,
        lost=1,
    )


def hand_off(level: int) -> Play:
    """The owner releases, the other claims."""
    return Play(
        "hand-off",
        PROFILE,
        {"a1": Life("a", "b", Doing(beat=1, release=1, claim=level), OWNS), "b1": Life("b", "a", Doing(claim=2), JOINED)},
        until=2,
        lost=1 + level,
    )


def resume(level: int) -> Play:
    """The owner may crash; its successor, which can prove that then and only then, and the other both want the partition."""
    return Play(
        "resume",
        PROFILE,
        {
            "a1": Life("a", "b", Doing(beat=1), OWNS),
            "a2": Life("a", "b", Doing(claim=1), succeeds="a1"),
            "b1": Life("b", "a", Doing(fence=level, claim=1), JOINED),
        },
        until=1 + level,
        lost=1,
        crashes=1,
    )


def namesake(level: int) -> Play:
    """The owner is fenced while it stands still, a process of the same name starts, and the owner wakes up."""
    return Play(
        "namesake",
        PROFILE,
        {
            "a1": Life("a", "b", Doing(beat=2), OWNS),
            "a2": Life("a", "b", Doing(claim=level)),
            "b1": Life("b", "a", Doing(fence=2, claim=1), JOINED),
        },
        until=2,
        lost=level,
    )


def returns(level: int) -> Play:
    """The fenced owner's successor takes its partition back while the other is about to claim it."""
    return Play(
        "returns",
        PROFILE,
        {
            "a1": Life("a", "b", Doing(), OWNS),
            "a2": Life("a", "b", Doing(claim=1)),
            "b1": Life("b", "a", Doing(fence=2, claim=1), JOINED),
        },
        until=2,
        lost=level,
    )


def keep(level: int) -> Play:
    """The owner stops and keeps its partition; its successor, which has no proof, and the other both want it."""
    return Play(
        "keep",
        PROFILE,
        {
            "a1": Life("a", "b", Doing(beat=level, keep=1), OWNS),
            "a2": Life("a", "b", Doing(claim=1)),
            "b1": Life("b", "a", Doing(fence=1 + level, claim=1), JOINED),
        },
        until=1 + level,
        lost=level,
    )


PLAYS: dict[str, Callable[[int], Play]] = {
    "take over": take_over,
    "slow beats": slow_beats,
    "race": race,
    "hand-off": hand_off,
    "resume": resume,
    "namesake": namesake,
    "returns": returns,
    "keep": keep,
}
