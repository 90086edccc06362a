"""The record of an event's delivery attempts: a history in its row, and the heads of receivers' answers in rows beside it.

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

import orjson

from ...core.clock import Millis, to_text
from ...delivery.channels import answer_heads
from ...delivery.channels.answer_heads import AnswerHead, of_json, to_json
from ...storage.ports import Op, Props, Row, Upsert
from ..keys import Address, parse_address

HISTORY = 20
"""Number of attempts that are kept."""
ERROR_LENGTH = 500
"""Characters of an attempt's error that are kept."""
OWNER_LOST = "its owner disappeared before it reported how the attempt ended; the receiver may have accepted it"

MAY_HAVE_ARRIVED = "an attempt whose result is unknown may have delivered it"


def history_of(props: Mapping[str, Any]) -> list[list[Any]]:
    """Return the attempts so far, each [at, outcome, status, error, took_ms]."""
    found: list[list[Any]] = orjson.loads(str(props["history"])) if "history" in props else []
    return found


def with_attempt(props: Mapping[str, Any], at: Millis, outcome: str, status: int | None, error: str | None, took: int) -> str:
    """Return the history with one more attempt: the last 20, errors cut at 500 characters."""
    entry = [at, outcome, status, error[:ERROR_LENGTH] if error else None, took]
    return orjson.dumps([*history_of(props), entry][-HISTORY:]).decode()


def with_end(props: Mapping[str, Any], at: Millis, outcome: str, error: str | None, took: int) -> str:
    """Return the history with the end of the attempt that began long work at `at`."""
    history = history_of(props)
    for entry in history:
        if entry[0] == at and entry[1] == "working":
            entry[1], entry[3], entry[4] = outcome, error[:ERROR_LENGTH] if error else None, took
    return orjson.dumps(history).decode()


def with_note(history: str, note: str) -> str:
    """Return the history with a note behind the error of its last attempt."""
    entries = orjson.loads(history)
    entries[-1][3] = "; ".join([part for part in (entries[-1][3], note) if part])[:ERROR_LENGTH]
    return orjson.dumps(entries).decode()


def has_unknown(props: Mapping[str, Any]) -> bool:
    """Return True if the result of one of the kept attempts is unknown: it may have delivered the event."""
    return any(entry[1] == "unknown" for entry in history_of(props))


def with_unknown(props: Mapping[str, Any]) -> str:
    """Return the history with the attempt of an owner that claimed the event and then disappeared.

    It is unknown if that owner made the attempt. Its time is the earliest at which the attempt could start.
    """
    at = max(int(props["due"]), int(props.get("next", 0)))
    return with_attempt(props, at, "unknown", None, OWNER_LOST, 0)


def attempts_for_api(props: Mapping[str, Any], answers: Mapping[Millis, AnswerHead] = {}) -> list[dict[str, Any]]:
    """Return the attempts as the API shows them, the oldest first. answers: by the times of their attempts."""
    return [_shown(*entry[:5], answer=answers.get(entry[0])) for entry in history_of(props)]


def _shown(at: Millis, outcome: str, status: int | None, error: str | None, took: int, *, answer: AnswerHead | None) -> dict[str, Any]:
    entry: dict[str, Any] = {"at": to_text(at), "outcome": outcome, "took_ms": took}
    if status is not None:
        entry["status"] = status
    if error is not None:
        entry["error"] = error
    if answer is not None:
        entry["answer"] = answer_heads.shown(answer)
    return entry


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
