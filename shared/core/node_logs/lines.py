"""A log record as a bounded line: its text and fields, without secrets. Every output sends the same line."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

MAX_TEXT: Final = 8 * 1024
"""Characters of a line's text."""
MAX_VALUE: Final = 16 * 1024
"""Characters of one field. The output of a hook has up to as many."""
MAX_FIELDS: Final = 40
MAX_NAME: Final = 64
HIDDEN: Final = "***"
_OWN: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""The fields of every record; any other field came with `extra`."""

type Value = str | bool | int | float


class LogLine(NamedTuple):
    """A line as it leaves the node. at_ns: nanoseconds since 1970. level: as in `logging`. fields: `action` first, then the others."""

    at_ns: int
    level: int
    logger: str
    text: str
    fields: Mapping[str, Value]

    @property
    def size(self) -> int:
        """The line's size in memory, roughly: characters of texts, names and values."""
        return len(self.text) + sum(len(name) + (len(value) if isinstance(value, str) else 8) for name, value in self.fields.items())


def line_of(record: logging.LogRecord, about: Mapping[str, str], secrets: Sequence[str] = ()) -> LogLine:
    """Return the line of a record.

    about: fields of every line, such as the node's name; a record's own field of that name has precedence. secrets: texts that are replaced
    wherever they occur.
    """
    extra = {name: value for name, value in vars(record).items() if name not in _OWN and name != "fields"}
    more = getattr(record, "fields", None)
    if isinstance(more, Mapping):
        extra = {**more, **extra}
    found: dict[str, Any] = {"action": extra.pop("action", ""), "event_id": extra.pop("event_id", ""), **about}
    found |= {name: value for name, value in extra.items() if value not in ("", None) or name not in about}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        found |= {
            "exception.type": type(error).__qualname__,
            "exception.message": str(error),
            "exception.stacktrace": "".join(traceback.format_exception(error)),
        }
    shown = [(name, value) for name, value in found.items() if value not in ("", None)]
    fields = {str(name)[:MAX_NAME]: _plain(value, secrets) for name, value in shown[:MAX_FIELDS]}
    return LogLine(round(record.created * 1e9), record.levelno, record.name, clean(record.getMessage(), secrets, MAX_TEXT), fields)


def clean(text: str, secrets: Sequence[str], most: int) -> str:
    """Return a text of at most `most` characters, without secrets and without characters that UTF-8 cannot express."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text[:most].encode(errors="replace").decode()


def _plain(value: Any, secrets: Sequence[str]) -> Value:
    if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return clean(str(value), secrets, MAX_VALUE)
