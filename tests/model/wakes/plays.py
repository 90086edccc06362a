"""The plays of planned wakes. The larger plays of `make model` have more faults, and more instants at which somebody stands still."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .world import WakePlay


def stalls(level: int) -> WakePlay:
    """A filer and two looks, and each of them may stand still."""
    return WakePlay("stalls", filers=((230,),), until=235, stalls=1 + level)


def soon(level: int) -> WakePlay:
    """The message of a shard is sent by its filer."""
    return WakePlay("soon", filers=((20,),), wakes=(0, 300), stalls=1 + level)


def cold(level: int) -> WakePlay:
    """Nobody has ever asked for a wake."""
    return WakePlay("cold", filers=((230,),), wakes=(), until=235, stalls=1 + level)


def first(level: int) -> WakePlay:
    """Two filers are the first ones at a time."""
    return WakePlay("first", filers=((230,), (150,)), wakes=(), until=100, stalls=level)


def two(level: int) -> WakePlay:
    """Two filers, whose shards share a message or not, and two looks."""
    return WakePlay("two", filers=((230,), (231,)), stalls=level, until=110)


def cached(level: int) -> WakePlay:
    """A filer judges its second shard by the plan that it has read for the first one, and a wake has come in between."""
    return WakePlay("cached", filers=((230, 231),), wakes=(5, 300), until=110, stalls=1 + level)


def far(level: int) -> WakePlay:
    """A shard is too far ahead for the first look, and the plan names a wake that comes long after it. A wake is stuck."""
    return WakePlay("far", filers=((700,),), wakes=(0, 1_500), until=300, stuck=1, stalls=level)


def late(level: int) -> WakePlay:
    """A filer stands still until the time of its shard has come."""
    return WakePlay("late", filers=((60,),), wakes=(0, 100), looks=1 + level, until=100)


def ahead(level: int) -> WakePlay:
    """The wake for a shard must come before the next look in any case."""
    return WakePlay("ahead", filers=((400,),), until=280, stalls=level)


def timer(level: int) -> WakePlay:
    """The timer looks, too."""
    return WakePlay("timer", filers=((230,),), looks=2, timers=1, until=110, stalls=level)


def clocks(level: int) -> WakePlay:
    """The clock of a filer is slow, and those of the looks are fast."""
    return WakePlay("clocks", filers=((230,),), wakes=(5, 20), until=110, skew=900, stalls=level)


def killed(level: int) -> WakePlay:
    """A process is killed."""
    return WakePlay("killed", filers=((230,),), until=130, kills=1, stalls=level)


def killed_far(level: int) -> WakePlay:
    """A process is killed, perhaps the first one that has ever looked, and a filer trusts what the plan says."""
    return WakePlay("killed_far", filers=((480,),), wakes=(), timers=1, until=130, kills=1, stalls=1 + level)


def killed_soon(level: int) -> WakePlay:
    """A process is killed, and the message of a shard was its own to send."""
    return WakePlay("killed_soon", filers=((20,),), wakes=(0, 20), until=130, kills=1, stalls=level)


def stuck(level: int) -> WakePlay:
    """A message is taken and hidden for ten minutes."""
    return WakePlay("stuck", filers=((230,),), until=235, stuck=1, stalls=level)


def doubled(level: int) -> WakePlay:
    """A message comes twice."""
    return WakePlay("doubled", filers=((230,),), until=130, doubled=1, stalls=level)


def lost(level: int) -> WakePlay:
    """The answer of a write is lost: it was applied, or not, or is applied later."""
    return WakePlay("lost", filers=((230,),), until=110, lost=1, stalls=level)


def refused(level: int) -> WakePlay:
    """The queue refuses a message."""
    return WakePlay("refused", filers=((230,),), until=235, refused=1, stalls=level)


def alone(level: int) -> WakePlay:
    """The timer is silent, and a wake is stuck or a process killed."""
    return WakePlay("alone", filers=((400,),), alone=True, until=130, stuck=1, kills=level)


def early(level: int) -> WakePlay:
    """Messages come earlier, because no pause is short enough to keep an instance. Two filers and two looks."""
    return WakePlay("early", filers=((260,), (261,)), early=True, until=130, stalls=level)


def early_stuck(level: int) -> WakePlay:
    """Messages come earlier, and one is stuck."""
    return WakePlay("early_stuck", filers=((260,),), early=True, until=235, stuck=1, stalls=1 + level)


PLAYS: Mapping[str, Callable[[int], WakePlay]] = {
    play.__name__: play
    for play in (
        *(stalls, soon, cold, first, two, cached, far, late, ahead, timer, clocks),
        *(killed, killed_far, killed_soon, stuck, doubled, lost, refused, alone),
        *(early, early_stuck),
    )
}
