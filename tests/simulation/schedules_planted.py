"""Known bugs of recurring schedules, to be planted one at a time: histories that cannot find these prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from shared.core.clock import Millis
from shared.scheduler.recurring import rules
from shared.scheduler.recurring.chain import Chain
from shared.scheduler.recurring.definition import Definition
from tests.model.checking.mutants import patched

_changed, _plan = rules.changed, rules.plan


def nothing_owed(definition: Definition, now: Millis, by: str) -> Definition:
    """A resume that forgets the occurrences before the pause that had no event yet."""
    return _changed(definition, now, by, paused=False, paused_at=None, done=max(now, definition.last or 0))


def nothing_withdrawn(definition: Definition, now: Millis, by: str, *, replay: bool = False, **changes: Any) -> Definition:
    """A change that leaves the events of the former revision as they are."""
    return replace(_changed(definition, now, by, replay=replay, **changes), undo=None)


def nothing_missed(definition: Definition, now: Millis) -> rules.OccurrencePlan:
    """A sweep that takes `all` for `none`."""
    catch_up = definition.spec.catch_up.model_copy(update={"policy": "none"})
    return _plan(replace(definition, spec=definition.spec.model_copy(update={"catch_up": catch_up})), now)


async def fired_in_vain(self: Chain, definition: Definition, instants: Sequence[Millis], now: Millis) -> None:
    """A chain that goes on without storing all of its events."""
    await _fire(self, definition, instants[:-1], now)


_fire = Chain._fire
type Place = tuple[object, str]
SCHEDULES_PLANTED: dict[str, tuple[int, list[tuple[Place, Callable[..., Any]]]]] = {
    "a resume owes nothing": (0, [((rules, "resumed"), nothing_owed)]),
    "a change withdraws nothing": (0, [((rules, "changed"), nothing_withdrawn)]),
    "missed occurrences are dropped": (0, [((rules, "plan"), nothing_missed)]),
    "a chain goes on before its events are stored": (0, [((Chain, "_fire"), fired_in_vain)]),
}
"""By bug: the first seed to play, shortly before one that shows the bug, and what to patch."""


@contextmanager
def schedules_planted(name: str) -> Iterator[int]:
    """Plant the bug `name` in the app; yield the first seed to play."""
    first, places = SCHEDULES_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield first
