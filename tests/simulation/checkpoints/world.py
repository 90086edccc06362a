"""Virtual time, one store, and requests that instances of the app carry out effect by effect, each in its own time."""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.engine.effects import LOST, Get, Load, Write
from shared.storage.blocking import run_through
from shared.storage.memory import MemoryTables
from shared.storage.ports import RowQuery
from tests.simulation.checks.truth import Time

KEPT = 400
"""Lines of a trace."""


@dataclass(slots=True)
class Weather:
    """Faults of each direction of a request and of each call of the store. lose: chance that a message is lost; slow: that it takes up to
    `slow_up_to` seconds; unknown: that a write's answer is lost."""

    lose: float = 0.0
    slow: float = 0.0
    slow_up_to: float = 20.0
    unknown: float = 0.0


class World:
    """The machinery of a history. dice: all chance there is."""

    def __init__(self, seed: object) -> None:
        self.dice = random.Random(repr(seed))
        self.time = Time()
        self.store = MemoryTables(self.time)
        self.weather = Weather()
        self.counts: Counter[str] = Counter()
        self.trace: deque[str] = deque(maxlen=KEPT)
        self._order = itertools.count()
        self._agenda: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, do: Callable[[], None]) -> None:
        """Do something at a true second."""
        heapq.heappush(self._agenda, (max(when, self.time.seconds), next(self._order), do))

    def after(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something after `seconds` of true time."""
        self.at(self.time.seconds + seconds, do)

    def note(self, who: str, what: str) -> None:
        """A line of the trace."""
        self.trace.append(f"{self.time.seconds:12.3f} {who:6} {what}")

    def run(self, until: float) -> None:
        """Run until a true second."""
        while self._agenda and self._agenda[0][0] <= until:
            self.time.seconds, _, do = heapq.heappop(self._agenda)
            do()
        self.time.seconds = until

    def delay(self) -> float:
        """Return the seconds that one direction takes."""
        if self.dice.random() < self.weather.slow:
            return self.dice.random() * self.weather.slow_up_to
        return 0.001 + self.dice.random() * 0.02

    def ask(self, make: Callable[[], Generator[Any, Any, Any]], heard: Callable[[Any], None] = lambda answer: None) -> None:
        """Send a request that an instance of the app answers; `heard` is called with the answer, unless that or the request is lost."""
        if self.dice.random() < self.weather.lose:
            self.counts["lost"] += 1
            return
        self.after(self.delay(), lambda: self._serve(make(), heard, None, started=False))

    def _serve(self, steps: Generator[Any, Any, Any], heard: Callable[[Any], None], answer: Any, *, started: bool = True) -> None:
        try:
            effect = steps.send(answer) if started else next(steps)
        except StopIteration as stop:
            if self.dice.random() < self.weather.lose:
                self.counts["lost"] += 1
            else:
                result = stop.value
                self.after(self.delay(), lambda: heard(result))
            return
        except (OutcomeUnknown, Unavailable):
            self.counts["given up"] += 1
            return
        self.after(self.delay() / 4, lambda: self._apply(steps, heard, effect))

    def _apply(self, steps: Generator[Any, Any, Any], heard: Callable[[Any], None], effect: Any) -> None:
        answer = self._carried(effect)
        self.after(self.delay() / 4, lambda: self._serve(steps, heard, answer))

    def _carried(self, effect: Any) -> Any:
        match effect:
            case Get():
                return run_through(self.store.get(effect.table, effect.pk, effect.rk))
            case Load():
                return run_through(self.store.query(RowQuery(effect.table, effect.pk, first=effect.first, end=effect.end))).rows
            case Write():
                if self.dice.random() >= self.weather.unknown:
                    return run_through(self.store.write(effect.table, effect.pk, effect.ops))
                # Applied now, later or never; its instance does not know.
                self.counts["unknown"] += 1
                when = self.dice.choice([0.0, self.delay(), None])
                if when is not None:
                    self.after(when, lambda: run_through(self.store.write(effect.table, effect.pk, effect.ops)) and None)
                return LOST
            case _:
                raise TypeError(effect)
