"""Carries the effects of lease generators out in the app, on its event loop. `driver` does so on a node's threads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import OutcomeUnknown, StorageError
from ..storage.ports import Tables
from .effects import LOST, Effect, Get, Load, Receiving, Sending, Steps, Write, load
from .moments import ReceivedAt, SentAt


class Carrier:
    """One per process; holds no state between calls. steady: seconds of this process's own clock."""

    def __init__(self, tables: Tables, steady: Callable[[], float]) -> None:
        self._tables, self._steady = tables, steady

    async def drive[T](self, steps: Steps[T]) -> T:
        """Run `steps` to the end and return its result. Raises `StorageError` where a request failed that certainly changed nothing;
        a lost answer is the generator's to deal with."""
        try:
            effect = next(steps)
            while True:
                try:
                    answer = await self._do(effect)
                except StorageError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(answer)
        except StopIteration as stop:
            result: T = stop.value
            return result

    async def _do(self, effect: Effect) -> Any:
        match effect:
            case Sending():
                return SentAt(self._steady())
            case Receiving():
                return ReceivedAt(self._steady())
            case Write():
                try:
                    return await self._tables.write(effect.table, effect.pk, effect.ops)
                except OutcomeUnknown:
                    return LOST
            case Get():
                return await self._tables.get(effect.table, effect.pk, effect.rk)
            case Load():
                return await load(self._tables, effect.table, effect.pk, effect.first, effect.end)
            case _:
                raise TypeError(f"not an effect of leases: {effect!r}")
