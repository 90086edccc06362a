"""Output for people: tables, fields and lines. `documents` writes the JSON for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ...core.readable import readable_duration
from .documents import to_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

STYLES: Final = {
    **dict.fromkeys(("delivered", "live", "owned", "done", "DONE", "completed", "ready", "ok", "granted", "closed"), "green"),
    **dict.fromkeys(("dead", "missing", "revoked", "timed-out", "PREPARE_FAILED", "RESTORE_FAILED", "bad", "open", "breaker-open"), "red"),
    **dict.fromkeys(("retrying", "firing", "working", "draining", "offline", "unowned", "released", "held"), "yellow"),
    **dict.fromkeys(("started", "paused", "half-open", "look"), "yellow"),
}
"""Colours of states. The text says the same without colour."""
_GAP: Final = 2
"""Spaces between columns."""


def printable(value: Any) -> str:
    """Return a value as one line of text. Control characters are escaped, so that stored values cannot move a terminal's cursor."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict | list):
        value = to_json(value)
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode() for sign in str(value))


def console(*, error: bool = False) -> Console:
    """Return a console on standard output or standard error. If it is not a terminal, its lines are wide enough that nothing is cut."""
    from rich.console import Console

    file = sys.stderr if error else sys.stdout
    return Console(file=file, width=None if file.isatty() else 10_000, highlight=False, markup=False, emoji=False, soft_wrap=False)


class Screen:
    """Collects a command's output for people, to print it at once: a refreshed screen does not flicker."""

    def __init__(self) -> None:
        self._parts: list[Any] = []

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]], *, title: str = "", empty: str = "none") -> None:
        """Add a table, or the text `empty` if there are no rows."""
        found = list(rows)
        if title:
            self.line(title, style="bold")
        if found:
            self._parts.append(_Table(columns, found))
        else:
            self.line(f"  {empty}" if title else empty, style="dim")

    def fields(self, document: Mapping[str, Any], *, title: str = "") -> None:
        """Add names and values, one a line; null values and empty texts are left out."""
        self.table(("", ""), [(name, value) for name, value in document.items() if value is not None and value != ""], title=title)

    def line(self, text: str, *, style: str = "") -> None:
        """Add a line of text."""
        from rich.text import Text

        self._parts.append(Text(printable(text), style))

    def gap(self) -> None:
        """Add an empty line."""
        from rich.text import Text

        self._parts.append(Text(""))

    def text(self) -> str:
        """Return the collected output, with colours if standard output shows them."""
        out = console()
        with out.capture() as got:
            for part in self._parts:
                out.print(part)
        return "".join(f"{line.rstrip()}\n" for line in got.get().splitlines())


class _Table:
    """A table if its words fit side by side, else one record after the other with a field a line."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._names = [name.upper() for name in columns]
        self._rows = [[printable(value) for value in row] for row in rows]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.cells import cell_len

        texts = list(zip(self._names, *self._rows, strict=True))
        room = options.max_width - _GAP * (len(texts) - 1)
        least = [max(cell_len(word) for text in column for word in text.split(" ")) for column in texts]
        if any(self._names) and len(texts) > 1 and sum(least) > room:
            yield from self._records(max(map(cell_len, self._names)))
            return
        widths = [min(max(map(cell_len, column)), room) for column in texts]
        # The widest column that can shrink gives up space first: column names before values. If even single words do not fit, as in a
        # payload, they are folded.
        values = [max(low, *map(cell_len, column[1:])) for low, column in zip(least, texts, strict=True)]
        while sum(widths) > room:
            spare = next((found for lows in (values, least) if (found := _above(widths, lows))), range(len(widths)))
            widths[max(spare, key=widths.__getitem__)] -= 1
        yield self._side_by_side(widths)

    def _side_by_side(self, widths: Sequence[int]) -> Table:
        from rich.table import Table

        made = Table(box=None, pad_edge=False, show_edge=False, show_header=any(self._names), header_style="bold", padding=(0, _GAP, 0, 0))
        for name, width in zip(self._names, widths, strict=True):
            made.add_column(name, overflow="fold", width=max(width, 1))
        for row in self._rows:
            made.add_row(*map(_styled, row))
        return made

    def _records(self, width: int) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        for number, row in enumerate(self._rows):
            if number:
                yield Text("")
            made = Table(box=None, pad_edge=False, show_edge=False, show_header=False, padding=(0, _GAP, 0, 0))
            made.add_column(min_width=width)
            made.add_column(overflow="fold")
            for name, value in zip(self._names, row, strict=True):
                made.add_row(Text(name, "bold"), _styled(value))
            yield made


def _above(widths: Sequence[int], lows: Sequence[int]) -> Sequence[int]:
    return [each for each, (width, low) in enumerate(zip(widths, lows, strict=True)) if width > low]


def _styled(text: str) -> Text:
    from rich.text import Text

    return Text(text, STYLES.get(text, ""))


def count_of(number: int, thing: str) -> str:
    """Return a number with its noun: 1 event, 2 events."""
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"


def duration_text(millis: Any) -> str:
    """Return milliseconds as a duration for people; - for None."""
    return "-" if millis is None else readable_duration(millis)


def ranges_text(numbers: Sequence[int]) -> str:
    """Return numbers as ranges: 0-4, 7, 9-11; - for none."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or "-"
