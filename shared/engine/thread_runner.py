"""Carries out the effects of protocol generators on a thread, blocking, one after the other."""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable
from typing import Any

from ..core.errors import OutcomeUnknown
from ..storage.blocking import BlockingTables
from ..storage.ports import Row, RowQuery
from .effects import LOST, Effect, Get, Load, Receiving, Sending, Wait, Work, Write
from .validity import ReceivedAt, SentAt


class ThreadRunner:
    """One per loop; several threads may share one if none of their generators waits. request: timeout of one request, seconds."""

    def __init__(self, tables: BlockingTables, steady: Callable[[], float], request: float) -> None:
        self._tables, self._steady, self.request = tables, steady, request
        # Not a threading.Event: a signal handler may wake the runner while its thread does.
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()

    def wake(self) -> None:
        """End the wait that is under way, or else the next one. Any thread may call this."""
        if self._bell.empty():
            self._bell.put(None)

    def run[T](self, steps: Work[T]) -> T:
        """Run `steps` to the end and return its result. No request is repeated. An error of a request is thrown into `steps`, and raised
        here if `steps` lets it pass: `StorageError` when the request certainly changed nothing. Every protocol may be abandoned between
        any two effects."""
        try:
            effect = next(steps)
            while True:
                try:
                    answer = self.perform(effect)
                except Exception as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def perform(self, effect: Effect | Wait) -> Any:
        """Carry out one effect and return its answer."""
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
                raise TypeError(f"not an effect that this runner carries out: {effect!r}")

    def _load(self, effect: Load) -> list[Row]:
        rows: list[Row] = []
        cursor: str | None = None
        while True:
            page = self._tables.query(
                RowQuery(effect.table, effect.pk, first=effect.first, end=effect.end, cursor=cursor), timeout=self.request
            )
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows
