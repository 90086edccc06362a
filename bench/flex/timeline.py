"""Virtual time: tasks are generators that yield the milliseconds for which they wait."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator
from itertools import count
from typing import Any

type Task[T] = Generator[int, None, T]
"""Yields whole milliseconds, 0 or more; returns its result."""


class Timeline:
    """The clock of a run, in milliseconds, and what happens next."""

    def __init__(self) -> None:
        self.now = 0
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = count()

    def at(self, time: int, do: Callable[..., None], *given: Any) -> None:
        """Call `do` at a time, or now if that is past."""
        heapq.heappush(self._heap, (max(time, self.now), next(self._count), do, given))

    def start(self, task: Task[Any]) -> None:
        """Run a task from now on; nobody waits for its result."""
        self._go_on(task)

    def _go_on(self, task: Task[Any]) -> None:
        for wait in task:
            if wait > 0:
                self.at(self.now + wait, self._go_on, task)
                return

    def run(self, until: int) -> None:
        """Do all that happens up to a time."""
        while self._heap and self._heap[0][0] <= until:
            self.now, _, do, given = heapq.heappop(self._heap)
            do(*given)
        self.now = until
