"""Token rows in a storage partition of the user: the owner with a higher epoch makes the store refuse owners with a lower one.

    fence            the epoch in force; owners contend for it on its ETag
    fence-{epoch}    exists while that epoch is in force; each batch merges it, whatever its ETag is

A new owner swaps both rows in one transaction. A former owner's batch then names a row that is gone, and is refused as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from ...core.errors import Unavailable
from ...engine.conflicts import WriteConflict, retry_steps
from ...engine.effects import MAX_LOST, Steps, get, write
from ...storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Replace, WriteRefused

HEAD: Final = "fence"
MAX_OPS: Final = 99
"""Operations in one batch besides the token's."""


def token_key(epoch: int) -> str:
    """Return the row key of an epoch's token."""
    return f"{HEAD}-{epoch}"


def take(table: str, pk: str, epoch: int) -> Steps[Literal["taken", "stale"]]:
    """Put `epoch` in force. `stale`: a higher one is in force. Can be repeated and interrupted.

    An earlier attempt with a lost answer cannot be applied later: it named the ETag of the head row that this one replaces.
    """

    def attempt() -> Steps[Literal["taken", "stale"] | WriteConflict]:
        row = yield from get(table, pk, HEAD)
        before = int(row.props["epoch"]) if row is not None else None
        if before is not None and before > epoch:
            return "stale"
        ops: tuple[Op, ...]
        if row is None:
            ops = (Insert(HEAD, {"epoch": epoch}), Insert(token_key(epoch), {"epoch": epoch}))
        elif before == epoch:
            return "taken"
        else:
            assert before is not None
            ops = (
                Replace(HEAD, {"epoch": epoch}, row.etag),
                Delete(token_key(before), ANY),
                Insert(token_key(epoch), {"epoch": epoch}),
            )
        answer = yield from write(table, pk, *ops)
        if isinstance(answer, Applied):
            return "taken"
        if isinstance(answer, WriteRefused) and answer.at > 0:
            raise ValueError(f"the token rows of {table} do not belong together: another program wrote them")
        return WriteConflict(answer)

    ended = yield from retry_steps(attempt, MAX_LOST)
    if isinstance(ended, WriteConflict):
        raise Unavailable("the answers of table storage were lost repeatedly; try again")
    return ended


def batch(table: str, pk: str, epoch: int, ops: Sequence[Op]) -> Steps[Applied | WriteRefused | Literal["stale", "unknown"]]:
    """Apply `ops` if `epoch` is in force. Positions and ETags of the answer are those of `ops`."""
    answer = yield from write(table, pk, Merge(token_key(epoch), {"epoch": epoch}, ANY), *ops)
    if isinstance(answer, Applied):
        return Applied(answer.etags[1:])
    if isinstance(answer, WriteRefused):
        return "stale" if answer.at == 0 else WriteRefused(answer.at - 1, answer.reason)
    return "unknown"
