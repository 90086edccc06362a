"""Known bugs of mirroring, to be planted one at a time: the histories of a pair must find each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from shared.engine.effects import Steps
from shared.scheduler.mirror import pair
from shared.scheduler.protocol import mirroring
from tests.model.checking.mutants import patched


def copied_later(*_: Any) -> Steps[bool]:
    """A change that is acknowledged before the copy has it."""
    return True
    yield


def serves_at_once(self: pair.MirrorPair, seen: Any) -> float:
    """A side that takes over while the other's deliveries are still starting."""
    return 0.0


def always_serves(way: Any) -> Steps[bool]:
    """Owners and copies that do not ask who serves."""
    return True
    yield


def ends_at_once(shard: str, way: Any, entry: Any) -> Steps[bool]:
    """A shard that is finished without its copy."""
    return True
    yield


def never_there(self: pair.PairedMirror, event: Any) -> bool:
    """Events of the first's queue that are stored in the second although the first, which may have them, does not answer."""
    return False


type Place = tuple[object, str]
PAIR_PLANTED: dict[str, tuple[str, int, list[tuple[Place, Callable[..., Any]]]]] = {
    "changes are acknowledged before they are copied": ("loss", 8, [((pair, "mirror_event"), copied_later)]),
    "a side that takes over serves at once": ("alarm", 29, [((pair.MirrorPair, "wait"), serves_at_once)]),
    "nobody looks at the fence": ("alarm", 10, [((pair, "still_serves"), always_serves), ((mirroring, "still_serves"), always_serves)]),
    "queued events do not wait for the first": ("loss and back", 40, [((pair.PairedMirror, "_may_be_there"), never_there)]),
    "shards end without their copies": ("loss", 31, [((pair, "finish_copy"), ends_at_once)]),
}
"""Bug: the story in which it shows, the seed to look from (a later one does as well), and what to patch."""


@contextmanager
def pair_planted(name: str) -> Iterator[tuple[str, int]]:
    """The app with the bug `name`; gives the story in which to look for it, and the first seed."""
    story, first, places = PAIR_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield story, first
