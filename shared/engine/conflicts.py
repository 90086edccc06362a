"""Repeats a read, a decision and a conditional write for as long as other writers come in between.

An attempt reads, decides and writes on the ETags it has read. It returns its result, or a `Conflict` when another attempt is to be made,
which begins with a new read. The number of attempts is bounded: a caller that keeps losing tells its own caller so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from .effects import Steps, Written


class Conflict(NamedTuple):
    """The attempt came to nothing. answer: to its conditional write, `Refused` or `Lost`; None when it made none."""

    answer: Written | None = None


CONFLICT: Final = Conflict()


async def retry_on_conflict[T](attempt: Callable[[], Awaitable[T | Conflict]], tries: int, exhausted: Callable[[], Exception]) -> T:
    """Return the result of the first attempt without a conflict. Raises `exhausted()` after `tries` attempts."""
    result = await try_repeatedly(attempt, tries)
    if isinstance(result, Conflict):
        raise exhausted()
    return result


async def try_repeatedly[T](attempt: Callable[[], Awaitable[T | Conflict]], tries: int) -> T | Conflict:
    """Return the result of the first attempt without a conflict, or a `Conflict` after `tries` attempts."""
    for _ in range(tries):
        result = await attempt()
        if not isinstance(result, Conflict):
            return result
    return CONFLICT


def retry_steps[T](attempt: Callable[[], Steps[T]], tries: int) -> Steps[T | Conflict]:
    """Return the result of the first attempt without a conflict; after `tries` attempts a `Conflict` with the last answer to a write,
    which says why they ended. For protocol generators."""
    answer: Written | None = None
    for _ in range(tries):
        result = yield from attempt()
        if not isinstance(result, Conflict):
            return result
        if result.answer is not None:
            answer = result.answer
    return Conflict(answer)
