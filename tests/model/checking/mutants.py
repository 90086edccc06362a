"""Mutants: production code with one hole, for as long as a context lasts. A checker that misses one of them proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

type Patch = tuple[Any, str, Any]
"""An object, the name of one of its attributes, and the value that the attribute has while the patch is applied."""


@contextmanager
def patched(patches: Iterable[Patch]) -> Iterator[None]:
    """Apply all patches for as long as the context lasts."""
    with ExitStack() as stack:
        for where, name, value in patches:
            stack.enter_context(patch.object(where, name, value))
        yield


@dataclass(frozen=True)
class Mutant:
    """A sentence of a protocol that is left out, the play in which this shows, and the patches that leave it out."""

    name: str
    play: str
    patches: Callable[[], list[Patch]]
    change: Callable[[Any], Any] = lambda play: play
    """Changes the play too."""
    strands: bool = False
    """The mutant breaks no safety property. It takes the way to an end away."""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Run production code with the hole, for as long as the context lasts."""
        with patched(self.patches()):
            yield


def _unchanged(effect: Any) -> Any:
    return effect


def _as_answered(effect: Any, answer: Any) -> Any:
    return answer


def relay[T](
    steps: Generator[Any, Any, T],
    change: Callable[[Any], Any] = _unchanged,
    revise: Callable[[Any, Any], Any] = _as_answered,
    *,
    answer: Any = None,
) -> Generator[Any, Any, T]:
    """Run `steps` like `yield from`, with each effect replaced by `change(effect)` and each answer by `revise(effect, answer)`.

    answer: what `steps` is resumed with first, when it has already been started.
    """
    try:
        while True:
            effect = steps.send(answer)
            answer = revise(effect, (yield change(effect)))
    except StopIteration as stop:
        result: T = stop.value
        return result
