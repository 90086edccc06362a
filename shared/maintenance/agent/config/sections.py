"""Reads a table of settings key by key, and gathers all that is wrong with it: each place, the reason and what to write instead."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

_MISSING: Final = object()


class Section:
    """One table of the file. Each reader returns the value, or the default where the key is left out or wrong; `close` finds keys that
    nobody asked for."""

    def __init__(self, told: Mapping[str, Any], where: str, wrong: list[str]) -> None:
        self._told, self._where, self._wrong = told, where, wrong
        self._asked: list[str] = []

    def place(self, key: str) -> str:
        """The key as it is named in errors: `hooks.prepare.command`."""
        return f"{self._where}.{key}" if self._where else key

    def complain(self, key: str, why: str) -> None:
        """Note that what is at `key` cannot be; `why` says what to write."""
        self._wrong.append(f"{self.place(key)}: {why}")

    def has(self, key: str) -> bool:
        """Whether the key is there; counts as asked for."""
        return self._take(key) is not _MISSING

    def text(self, key: str, default: str = "", *, among: Iterable[str] = ()) -> str:
        """A text that is not empty, one of `among` where there are any."""
        value = self._take(key)
        if value is _MISSING:
            return default
        choices = list(among)
        if not isinstance(value, str) or not value or (choices and value not in choices):
            self.complain(key, f"{show(value)} is not {f'one of {", ".join(choices)}' if choices else 'a text'}{_near(value, choices)}")
            return default
        return value

    def flag(self, key: str, default: bool) -> bool:
        """true or false."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if not isinstance(value, bool):
            self.complain(key, f"{show(value)} is not true or false")
            return default
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        """A number from `least` to `most`."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or math.isnan(value) or not least <= value <= most:
            self.complain(key, f"{show(value)} is not a number from {least:g} to {most:g}")
            return default
        return float(value)

    def whole(self, key: str, default: int, least: int, most: int) -> int:
        """A whole number from `least` to `most`."""
        value = self._take(key)
        if value is _MISSING:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.complain(key, f"{show(value)} is not a whole number from {least} to {most}")
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts that is not empty; empty where the key is left out."""
        value = self._take(key)
        if value is _MISSING:
            return ()
        if not isinstance(value, list) or not value or not all(isinstance(each, str) and each for each in value):
            self.complain(key, f'{show(value)} is not a list of texts, like ["a", "b"]')
            return ()
        return tuple(value)

    def pairs(self, key: str) -> dict[str, str]:
        """A table of texts."""
        value = self._take(key)
        if value is _MISSING:
            return {}
        if not isinstance(value, dict) or not all(isinstance(each, str) for pair in value.items() for each in pair):
            self.complain(key, f"{show(value)} is not a table of texts; put values in quotes")
            return {}
        return dict(value)

    def section(self, key: str) -> Section:
        """A table; an empty one where it is left out."""
        value = self._take(key)
        if value is not _MISSING and not isinstance(value, dict):
            self.complain(key, f"{show(value)} is not a table")
            value = {}
        return Section({} if value is _MISSING else value, self.place(key), self._wrong)

    def sections(self, key: str) -> Sequence[Section]:
        """A list of tables; none where it is left out."""
        value = self._take(key)
        if value is _MISSING:
            return []
        if not isinstance(value, list) or not all(isinstance(each, dict) for each in value):
            self.complain(key, f"{show(value)} is not a list of tables")
            return []
        return [Section(each, f"{self.place(key)}[{number}]", self._wrong) for number, each in enumerate(value)]

    def keys(self) -> list[str]:
        """The keys that are there, as texts."""
        return [str(key) for key in self._told]

    def close(self) -> None:
        """Complain about each key that was never asked for."""
        for key in self._told:
            if key not in self._asked:
                self.complain(str(key), f"no such setting{_near(key, self._asked) or f'; there are {", ".join(self._asked)}'}")

    def _take(self, key: str) -> Any:
        if key not in self._asked:
            self._asked.append(key)
        return self._told.get(key, _MISSING)


def show(value: object) -> str:
    """A value as it is quoted in an error: short."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _near(value: object, known: Sequence[str]) -> str:
    found = difflib.get_close_matches(value, known, 1) if isinstance(value, str) else []
    return f"; did you mean {found[0]}?" if found else ""
