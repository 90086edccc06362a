"""JSON as it came and as it goes: numbers keep the digits they were written with, and an answer says what it lacks."""

from __future__ import annotations

import json
from typing import Any, Final, Never, Self

from ...client.errors import Unreadable

_SAFE: Final = 18
"""A whole number of so many characters is one of 64 bits."""


class Number(float):
    """A number that a float or 64 bits may not hold: with its text."""

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made

    def __repr__(self) -> str:
        return self.text

    __str__ = __repr__


class Document(dict[str, Any]):
    """An object of an answer. What it lacks raises `Unreadable`: the app is of another version, or no app."""

    def __missing__(self, name: str) -> Never:
        raise Unreadable(f"the answer lacks {name}")


def parse(text: str | bytes) -> Any:
    """A document. Raises ValueError for what is none; NaN and infinities are none."""
    try:
        return json.loads(text, object_hook=Document, parse_float=Number, parse_int=_whole, parse_constant=_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def dump(document: Any) -> bytes:
    """One line, every number as `parse` found it. Raises ValueError for what is no JSON in UTF-8."""
    import orjson

    try:
        return orjson.dumps(document, default=_exact)
    except TypeError as wrong:
        raise ValueError(str(wrong)) from None


def sendable(text: str) -> Any:
    """A document that somebody wrote, and that can be sent. Raises ValueError."""
    document = parse(text)
    dump(document)
    return document


def to_json(document: Any) -> str:
    """One line for programs. What moves a terminal's cursor is escaped, for people look at it too."""
    text = dump(document).decode()
    return text if text.isprintable() else "".join(sign if sign.isprintable() else _escaped(sign) for sign in text)


def _escaped(sign: str) -> str:
    return json.dumps(sign)[1:-1] if sign != "\x7f" else "\\u007f"


def _exact(value: Any) -> Any:
    import orjson

    if isinstance(value, Number):
        return orjson.Fragment(value.text)
    raise TypeError(f"{type(value).__name__} is no JSON")


def _whole(text: str) -> Any:
    return int(text) if len(text) <= _SAFE else Number(text)


def _constant(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")
