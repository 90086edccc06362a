"""Carries the effects of lease generators out, blocking, one after the other."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from typing import Any

from ..core.errors import OutcomeUnknown
from ..storage.blocking import BlockingTables
from ..storage.ports import Row
from .effects import LOST, Effect, Get, Load, Receiving, Sending, Wait, Work, Write
from .moments import ReceivedAt, SentAt


class Driver:
    """One per loop; where nothing waits, several threads may share one. request: time-out of one request, seconds."""

    def __init__(self, tables: BlockingTables, steady: Callable[[], float], request: float) -> None:
        self._tables, self._steady, self.request = tables, steady, request
        # Not an event: a signal's handler may ring while its thread does.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """End the wait that is under way, or else the next one. Any thread may."""
        if self._bell.empty():
            self._bell.put(None)

    def drive[T](self, steps: Work[T]) -> T:
        """Run `steps` to the end and return its result. No request is repeated. What a request raises is raised in `steps`, and here
        where that lets it pass: `StorageError` when it certainly changed nothing. Every protocol may be abandoned between any two
        effects."""
        try:
            effect = next(steps)
            while True:
                try:
                    answer = self._do(effect)
                except Exception as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _do(self, effect: Effect | Wait) -> Any:
        match effect:
            case Wait(until):
                with contextlib.suppress(queue.Empty):
                    self._bell.get(timeout=max(0.0, until - self._steady()))
                return None
            case Sending():
                return SentAt(self._steady())
            case Receiving():
                return ReceivedAt(self._steady())
            case Write():
                try:
                    return self._tables.write(effect.table, effect.pk, effect.ops, timeout=self.request)
                except OutcomeUnknown:
                    return LOST
            case Get():
                return self._tables.get(effect.table, effect.pk, effect.rk, timeout=self.request)
            case Load():
                return self._load(effect)
            case _:
                raise TypeError(f"not an effect of leases: {effect!r}")

    def _load(self, effect: Load) -> list[Row]:
        rows: list[Row] = []
        cursor: str | None = None
        while True:
            page = self._tables.query(effect.table, effect.pk, first=effect.first, end=effect.end, cursor=cursor, timeout=self.request)
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows
