"""A case of a stored row, and helpers to describe one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from shared.storage.ports import Props, Row

NOW = 1_795_256_515_250
"""Milliseconds."""


class Case(NamedTuple):
    """A value and its stored form. `parse` is None for properties that no function reads back as a value."""

    name: str
    value: Any
    encode: Callable[[Any], Props]
    parse: Callable[[Props], Any] | None = None


def props_of(value: Any) -> Props:
    found: Props = value.props()
    return found


def as_is(props: Props) -> Props:
    return props


def row_of(rk: str, props: Props) -> Row:
    return Row("acme:f", rk, props, "", 0, 0)
