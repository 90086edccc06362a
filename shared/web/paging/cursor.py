"""Opaque list cursors: base64url of JSON with a check value that ties them to the list they came from.

The check is not a secret: it catches mangled cursors and cursors of another list, not forgers. A handler uses what a cursor holds
only as a position inside what the caller may see anyway.
"""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from hashlib import blake2b
from typing import Any

import orjson

from ..problem import invalid

MAX_CURSOR = 2048
"""Longest cursor taken, in characters."""
_CHECK = 6


def _check(kind: str, raw: bytes) -> bytes:
    return blake2b(raw, digest_size=_CHECK, key=kind.encode()[:64], person=b"tocsin.cursor").digest()


def encode_cursor(kind: str, position: Any) -> str:
    """A cursor for the list `kind` (at most 64 bytes: the list's name, and what it was filtered by) at a JSON `position`."""
    raw = orjson.dumps(position)
    return urlsafe_b64encode(_check(kind, raw) + raw).rstrip(b"=").decode()


def decode_cursor[T](kind: str, text: str, shape: type[T]) -> T:
    """The position in a cursor of the list `kind`; anything else is 422 at `?cursor`. `shape` is the position's type: str, list ..."""
    try:
        if len(text) > MAX_CURSOR or not text.isascii():
            raise ValueError
        raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        # One spelling only: what decodes alike is not the same cursor.
        if urlsafe_b64encode(raw).rstrip(b"=").decode() != text or raw[:_CHECK] != _check(kind, raw[_CHECK:]):
            raise ValueError
        position = orjson.loads(raw[_CHECK:])
        if not isinstance(position, shape):
            raise ValueError
    except (ValueError, Error):
        raise invalid("?cursor", "not a cursor of this list; leave it out to start from the beginning") from None
    return position
