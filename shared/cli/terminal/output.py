"""Output for people: tables, fields and lines, and a sign that the command still works. `documents` writes the JSON for programs."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from ...core.readable import readable_duration
from .documents import to_json

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.status import Status
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
_FOLDED: Final = (20, 14, 10)
"""Longest words that are not folded where a table would not fit otherwise, the most welcome first."""
_NO_BREAK: Final = "\N{NO-BREAK SPACE}"
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


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
    """A table if its columns fit side by side, else one record after the other with a field a line.

    Where there is too little room, empty columns are left out, times lose their milliseconds, and long words are folded, in this order.
    """

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        self._columns = [(name.upper(), [printable(row[at]) for row in rows]) for at, name in enumerate(columns)]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.max_width
        if not any(name for name, _ in self._columns) or len(self._columns) == 1:
            widths = _widths(self._columns, room) or _widths(self._columns, room, 1)
            yield _side_by_side(self._columns, widths or [1] * len(self._columns))
            return
        shorter = [(name, texts) for name, texts in self._columns if set(texts) != {"-"}] or self._columns
        brief, briefest = _with_brief_times(shorter, slice(19)), _with_brief_times(shorter, slice(5, 16))
        for columns in (self._columns, shorter, brief):
            if (widths := _widths(columns, room)) and not _breaks(columns, widths):
                yield _side_by_side(columns, widths)
                return
        for longest in (room, *_FOLDED):
            for columns in (brief, briefest):
                if widths := _widths(columns, room, longest):
                    yield _side_by_side(columns, widths)
                    return
        from rich.cells import cell_len

        yield from self._records(max(cell_len(name) for name, _ in self._columns))

    def _records(self, width: int) -> Iterator[RenderableType]:
        from rich.table import Table
        from rich.text import Text

        for number in range(len(self._columns[0][1])):
            if number:
                yield Text("")
            made = Table(box=None, pad_edge=False, show_edge=False, show_header=False, padding=(0, _GAP, 0, 0))
            made.add_column(min_width=width)
            made.add_column(overflow="fold")
            for name, texts in self._columns:
                made.add_row(Text(name, "bold"), _styled(texts[number]))
            yield made


type _Column = tuple[str, list[str]]


def _side_by_side(columns: Sequence[_Column], widths: Sequence[int]) -> Table:
    from rich.table import Table

    named = any(name for name, _ in columns)
    made = Table(box=None, pad_edge=False, show_edge=False, show_header=named, header_style="bold", padding=(0, _GAP, 0, 0))
    for (name, _), width in zip(columns, widths, strict=True):
        made.add_column(name, overflow="fold", width=max(width, 1))
    for row in zip(*(texts for _, texts in columns), strict=True):
        made.add_row(*map(_styled, row))
    return made


def _widths(columns: Sequence[_Column], width: int, longest: int | None = None) -> list[int] | None:
    """Return the columns' widths, or None if their words do not fit into `width`. longest: longer words may be folded; None: none may."""
    from rich.cells import cell_len

    all_texts = [(name, *texts) for name, texts in columns]
    room = width - _GAP * (len(columns) - 1)
    least = [max(_least(word, longest or width) for text in texts for word in text.split(" ")) for texts in all_texts]
    if sum(least) > room:
        return None
    widths = [min(max(map(cell_len, texts)), room) for texts in all_texts]
    # The widest column that can shrink gives up space first: column names before values.
    values = [max(low, *map(cell_len, texts[1:])) for low, texts in zip(least, all_texts, strict=True)]
    while sum(widths) > room:
        spare = next((found for lows in (values, least) if (found := _above(widths, lows))), range(len(widths)))
        widths[max(spare, key=widths.__getitem__)] -= 1
    return widths


def _least(word: str, longest: int) -> int:
    from rich.cells import cell_len

    # A time is not folded.
    return cell_len(word) if _NO_BREAK in word else min(cell_len(word), longest)


def _are_times(texts: Sequence[str]) -> bool:
    return any(map(_TIME.fullmatch, texts)) and all(text == "-" or _TIME.fullmatch(text) for text in texts)


def _with_brief_times(columns: Sequence[_Column], part: slice) -> Sequence[_Column]:
    """Return the columns with this part of each time: 0 to 19 is 2027-01-15 08:00:00, 5 to 16 is 01-15 08:00."""

    def brief(text: str) -> str:
        # A space would be a place to break the line.
        return text if text == "-" else text[part].replace("T", _NO_BREAK)

    return [(f"{name} (UTC)", [*map(brief, texts)]) if _are_times(texts) else (name, texts) for name, texts in columns]


def _breaks(columns: Sequence[_Column], widths: Sequence[int]) -> bool:
    from rich.cells import cell_len

    return any(cell_len(text) > width for (_, texts), width in zip(columns, widths, strict=True) for text in texts)


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


QUIET: Final = 1.5
"""Seconds for which a command works before it says so."""


class Activity:
    """A line on standard error, if that is a terminal. It appears while the command works, and goes before anything else is printed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._began = time.monotonic()
        self._status: Status | None = None
        self._enabled = sys.stderr is not None and sys.stderr.isatty()
        self._lock = threading.Lock()

    @contextmanager
    def during(self) -> Iterator[None]:
        """Show the line while this lasts, from `QUIET` seconds after the command's start on."""
        if not self._enabled or self._status is not None:
            yield
            return
        timer = threading.Timer(max(0.0, self._began + QUIET - time.monotonic()), self._show)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def update(self, text: str) -> None:
        """Change the text."""
        self._text = text
        if self._status is not None:
            self._status.update(text)

    def hide(self) -> None:
        """Remove the line until the next `during`."""
        with self._lock:
            if self._status is not None:
                self._status.stop()
                self._status = None

    def disable(self) -> None:
        """Never show the line: something else is on the terminal."""
        self._enabled = False
        self.hide()

    def _show(self) -> None:
        from rich.status import Status
        from rich.text import Text

        with self._lock:
            if self._enabled and self._status is None:
                self._status = Status(Text(self._text), console=console(error=True))
                self._status.start()
