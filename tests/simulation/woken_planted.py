"""Known bugs of planned wakes, to be planted one at a time: histories that cannot find these prove nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from shared.core.clock import Millis
from shared.engine.effects import Steps
from shared.scheduler.sweeps import looks
from shared.scheduler.wakes import protocol
from shared.scheduler.wakes.rules import Plan
from tests.model.checking.mutants import patched
from tests.simulation.history import Report
from tests.simulation.world.woken import simulate_purged, simulate_woken


def nothing_sent(times: Sequence[Millis]) -> Steps[tuple[Millis, ...]]:
    """Wakes that are not sent, and not named."""
    return ()
    yield


def nothing_needed(plan: Plan, messages: Sequence[Millis], unsent: Iterable[Millis], *rest: Any, **given: Any) -> list[Millis]:
    """A look that comes at the next time in any case, whatever it must find."""
    return _planned_wakes(plan, (), (), *rest, **given)


def always_trusted(plan: Plan, began: Millis, now: Millis) -> Plan:
    """A plan that counts although nobody has looked for minutes."""
    return plan


def nothing_asked(*_: Any, **given: Any) -> Steps[Plan]:
    """A filer that leaves its shard to the looks."""
    return (yield from protocol.read_plan())


def nothing_looked(self: looks.Looks, at: Millis) -> Any:
    """A wake that keeps its instance alive, and does not look."""
    return self._make_occurrences()


_planned_wakes = protocol.planned_wakes
type Place = tuple[object, str]
WOKEN_PLANTED: dict[str, tuple[int, list[tuple[Place, Callable[..., Any]]]]] = {
    "no wake is sent": (0, [((protocol, "send_wakes"), nothing_sent), ((looks, "send_wakes"), nothing_sent)]),
    "a wake does not look": (0, [((looks.Looks, "wake"), nothing_looked)]),
    "a look comes at the next time in any case": (45, [((protocol, "planned_wakes"), nothing_needed)]),
    "a plan is trusted after a purge": (0, [((Plan, "trusted"), always_trusted)]),
}
"""By bug: the first seed to play, shortly before one that shows the bug, and what to patch."""
PLAYS: dict[str, Callable[[int], Report]] = {
    "a look comes at the next time in any case": lambda seed: simulate_woken(seed, "none"),
    "a plan is trusted after a purge": simulate_purged,
}
"""By bug: the histories in which it shows, if they are of a kind of their own."""


@contextmanager
def woken_planted(name: str) -> Iterator[int]:
    """Plant the bug `name` in the app; yield the first seed to play."""
    first, places = WOKEN_PLANTED[name]
    with patched((where, attribute, bug) for (where, attribute), bug in places):
        yield first
