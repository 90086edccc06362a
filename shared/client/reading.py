"""Reads answers into dataclasses, with the standard library alone.

Reading is tolerant: unknown fields of a newer service are ignored. A field has one of these types: `str`, `int`, `float`, `bool`, `date`,
`datetime`, `timedelta`, `Any`, a class made with `answer`, or `X | None`, `tuple[X, ...]` or `Mapping[str, X]` of such a type. A typed
dictionary is taken as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from types import NoneType, UnionType
from typing import Any, Union, cast, dataclass_transform, get_args, get_origin, get_type_hints, is_typeddict

from ..core.durations import parse_duration


class Misfit(ValueError):
    """Raised if a document does not fit a class. names: the faulty fields. The message holds no values, because they may be secret."""

    def __init__(self, names: list[str]) -> None:
        super().__init__(", ".join(names))
        self.names = names


@dataclass_transform(kw_only_default=True, frozen_default=True)
def answer[T](cls: type[T]) -> type[T]:
    """Make the class an immutable dataclass with keyword arguments."""
    return dataclass(frozen=True, kw_only=True)(cls)


def read_json(text: bytes) -> Any:
    """Return the document. Raises ValueError for text that is not JSON, is nested too deeply or holds a lone surrogate."""
    try:
        found = json.loads(text)
        if b"\\u" in text:
            # A lone surrogate has no encoding: the text could be neither printed nor sent.
            json.dumps(found, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return found


def reader_of[T](shape: type[T]) -> Callable[[Any], T]:
    """Return the function that makes a value of the type from a part of a document. It raises ValueError or TypeError if it does not fit.

    The type is examined at the first document, because a program uses few types.
    """

    def read(document: Any) -> T:
        value: T = _reader(cast(Any, shape))(document)
        return value

    return read


@cache
def _reader(shape: Any) -> Callable[[Any], Any]:
    if shape is Any or is_typeddict(shape):
        return lambda value: value
    if shape in _PLAIN:
        return _PLAIN[shape]
    origin, arguments = get_origin(shape), get_args(shape)
    if origin in (Union, UnionType):
        return _optional(*[each for each in arguments if each is not NoneType])
    if origin is tuple:
        return _sequence(arguments[0])
    if origin is Mapping:
        return _mapping(arguments[1])
    if is_dataclass(origin or shape):
        return _record(origin or shape, arguments)
    raise TypeError(f"answers have no fields of type {shape}")


def _record(cls: Any, arguments: tuple[Any, ...]) -> Callable[[Any], Any]:
    given = dict(zip(cls.__type_params__, arguments, strict=True))
    # Python 3.12 does not resolve the type parameters of a generic class itself.
    hints = get_type_hints(cls, localns={each.__name__: each for each in cls.__type_params__})
    known = {each.name: _reader(_resolved(hints[each.name], given)) for each in fields(cls)}
    required = frozenset(each.name for each in fields(cls) if each.default is MISSING and each.default_factory is MISSING)

    def read(document: Any) -> Any:
        if not isinstance(document, dict):
            raise TypeError("not an object")
        values, wrong = {}, []
        for name, value in document.items():
            if (part := known.get(name)) is not None:
                try:
                    values[name] = part(value)
                except (ValueError, TypeError):
                    wrong.append(name)
        wrong += required - document.keys()
        if wrong:
            raise Misfit(sorted(wrong))
        return cls(**values)

    return read


def _resolved(hint: Any, given: Mapping[Any, Any]) -> Any:
    """Return the type of a field of a generic class for the given arguments."""
    if hint in given:
        return given[hint]
    arguments = tuple(_resolved(each, given) for each in get_args(hint))
    origin: Any = get_origin(hint)
    return (Union if origin is UnionType else origin)[arguments] if given and arguments else hint


def _optional(shape: Any) -> Callable[[Any], Any]:
    read = _reader(shape)
    return lambda value: None if value is None else read(value)


def _sequence(shape: Any) -> Callable[[Any], Any]:
    read = _reader(shape)

    def read_all(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError("not an array")
        return tuple([read(each) for each in value])

    return read_all


def _mapping(shape: Any) -> Callable[[Any], Any]:
    read = _reader(shape)

    def read_all(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError("not an object")
        return {name: read(each) for name, each in value.items()}

    return read_all


def _plain[T](shape: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        # In Python, True and False are integers.
        if type(value) is not shape:
            raise TypeError(f"not of type {shape.__name__}")
        return value

    return read


def _int(value: Any) -> int:
    if type(value) is float and value.is_integer():
        return int(value)
    return _plain(int)(value)


def _float(value: Any) -> float:
    try:
        return float(value) if type(value) is int else _plain(float)(value)
    except OverflowError:
        raise ValueError("too large") from None


def _time(value: Any) -> datetime:
    found = datetime.fromisoformat(value)
    if found.utcoffset() is None:
        raise ValueError("no time zone")
    return found


def _duration(value: Any) -> timedelta:
    return timedelta(milliseconds=parse_duration(_plain(str)(value)))


_PLAIN: dict[Any, Callable[[Any], Any]] = {
    str: _plain(str),
    bool: _plain(bool),
    int: _int,
    float: _float,
    datetime: _time,
    date: date.fromisoformat,
    timedelta: _duration,
}
