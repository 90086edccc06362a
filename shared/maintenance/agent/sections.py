"""Reads a table of settings key by key and collects all errors, each with its place, the reason and the correct form."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_MISSING: Final = object()


class Section:
    """One table of the file. Each reader returns the value, or the default if the key is missing or wrong. `close` reports unknown keys."""

    def __init__(self, table: Mapping[str, Any], where: str, faults: list[str]) -> None:
        self._table, self._where, self._faults = table, where, faults
        self._known: list[str] = []

    def place(self, key: str) -> str:
        """Return the key as errors name it: `hooks.prepare.command`."""
        return f"{self._where}.{key}" if self._where else key

    def add_fault(self, key: str, why: str) -> None:
        """Add an error for `key`; `why` has the reason and the correct form."""
        self._faults.append(f"{self.place(key)}: {why}")

    def has(self, key: str) -> bool:
        """Return true if the key exists. The key counts as known."""
        return self._take(key) is not _MISSING

    def text(self, key: str, default: str = "", *, among: Iterable[str] = ()) -> str:
        """Read a text that is not empty; one of `among` if given."""
        value = self._take(key)
        if value is _MISSING:
            return default
        choices = list(among)
        if not isinstance(value, str) or not value or (choices and value not in choices):
            self.add_fault(key, f"{show(value)} is not {f'one of {", ".join(choices)}' if choices else 'a text'}{_near(value, choices)}")
            return default
        return value

    def flag(self, key: str, default: bool) -> bool:
        """Read true or false."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if not isinstance(value, bool):
            self.add_fault(key, f"{show(value)} is not true or false")
            return default
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """Read a number from `least` to `most`."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not least <= value <= most:
            self.add_fault(key, f"{show(value)} is not a number from {least:g} to {most:g}")
            return default
        return float(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """Read an integer from `least` to `most`."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.add_fault(key, f"{show(value)} is not a whole number from {least} to {most}")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Read a list of texts that is not empty. Returns an empty one if the key is missing."""
        value = self._take(key)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            self.add_fault(key, f'{show(value)} is not a list of texts, like ["a", "b"]')
            return ()
        return tuple(value)

    def pairs(self, key: str) -> dict[str, str]:
        """Read a table of texts."""
        value = self._take(key)
        if value is _MISSING:
            return {}
        if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
            self.add_fault(key, f"{show(value)} is not a table of texts; put values in quotes")
            return {}
        return dict(value)

    def section(self, key: str) -> Section:
        """Read a table. Returns an empty one if it is missing."""
        value = self._take(key)
        if value is not _MISSING and not isinstance(value, dict):
            self.add_fault(key, f"{show(value)} is not a table")
            value = {}
        return Section({} if value is _MISSING else value, self.place(key), self._faults)

    def sections(self, key: str) -> Sequence[Section]:
        """Read a list of tables. Returns an empty one if it is missing."""
        value = self._take(key)
        if value is _MISSING:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.add_fault(key, f"{show(value)} is not a list of tables")
            return []
        return [Section(each, f"{self.place(key)}[{number}]", self._faults) for number, each in enumerate(value)]

    def keys(self) -> list[str]:
        """Return the existing keys, as texts."""
        return [str(key) for key in self._table]

    def close(self) -> None:
        """Add an error for each unknown key."""
        for key in self._table:
            if key not in self._known:
                self.add_fault(str(key), f"no such setting{_near(key, self._known) or f'; known settings: {", ".join(self._known)}'}")

    def _take(self, key: str) -> Any:
        if key not in self._known:
            self._known.append(key)
        return self._table.get(key, _MISSING)


def show(value: object) -> str:
    """Return a value in short, for an error."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _near(value: object, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(value, known, 1) if isinstance(value, str) else []
    return f"; did you mean {found[0]}?" if found else ""
