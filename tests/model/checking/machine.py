"""Generators as states: a protocol generator is identified by where it stands and what its locals hold.

Python cannot copy a generator, so one that is needed again is replayed from its history of answers. Two histories that lead to the
same place with the same locals are one state: that is what keeps the state count small.
"""

from __future__ import annotations

import dataclasses
import dis
from collections.abc import Callable, Generator, Hashable
from functools import cache
from types import CodeType
from typing import Any

from .checker import Violation


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
    """Where a suspended generator stands, all the way down its `yield from` chain, with the locals that it may still read."""
    frames = []
    inner: Any = generator
    while inner is not None and getattr(inner, "gi_frame", None) is not None:
        frame = inner.gi_frame
        live = live_at(inner.gi_code, frame.f_lasti)
        local = frozenset((name, freeze(value)) for name, value in frame.f_locals.items() if name in live)
        frames.append((inner.__qualname__, frame.f_lasti, local))
        inner = inner.gi_yieldfrom
    return tuple(frames)


@cache
def live_at(code: CodeType, offset: int) -> frozenset[str]:
    """The locals that code may read after `offset` before it writes them (plain liveness over the bytecode).

    States that differ only in dead locals have the same future. Cells and free variables count as live throughout, and so do loop
    variables: the iterator itself is on the value stack, out of sight, and they tell how far it has come.
    """
    return _liveness(code)[offset] | frozenset(code.co_cellvars) | frozenset(code.co_freevars) | _loop_variables(code)


@cache
def _loop_variables(code: CodeType) -> frozenset[str]:
    found: set[str] = set()
    steps = list(dis.get_instructions(code))
    for number, step in enumerate(steps):
        if step.opname == "FOR_ITER":
            for follow in steps[number + 1 : number + 6]:
                if follow.opname not in ("STORE_FAST", "STORE_FAST_STORE_FAST", "UNPACK_SEQUENCE", "STORE_FAST_LOAD_FAST"):
                    break
                found |= _touches(follow)[1]
    return frozenset(found)


@cache
def _liveness(code: CodeType) -> dict[int, frozenset[str]]:
    """For each instruction, the locals that are live after it."""
    steps = list(dis.get_instructions(code))
    at = {step.offset: number for number, step in enumerate(steps)}
    after: list[set[int]] = []
    for number, step in enumerate(steps):
        follow = set()
        if step.opname not in ENDS and number + 1 < len(steps):
            follow.add(number + 1)
        if step.jump_target is not None:
            follow.add(at[step.jump_target])
        after.append(follow)
    reads, writes = zip(*(_touches(step) for step in steps), strict=True)
    before: list[frozenset[str]] = [frozenset()] * len(steps)
    out: list[frozenset[str]] = [frozenset()] * len(steps)
    changed = True
    while changed:
        changed = False
        for number in reversed(range(len(steps))):
            out[number] = frozenset().union(*(before[follow] for follow in after[number]))
            new = reads[number] | (out[number] - writes[number])
            if new != before[number]:
                before[number], changed = new, True
    return {step.offset: out[number] for number, step in enumerate(steps)}


ENDS = frozenset(
    {"RETURN_VALUE", "RETURN_CONST", "RERAISE", "RAISE_VARARGS", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"}
)
"""Instructions after which the next one is not reached."""


def _touches(step: dis.Instruction) -> tuple[frozenset[str], frozenset[str]]:
    """The locals an instruction reads before it writes, and those it writes."""
    name, value = step.opname, step.argval
    match name:
        case "LOAD_FAST" | "LOAD_FAST_CHECK" | "LOAD_FAST_AND_CLEAR" | "DELETE_FAST":
            return frozenset({value}), frozenset()
        case "LOAD_FAST_LOAD_FAST":
            return frozenset(value), frozenset()
        case "STORE_FAST":
            return frozenset(), frozenset({value})
        case "STORE_FAST_STORE_FAST":
            return frozenset(), frozenset(value)
        case "STORE_FAST_LOAD_FAST":
            stored, loaded = value
            return frozenset({loaded} - {stored}), frozenset({stored})
        case _:
            if "FAST" in name:
                raise NotImplementedError(name)
            return frozenset(), frozenset()


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
    """What the model looks at, see `Machines`."""


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
