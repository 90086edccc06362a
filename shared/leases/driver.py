"""Carries the effects of lease generators out, blocking, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..errors import OutcomeUnknown, StorageError
from ..storage.blocking import BlockingTables
from ..storage.ports import Row
from .protocol.effects import LOST, Get, Load, Receiving, Sending, Steps, Write
from .stamps import ReceivedAt, SentAt


class Driver:
    """One per thread or shared by several; holds no state between calls. request: time-out of one request, seconds."""

    def __init__(self, tables: BlockingTables, steady: Callable[[], float], request: float) -> None:
        self._tables, self._steady, self.request = tables, steady, request

    def drive[T](self, steps: Steps[T]) -> T:
        """Run `steps` to the end and return its result. No request is repeated. Raises `StorageError` where a request failed that
        certainly changed nothing; then the generator is abandoned, which every protocol allows between any two effects."""
        try:
            effect = next(steps)
            while True:
                try:
                    answer = self._do(effect)
                except StorageError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    def _do(self, effect: Get | Load | Write | Sending | Receiving) -> Any:
        match effect:
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

    def _load(self, effect: Load) -> list[Row]:
        rows: list[Row] = []
        cursor: str | None = None
        while True:
            page = self._tables.query(effect.table, effect.pk, first=effect.first, end=effect.end, cursor=cursor, timeout=self.request)
            rows += page.rows
            cursor = page.next
            if cursor is None:
                return rows
