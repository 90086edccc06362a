"""JSON documents that keep every digit of their numbers, and name the field that an answer lacks."""

from __future__ import annotations

import json
from typing import Any, Final, Never, Self

from ...client.errors import Unreadable

_SAFE: Final = 18
"""Longest text, in characters, of which every whole number fits 64 bits."""


class ExactNumber(float):
    """A number that a float or 64 bits may not hold exactly, together with its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


class AnswerDocument(dict[str, Any]):
    """An object of an answer. A missing field raises `Unreadable`: the answer is another version's, or does not come from the app."""

    def __missing__(self, name: str) -> Never:
        raise Unreadable(f"the answer lacks {name}")


def parse(text: str | bytes) -> Any:
    """Return the document that the JSON text holds. Raises ValueError if it is not JSON; NaN and infinities are not."""
    try:
        return json.loads(text, object_hook=AnswerDocument, parse_float=ExactNumber, parse_int=_whole, parse_constant=_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump(document: Any) -> bytes:
    """Return the document as one line of JSON, every number as `parse` found it. Raises ValueError for what JSON in UTF-8 cannot hold."""
    import orjson

    try:
        return orjson.dumps(document, default=_exact)
    except TypeError as wrong:
        raise ValueError(str(wrong)) from None


def parse_sendable(text: str) -> Any:
    """Return the document of a text that a user wrote. Raises ValueError if it is not JSON, or could not be sent."""
    document = parse(text)
    dump(document)
    return document


def to_json(document: Any) -> str:
    """Return one line of JSON for programs. Control characters are escaped, because the line may be shown on a terminal."""
    text = dump(document).decode()
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return json.dumps(sign)[1:-1] if sign != "\x7f" else "\\u007f"


def _exact(value: Any) -> Any:
    import orjson

    if isinstance(value, ExactNumber):
        return orjson.Fragment(value.text)
    raise TypeError(f"JSON has no {type(value).__name__}")


def _whole(text: str) -> Any:
    return int(text) if len(text) <= _SAFE else ExactNumber(text)


def _constant(name: str) -> Never:
    raise ValueError(f"{name} is not a number in JSON")
