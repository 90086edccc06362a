"""Pages of lists: `?cursor=` in the query, `{"items", "next"}` in the answer."""

from __future__ import annotations

from typing import Any

from ..routes import Answer, Call
from .cursor import decode_cursor, encode_cursor


def after[T](call: Call[Any, Any, Any], kind: str, shape: type[T], start: T) -> T:
    """Return the position after which the page begins: `start` without a cursor. Raise 422 for a cursor of another list than `kind`."""
    return decode_cursor(kind, call.query.cursor, shape) if call.query.cursor is not None else start


def page(kind: str, items: list[Any], more: Any) -> Answer:
    """Return a page of the list `kind`. more: the last position of the page, None at the end of the list."""
    return Answer(200, {"items": items, "next": encode_cursor(kind, more) if more is not None else None})
