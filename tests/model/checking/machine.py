"""Generators as states: a protocol generator is identified by where it stands and what its locals hold.

Python cannot copy a generator, so one that is needed again is replayed from its history of answers. Two histories that lead to the
same place with the same locals are one state: that is what keeps the state count small.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Generator, Hashable
from functools import cache
from typing import Any, Final

from pydantic import BaseModel

from .checker import Violation
from .liveness import live_at

PLAIN: Final = (str, int, float, bool, bytes, type(None))


def freeze(value: Any) -> Hashable:
    """A hashable image of a value; equal images mean equal futures."""
    kind = type(value)
    return value if kind in PLAIN else _freezer(kind)(value)


@cache
def _freezer(kind: type) -> Callable[[Any], Hashable]:
    """Return the function that makes images of values of this type: it is looked up once, because images are made millions of times."""
    name = kind.__name__
    if issubclass(kind, PLAIN):
        return lambda value: value
    if issubclass(kind, dict):
        return lambda value: ("dict", frozenset([(key, freeze(item)) for key, item in value.items()]))
    if issubclass(kind, tuple | list):
        return lambda value: (name, *[item if type(item) in PLAIN else freeze(item) for item in value])
    if issubclass(kind, set | frozenset):
        return lambda value: ("set", frozenset([freeze(item) for item in value]))
    if dataclasses.is_dataclass(kind):
        fields = tuple(field.name for field in dataclasses.fields(kind))
        return lambda value: (name, *[freeze(getattr(value, field)) for field in fields])
    if issubclass(kind, BaseModel):
        return lambda value: (name, *[freeze(item) for item in value.__dict__.values()])
    if issubclass(kind, Generator):
        return image
    if issubclass(kind, type) or any("__call__" in base.__dict__ for base in kind.__mro__):
        return lambda value: getattr(value, "__qualname__", repr(value))
    if name == "Lost":
        return repr
    raise TypeError(f"cannot freeze {kind}")


def image(generator: Generator[Any, Any, Any]) -> Hashable:
    """Return the place of a suspended generator, all the way down its `yield from` chain, with the locals that it may still read."""
    frames = []
    inner: Any = generator
    while inner is not None and getattr(inner, "gi_frame", None) is not None:
        frame = inner.gi_frame
        live = live_at(inner.gi_code, frame.f_lasti)
        local = frozenset([(name, freeze(value)) for name, value in frame.f_locals.items() if live is None or name in live])
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
