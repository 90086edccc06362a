"""Declarations of the kinds of rows in the tables. The page docs/reference/stored-rows.md is generated from them.

A room declares the kinds that it stores in its `row_kinds`, which nothing imports at work. A row of no declared kind fails a test.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

_NAME: Final = "[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?"
PARTS: Final[Mapping[str, str]] = {
    "tenant": _NAME,
    "fleet": _NAME,
    "channel": _NAME,
    "calendar": _NAME,
    "node": "[A-Za-z0-9](?:[A-Za-z0-9._-]{0,62}[A-Za-z0-9])?",
    "shard": f"[0-9a-f]{{2}}-[0-9a-v]{{16}}-{_NAME}",
    "name": "[0-9a-v]{16}",
    "place": "[0-9a-fm]",
    "minute": "[0-9]{12}",
    "month": "[0-9]{4}-[0-9]{2}",
    "hex": "[0-9a-f]",
    "digest": "[0-9a-f]{16,64}",
    "number": "[0-9]+",
    "id": "[^!].*",
    "text": ".*",
}
"""The varying parts of keys, by the name that stands in braces."""


@dataclass(frozen=True)
class StoredKind:
    """One kind of row.

    partition, row: the forms of its keys, with varying parts in braces (`PARTS`), and " or " between several forms. code: the class or
    function that the row is read with. properties: the meaning of each; a name may have a varying part too. removed: who removes the
    row, and when.
    """

    name: str
    table: str
    partition: str
    row: str
    meaning: str
    code: Callable[..., object]
    properties: Mapping[str, str]
    removed: str

    def matches(self, table: str, partition: str, row: str) -> bool:
        """Return True if a row with these keys is of this kind."""
        return table == self.table and bool(self._partition.fullmatch(partition) and self._row.fullmatch(row))

    def undeclared(self, names: Mapping[str, object]) -> list[str]:
        """Return the names of properties that the kind does not declare."""
        return [name for name in names if not any(form.fullmatch(name) for form in self._properties)]

    @cached_property
    def _partition(self) -> re.Pattern[str]:
        return _pattern(self.partition)

    @cached_property
    def _row(self) -> re.Pattern[str]:
        return _pattern(self.row)

    @cached_property
    def _properties(self) -> list[re.Pattern[str]]:
        return [_pattern(name) for name in self.properties]


def _pattern(forms: str) -> re.Pattern[str]:
    """Return the pattern of one or more forms. Raises KeyError for a varying part that is not among `PARTS`."""
    return re.compile("|".join(_text(form) for form in forms.split(" or ")), re.DOTALL)


def _text(form: str) -> str:
    pieces = re.split(r"\{(\w+)\}", form)
    return "".join(PARTS[piece] if number % 2 else re.escape(piece) for number, piece in enumerate(pieces))
