"""Pages of lists as doors take and answer them: `?cursor=` in, `{"items", "next"}` out."""

from __future__ import annotations

from typing import Any

from ..routes import Answer, Call
from .cursor import decode_cursor, encode_cursor


def after[T](call: Call[Any, Any, Any], kind: str, shape: type[T], start: T) -> T:
    """The position that the page asked for begins after: `start` without a cursor. Raises 422 for one that is not of the list `kind`."""
    return decode_cursor(kind, call.query.cursor, shape) if call.query.cursor is not None else start


def page(kind: str, items: list[Any], more: Any) -> Answer:
    """A page of the list `kind`. more: the position to go on after, None at its end."""
    return Answer(200, {"items": items, "next": encode_cursor(kind, more) if more is not None else None})
