"""Stores a dataclass as JSON text in as many properties of one row as it needs.

Fields may be nested dataclasses, tuples and mappings of them. A property holds at most 64 KiB of UTF-16, so the text is cut into the
properties `json0`, `json1` and so on.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, Final

import orjson

from ..storage.ports import MAX_STRING_UNITS, Props
from .row_codec import resolve_alias

MAX_PIECES: Final = 8
_PIECE: Final = MAX_STRING_UNITS - 1

type _Reader = Callable[[Any], Any]


class TooLarge(ValueError):
    """The value does not fit into a row."""


class JsonCodec[T]:
    """Encodes and decodes values of one dataclass.

    A field that a row lacks gets its default, because a former release may have had fewer fields. Fields of later releases are ignored.
    """

    def __init__(self, kind: type[T]) -> None:
        self._read = _dataclass_reader(kind)

    def encode(self, value: T) -> Props:
        """Return the value's properties. Raises `TooLarge`."""
        text = orjson.dumps(value).decode()
        # A character beyond the basic plane takes two units. Half the length keeps every piece short enough.
        units = len(text) if text.isascii() else len(text.encode("utf-16-le")) // 2
        step = _PIECE if units == len(text) else _PIECE // 2
        pieces = [text[at : at + step] for at in range(0, len(text), step)]
        if len(pieces) > MAX_PIECES:
            raise TooLarge(f"{len(text):,} characters in one row")
        return {f"json{number}": piece for number, piece in enumerate(pieces)}

    def decode(self, props: Props) -> T:
        """Return the value of a row's properties. Raises KeyError, TypeError, ValueError for a row that was edited so that it cannot be
        read."""
        pieces: list[str] = []
        while (piece := props.get(f"json{len(pieces)}")) is not None:
            pieces.append(str(piece))
        value: T = self._read(orjson.loads("".join(pieces)))
        return value


def _reader(hint: Any) -> _Reader | None:
    """Return the function that makes a value of a type from JSON; None if JSON has the value as it is."""
    hint = resolve_alias(hint)
    if dataclasses.is_dataclass(hint):
        return _dataclass_reader(typing.cast(type[Any], hint))
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (types.UnionType, typing.Union):
        return _optional_reader([each for each in arguments if each is not types.NoneType])
    if origin is tuple:
        # Tuples of several types hold plain values only.
        return _tuple_reader(arguments[0] if arguments[1:] == (Ellipsis,) else str)
    if origin in (Mapping, dict):
        return _mapping_reader(arguments[1])
    return None


def _dataclass_reader(kind: type[Any]) -> _Reader:
    hints = typing.get_type_hints(kind)
    fields = {each.name: hints[each.name] for each in dataclasses.fields(kind)}
    readers = {name: reader for name, hint in fields.items() if (reader := _reader(hint)) is not None}

    def read(raw: Mapping[str, Any]) -> Any:
        known = {name: value for name, value in raw.items() if name in fields}
        for name, reader in readers.items():
            if name in known:
                known[name] = reader(known[name])
        return kind(**known)

    return read


def _optional_reader(kinds: list[Any]) -> _Reader | None:
    [kind] = kinds
    reader = _reader(kind)
    if reader is None:
        return None
    return lambda raw: None if raw is None else reader(raw)


def _tuple_reader(item: Any) -> _Reader:
    reader = _reader(item)
    if reader is None:
        return tuple
    return lambda raw: tuple(map(reader, raw))


def _mapping_reader(item: Any) -> _Reader | None:
    reader = _reader(item)
    if reader is None:
        return None
    return lambda raw: {key: reader(value) for key, value in raw.items()}
