"""Rows with the heads of receivers' answers, beside the event rows of their shard.

    partition   row                 content
    {shard}     a{number}.{slot}    the head of one attempt's answer (`delivery.channels.answer_heads`): at, head

`number` is the event's, as in its row key; `slot` is the attempt's number modulo `HISTORY`, so that an event has as many as attempts that
are kept. They are rows of their own, and sort before the event rows, because nobody who loads a shard needs them: 990 events with twenty
answers each would be 80 MB. A row is written in the transaction that settles its attempt. The event's property `answers` names the places
where it has such rows, because a moved or redriven event leaves them behind. Only the serving account of a mirrored pair has them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..core.clock import Millis
from ..delivery.channels.answer_heads import AnswerHead, of_json, to_json
from ..storage.ports import Op, Props, Row, Upsert
from .attempt_history import HISTORY
from .keys import Address, parse_address

FIRST_ANSWER, END_ANSWERS = "a", "b"
"""Rows of answers sort between these two."""
ANSWERS = "answers"
"""Property of an event row: the addresses of the event's rows with answers, the latest first, separated by spaces."""
MOST_PLACES = 4
"""Places whose answers are shown; of an event that was moved more often after failures, older answers are no longer found."""


class KeptAnswer(NamedTuple):
    """The head of the answer to the attempt with number `tries`, which started at `at`."""

    at: Millis
    tries: int
    head: str

    @property
    def size(self) -> int:
        """Bytes in a transaction, where quotes, backslashes and line ends are escaped once more; an estimate from above."""
        return 200 + len(self.head.encode()) + self.head.count('"') + self.head.count("\\")


def kept(head: AnswerHead | None, at: Millis, tries: int) -> KeptAnswer | None:
    """Return the head as it is stored."""
    return KeptAnswer(at, tries, to_json(head)) if head is not None else None


def places_of(props: Mapping[str, Any]) -> list[Address]:
    """Return the places of the event's answers, the latest first."""
    return [parse_address(text) for text in str(props.get(ANSWERS, "")).split()]


def add_answer(row: Row, change: Props, answer: KeptAnswer) -> Op:
    """Return the operation that stores an answer; add the place to the change of the event's row, if it is new."""
    here = Address(row.pk, row.rk)
    before = places_of(row.props)
    if here not in before:
        change[ANSWERS] = " ".join(each.text for each in [here, *before][:MOST_PLACES])
    return Upsert(f"{_prefix(row.rk)}{answer.tries % HISTORY:02d}", {"at": answer.at, "head": answer.head})


def last_answer(row: Row) -> str:
    """Return the key of the row with the answer to an event's last attempt, if that was kept; otherwise it is missing, or an older one."""
    return f"{_prefix(row.rk)}{int(row.props.get('tries', 0)) % HISTORY:02d}"


def range_of(place: Address) -> tuple[str, str]:
    """Return the first key of an event's answers, and the key behind the last one."""
    prefix = _prefix(place.row)
    return prefix, prefix[:-1] + "/"


def _prefix(row_key: str) -> str:
    return f"{FIRST_ANSWER}{row_key[1:]}."


def heads_by_time(rows: list[Row]) -> dict[Millis, AnswerHead]:
    """Return the heads in rows with answers, by the times of their attempts."""
    return {int(row.props["at"]): of_json(str(row.props["head"])) for row in rows}
