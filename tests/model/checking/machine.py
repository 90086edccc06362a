"""Generators as states: a protocol generator is identified by where it stands and what its locals hold.

Python cannot copy a generator, so one that is needed again is replayed from its history of answers. Two histories that lead to the
same place with the same locals are one state: that is what keeps the state count small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Hashable
from typing import Any

from .checker import Violation
from .liveness import live_at


def freeze(value: Any) -> Hashable:
    """A hashable image of a value; equal images mean equal futures."""
    if isinstance(value, str | int | float | bool | bytes | type(None)):
        return value
    if isinstance(value, dict):
        return ("dict", frozenset((key, freeze(item)) for key, item in value.items()))
    if isinstance(value, tuple):
        return (type(value).__name__, *(freeze(item) for item in value))
    if isinstance(value, list):
        return ("list", *(freeze(item) for item in value))
    if isinstance(value, set | frozenset):
        return ("set", frozenset(freeze(item) for item in value))
    if dataclasses.is_dataclass(value):
        return (type(value).__name__, *(freeze(getattr(value, field.name)) for field in dataclasses.fields(value)))
    if isinstance(value, Generator):
        return image(value)
    if isinstance(value, type) or callable(value):
        return getattr(value, "__qualname__", repr(value))
    return repr(value) if type(value).__name__ == "Lost" else _refuse(value)


def _refuse(value: Any) -> Hashable:
    raise TypeError(f"cannot freeze {type(value)}")


def image(generator: Generator[Any, Any, Any]) -> Hashable:
    """Return the place of a suspended generator, all the way down its `yield from` chain, with the locals that it may still read."""
    frames = []
    inner: Any = generator
    while inner is not None and getattr(inner, "gi_frame", None) is not None:
        frame = inner.gi_frame
        live = live_at(inner.gi_code, frame.f_lasti)
        local = frozenset((name, freeze(value)) for name, value in frame.f_locals.items() if live is None or name in live)
        frames.append((inner.__qualname__, frame.f_lasti, local))
        inner = inner.gi_yieldfrom
    return tuple(frames)


@dataclasses.dataclass(slots=True)
class Snapshot:
    """One reachable state of a machine: its next effect, or its result when it has ended."""

    spawn: Callable[[], Generator[Any, Any, Any]]
    history: tuple[Any, ...]
    frozen: Hashable
    effect: Any = None
    asked: Hashable = None
    """The effect's image: equal for equal effects."""
    ended: bool = False
    result: Any = None
    view: Any = None
    """The part that the model looks at, see `Machines`."""


class Machines:
    """All states that machines were seen in, numbered; steps between them are cached.

    view: what a model wants to see of a suspended generator, beyond its effect; it must follow from the generator's live locals.
    """

    def __init__(self, view: Callable[[Generator[Any, Any, Any]], Any] | None = None) -> None:
        self._view = view
        self.snapshots: list[Snapshot] = []
        self._numbers: dict[Hashable, int] = {}
        self._steps: dict[tuple[int, Hashable], int] = {}
        self._spawned: dict[Hashable, int] = {}

    def spawn(self, kind: Hashable, make: Callable[[], Generator[Any, Any, Any]]) -> int:
        """The number of a fresh machine of this kind."""
        if kind not in self._spawned:
            self._spawned[kind] = self._run(make, ())
        return self._spawned[kind]

    def resume(self, number: int, answer: Any, known: Hashable = None) -> int:
        """The state after the machine was handed `answer`. known: what tells this answer from all others, if that is at hand."""
        key = (number, freeze(answer) if known is None else known)
        if key not in self._steps:
            snapshot = self.snapshots[number]
            self._steps[key] = self._run(snapshot.spawn, (*snapshot.history, answer))
        return self._steps[key]

    def __getitem__(self, number: int) -> Snapshot:
        return self.snapshots[number]

    def _run(self, make: Callable[[], Generator[Any, Any, Any]], history: tuple[Any, ...]) -> int:
        generator = make()
        snapshot = Snapshot(make, history, None)
        try:
            effect = next(generator)
            for answer in history:
                effect = generator.send(list(answer) if isinstance(answer, list) else answer)
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            raise Violation(f"the protocol's code fails: {type(error).__name__}: {error}") from error
        except StopIteration as stop:
            snapshot.ended, snapshot.result = True, stop.value
            snapshot.frozen = ("ended", freeze(stop.value) if stop.value is not None else None)
        else:
            snapshot.effect, snapshot.asked = effect, freeze(effect)
            snapshot.frozen = (image(generator), snapshot.asked)
            snapshot.view = self._view(generator) if self._view is not None else None
            generator.close()
        number = self._numbers.get(snapshot.frozen)
        if number is None:
            number = len(self.snapshots)
            self._numbers[snapshot.frozen] = number
            self.snapshots.append(snapshot)
        return number
