"""Lists in pages: `?cursor=` in the query, `{"items", "next"}` in the answer, and opaque cursors.

The check value is not a secret: it detects damaged cursors and cursors of another list, but not forgeries. A handler uses a cursor only as
a position inside data that the caller may see anyway.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import Any

import orjson

from .problem import invalid
from .routes import Answer, Call

MAX_CURSOR = 2048
"""Longest cursor that is accepted, in characters."""
_CHECK = 6


def _check(kind: str, raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_CHECK, key=kind.encode()[:64], person=b"tocsin.cursor").digest()


def encode_cursor(kind: str, position: Any) -> str:
    """Return a cursor for the list `kind` (at most 64 bytes: the list's name, and what it was filtered by) at a JSON `position`."""
    raw = orjson.dumps(position)
    return urlsafe_b64encode(_check(kind, raw) + raw).rstrip(b"=").decode()


def decode_cursor[T](kind: str, text: str, shape: type[T]) -> T:
    """Return the position in a cursor of the list `kind`; raise 422 at `?cursor` for anything else. shape: the position's type."""
    try:
        if len(text) > MAX_CURSOR or not text.isascii():
            raise ValueError
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        # Only one spelling counts: a different text that decodes to the same bytes is not a cursor.
        if urlsafe_b64encode(raw).rstrip(b"=").decode() != text or raw[:_CHECK] != _check(kind, raw[_CHECK:]):
            raise ValueError
        position = orjson.loads(raw[_CHECK:])
        if not isinstance(position, shape):
            raise ValueError
    except (ValueError, Error):
        raise invalid("?cursor", "is not a cursor of this list; leave it out to start from the beginning") from None
    return position


def after[T](call: Call[Any, Any, Any], kind: str, shape: type[T], start: T) -> T:
    """Return the position after which the page begins: `start` without a cursor. Raise 422 for a cursor of another list than `kind`."""
    return decode_cursor(kind, call.query.cursor, shape) if call.query.cursor is not None else start


def page(kind: str, items: list[Any], more: Any) -> Answer:
    """Return a page of the list `kind`. more: the last position of the page, None at the end of the list."""
    return Answer(200, {"items": items, "next": encode_cursor(kind, more) if more is not None else None})
