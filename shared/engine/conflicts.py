"""Repeats a read, a decision and a conditional write while other writers change the same rows.

An attempt reads, decides and writes on the ETags it has read. It returns its result, or a `WriteConflict` to ask for another attempt, which
begins with a new read. The number of attempts is bounded.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple, NoReturn

from ..core.errors import OutcomeUnknown, Unavailable
from ..storage.ports import Applied, Op
from .effects import LOST, Steps, Written, write


class WriteConflict(NamedTuple):
    """An attempt without a result. answer: the answer to its conditional write, `WriteRefused` or `Lost`; None if it made no write."""

    answer: Written | None = None


CONFLICT: Final = WriteConflict()


async def retry_on_conflict[T](attempt: Callable[[], Awaitable[T | WriteConflict]], tries: int, exhausted: Callable[[], Exception]) -> T:
    """Return the result of the first attempt without a conflict. Raises `exhausted()` after `tries` attempts."""
    result = await try_repeatedly(attempt, tries)
    if isinstance(result, WriteConflict):
        raise exhausted()
    return result


async def try_repeatedly[T](attempt: Callable[[], Awaitable[T | WriteConflict]], tries: int) -> T | WriteConflict:
    """Return the result of the first attempt without a conflict, or a `WriteConflict` after `tries` attempts."""
    for _ in range(tries):
        result = await attempt()
        if not isinstance(result, WriteConflict):
            return result
    return CONFLICT


def retry_steps[T](attempt: Callable[[], Steps[T]], tries: int) -> Steps[T | WriteConflict]:
    """Return the result of the first attempt without a conflict; after `tries` attempts a `WriteConflict` with the last answer to a write.
    For protocol generators."""
    answer: Written | None = None
    for _ in range(tries):
        result = yield from attempt()
        if not isinstance(result, WriteConflict):
            return result
        if result.answer is not None:
            answer = result.answer
    return WriteConflict(answer)


def give_up(conflict: WriteConflict, what: str) -> NoReturn:
    """Raise the error of a change that has used up its attempts: `OutcomeUnknown` if the last answer was lost, else `Unavailable`.

    what: what other processes keep changing.
    """
    if conflict.answer is LOST:
        raise OutcomeUnknown("answers of table storage keep getting lost")
    raise Unavailable(f"other processes keep changing {what}")


def write_for[T](result: T, table: str, pk: str, *ops: Op) -> Steps[T | WriteConflict]:
    """Return `result` once the transaction is applied, otherwise a conflict with the answer."""
    answer = yield from write(table, pk, *ops)
    return result if isinstance(answer, Applied) else WriteConflict(answer)
