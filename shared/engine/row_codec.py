"""Turns a value of fixed fields into the properties of a row and back.

A codec is declared once per row type; the fields' types say how they are stored:

    _PARTITION = RowCodec(Partition, given=("number",))
    props = _PARTITION.encode(partition)
    partition = _PARTITION.decode(row.props, 7)

`str`, `int`, `bool` and `float` are stored as such, and converted when they are read; a `Literal` is taken as it is; a field that may be
None is left out while it is None, unless its format takes None. A row with other properties is read all the same: later releases may have
added them.

The two functions are compiled once, as `dataclasses` does it: they are as fast as if they were written by hand.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final, NamedTuple

from ..storage.ports import Props


class Format(NamedTuple):
    """The conversion of one field to one property. None: the value itself is stored. takes_none: the functions also convert None."""

    encode: Callable[[Any], Any] | None
    decode: Callable[[Any], Any] | None
    takes_none: bool = False


class Spread(NamedTuple):
    """The conversion of one field to several properties, whose number or names depend on its value."""

    encode: Callable[[Any], Props]
    decode: Callable[[Props], Any]


AS_IS: Final = Format(None, None)
TEXT: Final = Format(None, str)
_BY_TYPE: Final = {int: Format(None, int), str: TEXT, bool: Format(None, bool), float: Format(float, float)}


class RowCodec[T]:
    """Encodes and decodes values of one dataclass or NamedTuple.

    formats: of fields that are not stored as their type says. The codec of another type spreads that field's own fields over the row.
    names: of properties that are called otherwise than their field. added: fields that a row may lack, such as one of a former release;
    they are read as the field's default. sparse: fields that are left out while they have their default. given: fields that are not among
    the properties, such as the row's key; `decode` takes their values in this order.
    convert: False for rows that only this code writes: their values are taken as they are.
    """

    def __init__(
        self,
        kind: type[T],
        *,
        formats: Mapping[str, Format | Spread | RowCodec[Any]] = types.MappingProxyType({}),
        names: Mapping[str, str] = types.MappingProxyType({}),
        added: Collection[str] = (),
        sparse: Collection[str] = (),
        given: Collection[str] = (),
        convert: bool = True,
    ) -> None:
        self._kind, self._formats, self._names, self._added, self._given = kind, formats, names, added, given
        self._sparse, self._convert = sparse, convert
        self._fields = _fields_of(kind)
        unknown = {*formats, *names, *added, *sparse, *given} - self._fields.keys()
        if unknown:
            raise TypeError(f"{kind.__name__} has no fields {', '.join(sorted(unknown))}")
        scope: dict[str, Any] = {}
        always, later = self._encoders("value", scope)
        source = [
            "def encode(value):",
            f"    props = {{{', '.join(f'{name!r}: {stored}' for name, stored in always)}}}",
            *later,
            "    return props",
            f"def decode({', '.join(['props', *given])}):",
            f"    return {self._decoder(scope)}",
        ]
        exec("\n".join(source), scope)
        self.encode: Callable[[T], Props] = scope["encode"]
        """Return the value's properties."""
        self.decode: Callable[..., T] = scope["decode"]
        """Return the value of a row's properties, and of the fields `given`. Raises KeyError, TypeError, ValueError for a row that was
        edited so that it cannot be read."""

    def _encoders(self, path: str, scope: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
        """Name and expression of each property that is always there; and the statements that add the others."""
        always, later = list[tuple[str, str]](), list[str]()
        for field, (kind, default) in self._fields.items():
            if field in self._given:
                continue
            format, optional = self._format(field, kind)
            source = f"{path}.{field}"
            if isinstance(format, RowCodec):
                inner, inner_later = format._encoders(source, scope)
                always += inner
                later += inner_later
                continue
            if isinstance(format, Spread):
                later.append(f"    props.update({_put(scope, format.encode)}({source}))")
                continue
            name, stored = self._names.get(field, field), source
            if format.encode is not None:
                stored = f"{_put(scope, format.encode)}({stored})"
            if field in self._sparse:
                later.append(f"    if {source} != {_put(scope, default)}:\n        props[{name!r}] = {stored}")
            elif optional:
                later.append(f"    if {source} is not None:\n        props[{name!r}] = {stored}")
            else:
                always.append((name, stored))
        return always, later

    def _decoder(self, scope: dict[str, Any]) -> str:
        """The expression that makes a value of `props`."""
        arguments = []
        for field, (kind, default) in self._fields.items():
            if field in self._given:
                arguments.append(field)
                continue
            format, optional = self._format(field, kind)
            if isinstance(format, RowCodec):
                arguments.append(format._decoder(scope))
                continue
            if isinstance(format, Spread):
                arguments.append(f"{_put(scope, format.decode)}(props)")
                continue
            name = self._names.get(field, field)
            read = f"props[{name!r}]"
            if format.decode is not None:
                read = f"{_put(scope, format.decode)}({read})"
            if optional or field in self._added or field in self._sparse:
                if default is dataclasses.MISSING:
                    raise TypeError(f"{self._kind.__name__}.{field} needs a default for rows that lack it")
                read = f"({read} if {name!r} in props else {_put(scope, default)})"
            arguments.append(read)
        return f"{_put(scope, self._kind)}({', '.join(arguments)})"

    def _format(self, field: str, kind: Any) -> tuple[Format | Spread | RowCodec[Any], bool]:
        """Return the format of a field, and True if the property is left out while the field is None."""
        optional = False
        if isinstance(kind, types.UnionType) and types.NoneType in typing.get_args(kind):
            optional = True
            [kind] = [resolve_alias(each) for each in typing.get_args(kind) if each is not types.NoneType]
        if field in self._formats:
            format = self._formats[field]
            return format, optional and not (isinstance(format, Format) and format.takes_none)
        if not self._convert or typing.get_origin(kind) is typing.Literal:
            return AS_IS, optional
        if kind not in _BY_TYPE:
            raise TypeError(f"{self._kind.__name__}.{field} needs a format: it is {kind}")
        return _BY_TYPE[kind], optional


def _fields_of(kind: type[Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default of each field, in order."""
    hints = typing.get_type_hints(kind)
    if dataclasses.is_dataclass(kind):
        return {each.name: (resolve_alias(hints[each.name]), _default_of(each)) for each in dataclasses.fields(kind)}
    defaults = kind._field_defaults
    return {name: (resolve_alias(hints[name]), defaults.get(name, dataclasses.MISSING)) for name in kind._fields}


def _default_of(field: dataclasses.Field[Any]) -> Any:
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else field.default


def resolve_alias(hint: Any) -> Any:
    """Return the type that a `type` statement names."""
    while isinstance(hint, typing.TypeAliasType):
        hint = hint.__value__
    return hint


def _put(scope: dict[str, Any], value: Any) -> str:
    """The name under which the compiled functions find a value."""
    if value in (int, str, bool, float):
        return str(value.__name__)
    name = f"_{len(scope)}"
    scope[name] = value
    return name
