"""Bodies that are no JSON: an event's payload is then the text of their base64, and its content type says what the bytes are."""

from __future__ import annotations

import base64
import binascii
import re
from typing import Annotated, Final

import orjson
from pydantic import AfterValidator, StringConstraints

JSON: Final = "application/json"
CONTENT_TYPE: Final = "content_type"
"""Property of an event row: the type of its body. Missing, or empty after a change, for a payload that is sent as JSON."""
_TOKEN = r"[A-Za-z0-9!#$&^_.+-]{1,100}+"
_TYPE = re.compile(rf"""{_TOKEN}/{_TOKEN}(?:; ?{_TOKEN}=(?:{_TOKEN}|"[\x20\x21\x23-\x5b\x5d-\x7e]*+"))*+""")


def _content_type(text: str) -> str:
    if not _TYPE.fullmatch(text):
        raise ValueError("must be a media type such as text/xml; charset=utf-8")
    kind = text.lower().partition(";")[0]
    if kind == JSON:
        raise ValueError("must not be application/json; leave content_type out, and give the JSON as payload")
    if kind.startswith("application/cloudevents"):
        # A receiver would read another event from the body, with an id and a type of the sender's choice.
        raise ValueError("must not be a type of CloudEvents, because the headers of the request are one already")
    return text


ContentType = Annotated[str, StringConstraints(max_length=200), AfterValidator(_content_type)]


def is_content_type(text: str) -> bool:
    """Return True for a media type as `ContentType` takes it. For what was read from a row, as if anybody had written it."""
    return _TYPE.fullmatch(text) is not None


def bytes_of(payload: bytes) -> bytes:
    """Return the bytes for which a payload, the JSON of a text, stands. Raises ValueError if it is none, or not plain base64."""
    if not payload.startswith(b'"'):
        # Not parsed only to find that out: an array may hold many values.
        raise ValueError("not a text")
    text = orjson.loads(payload)
    try:
        found = base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("not base64") from None
    if base64.b64encode(found).decode() != text:
        # One text for each body: the same content is then the same event.
        raise ValueError("not the usual base64 of its bytes")
    return found


def without_escapes(payload: bytes) -> bytes:
    """Return the JSON of the same base64 without the escapes that some encoders write for `+` and `/`. Raises ValueError as `bytes_of`.

    Escapes make a text up to six times as long, and the limits count its bytes.
    """
    return payload if b"\\" not in payload else b'"%b"' % base64.b64encode(bytes_of(payload))
