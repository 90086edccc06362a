"""How answers are shown: tables for people, one JSON document a line for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STYLES: Final = {
    **dict.fromkeys(("delivered", "live", "owned", "done", "completed", "ready", "ok", "granted", "closed"), "green"),
    **dict.fromkeys(("dead", "stale", "missing", "not-ready", "revoked", "timed-out", "FAILED", "bad", "open"), "red"),
    **dict.fromkeys(("retrying", "firing", "draining", "offline", "unowned", "released", "held", "started", "paused", "look"), "yellow"),
}
"""Words whose colour tells how things stand; the words themselves tell it too."""


def clean(value: Any) -> str:
    """A value as one line of text. Control characters are spelt out: what users stored must not move a terminal's cursor."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        value = to_json(value)
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(value))


def to_json(document: Any) -> str:
    """One line."""
    import json

    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def console(*, error: bool = False) -> Console:
    """A console on standard output or standard error, as it is now. One that is no terminal is wide, so that nothing is cut."""
    from rich.console import Console

    file = sys.stderr if error else sys.stdout
    return Console(file=file, width=None if file.isatty() else 10_000, highlight=False, markup=False, emoji=False, soft_wrap=False)


class Screen:
    """Collects what a command says to people, and prints it at once: so a screen that is watched does not flicker."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", empty: str = "none") -> None:
        """A table; `empty` is said instead where there are no rows."""
        found = list(rows)
        if title:
            self.line(title, style="bold")
        if found:
            self._parts.append(_table(columns, found))
        else:
            self.line(f"  {empty}" if title else empty, style="dim")

    def fields(self, document: Mapping[str, Any], *, title: str = "") -> None:
        """Names and values, one a line; what is null is left out."""
        self.table(("", ""), [(name, value) for name, value in document.items() if value is not None and value != ""], title=title)

    def line(self, text: str, *, style: str = "") -> None:
        """A line of text."""
        from rich.text import Text

        self._parts.append(Text(clean(text), style))

    def gap(self) -> None:
        """An empty line."""
        from rich.text import Text

        self._parts.append(Text(""))

    def text(self) -> str:
        """All of it, with colours where standard output shows them."""
        out = console()
        with out.capture() as got:
            for part in self._parts:
                out.print(part)
        return "".join(f"{line.rstrip()}\n" for line in got.get().splitlines())


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Table:
    from rich.table import Table

    made = Table(box=None, pad_edge=False, show_edge=False, show_header=any(columns), header_style="bold", padding=(0, 2, 0, 0))
    for name in columns:
        made.add_column(name.upper(), overflow="fold")
    for row in rows:
        made.add_row(*(_cell(value) for value in row))
    return made


def _cell(value: Any) -> Any:
    from rich.text import Text

    shown = clean(value)
    return Text(shown, STYLES.get(shown, ""))


def span(millis: Any) -> str:
    """Milliseconds as people say them: 850 ms, 12.3 s, 4 min 5 s, 3 h 10 min; - for none."""
    if millis is None:
        return "-"
    if abs(millis) < 1000:
        return f"{millis:g} ms"
    if abs(millis) < 60_000:
        return f"{millis / 1000:.1f} s"
    seconds = round(millis / 1000)
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min" if seconds < 172_800 else f"{seconds // 86_400} d {seconds % 86_400 // 3600} h"


def several(numbers: Sequence[int]) -> str:
    """Numbers in ranges: 0-4, 7, 9-11."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "-"
