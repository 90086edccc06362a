"""The history of an event: its last delivery attempts, in one JSON property of its row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from ..core.clock import Millis, to_text
from ..delivery.channels import answer_heads
from ..delivery.channels.answer_heads import AnswerHead

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
