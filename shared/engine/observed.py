"""Tells a counter of requests what storage answered to those of a generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..core.errors import Rejected, StorageError
from .effects import LOST, Effect, Get, Load, Wait, Work, Write


def observed[T](work: Work[T], record: Callable[[bool], None]) -> Work[T]:
    """Run `work`, and call `record` after each of its requests to storage: True if storage refused it or did not answer.

    A request that is itself wrong, or has no rights, says nothing about storage's load.
    """
    try:
        effect: Effect | Wait = next(work)
        while True:
            asked = isinstance(effect, Get | Load | Write)
            try:
                answer: Any = yield effect
            except Exception as error:
                if asked and isinstance(error, StorageError) and not isinstance(error, Rejected):
                    record(True)
                effect = work.throw(error)
            else:
                if asked:
                    record(answer is LOST)
                effect = work.send(answer)
    except StopIteration as stop:
        result: T = stop.value
        return result
