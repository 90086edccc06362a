"""Draws what a terminal shows as an SVG: one screen, or a recording in which each line appears when it was printed.

Colours are those of the text's own escape sequences. The picture loads nothing: its font is the reader's monospaced one, in columns of
fixed width. A reader who prefers no motion sees a recording's last moment.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.sax.saxutils import escape, quoteattr

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import TerminalTheme
from rich.text import Text

COLUMN: Final = 8.4
"""Pixels of a character's width, at the font size below."""
FONT: Final = 14
LINE: Final = 19
"""Pixels from one line to the next."""
EDGE: Final = 14
BAR: Final = 30
"""Height of the bar with a terminal's title."""
HOLD: Final = 4.0
"""Seconds for which a recording shows its last moment before it begins again."""
PAPER, INK = "#16213a", "#e6ebf5"
THEME: Final = TerminalTheme(
    (22, 33, 58),
    (230, 235, 245),
    [(90, 100, 120), (255, 138, 128), (128, 220, 160), (255, 213, 128), (140, 190, 255), (220, 170, 255), (128, 222, 234), (230, 235, 245)],
    [
        (150, 160, 180),
        (255, 158, 148),
        (150, 235, 180),
        (255, 225, 150),
        (165, 205, 255),
        (230, 190, 255),
        (150, 232, 240),
        (255, 255, 255),
    ],
)
"""Colours that are readable on the dark paper."""


class Printed(NamedTuple):
    """Text that a program printed, with the seconds after which it did; `at` is None for a screen that stands still."""

    text: str
    at: float | None = None


class Terminal(NamedTuple):
    """A terminal's window: its title, and what it shows, in its order."""

    title: str
    printed: Sequence[Printed]


def draw(alt: str, terminals: Sequence[Terminal], columns: int = 100) -> str:
    """Return the SVG of terminals, one below the other. alt: says in words what is seen."""
    end = max((each.at or 0.0 for terminal in terminals for each in terminal.printed), default=0.0)
    width = round(columns * COLUMN + 2 * EDGE)
    parts, top, rules = [], 0.0, []
    for terminal in terminals:
        rows = [(at, row) for text, at in terminal.printed for row in _rows(text, columns)]
        height = BAR + len(rows) * LINE + EDGE
        parts.append(
            f'<rect x="0.5" y="{top + 0.5:g}" width="{width - 1}" height="{height - 1:g}" rx="8" fill="{PAPER}" stroke="#44516e"/>'
        )
        parts.append(f'<text x="{width / 2:g}" y="{top + 20:g}" text-anchor="middle" fill="#aeb9cf">{escape(terminal.title)}</text>')
        for number, (at, row) in enumerate(rows):
            shown = f' class="t{_moment(at)}"' if at else ""
            parts.append(f"<g{shown}>{_line(row, top + BAR + number * LINE + FONT)}</g>")
        rules += [at for at, _ in rows if at]
        top += height + EDGE / 2
    style = "".join(_appears(moment, end + HOLD) for moment in sorted({_moment(at) for at in rules}))
    motion = f"@media (prefers-reduced-motion: no-preference) {{{style}}}" if style else ""
    size = f'viewBox="0 0 {width} {top:g}" width="{width}"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" aria-label={quoteattr(alt)}>\n'
        f"<title>{escape(alt)}</title>\n"
        f'<style>text {{font: {FONT}px ui-monospace, "DejaVu Sans Mono", Menlo, Consolas, monospace; white-space: pre}} {motion}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _moment(at: float) -> int:
    """Return the time of a line in hundredths of a second: lines that come together appear together."""
    return round(at * 100)


def _appears(moment: int, whole: float) -> str:
    """Return the rule by which a line is hidden until its moment, in each round of the recording."""
    name, share = f"t{moment}", moment / whole
    hidden = f"@keyframes {name} {{0%, {share:.2f}% {{opacity: 0}} {share + 0.01:.2f}%, 100% {{opacity: 1}}}}"
    return f".{name} {{animation: {name} {whole:.2f}s infinite}} {hidden} "


def _rows(text: str, columns: int) -> list[list[Segment]]:
    """Return the rows that a printed text fills, cut at the terminal's width as a terminal cuts them."""
    console = Console(width=columns, force_terminal=True, color_system="truecolor", legacy_windows=False)
    rows = []
    for line in text.rstrip("\n").split("\n"):
        drawn = Text.from_ansi(line)
        drawn.no_wrap, drawn.overflow = True, "ignore"
        pieces = drawn.divide(range(columns, len(drawn), columns)) if len(drawn) > columns else [drawn]
        rows += [[segment for segment in piece.render(console) if segment.text] for piece in pieces]
    return rows


def _line(row: list[Segment], y: float) -> str:
    """Return the SVG of one row: a text for each run of one style, at its column."""
    parts, column = [], 0
    for segment in row:
        text = segment.text.rstrip("\n")
        if text.strip():
            fill, weight = _look(segment.style)
            size = f'textLength="{len(text) * COLUMN:.1f}" lengthAdjust="spacingAndGlyphs"'
            parts.append(
                f'<text x="{EDGE + column * COLUMN:.1f}" y="{y:g}" fill="{fill}"{weight} {size} xml:space="preserve">{escape(text)}</text>'
            )
        column += len(text)
    return "".join(parts)


def _look(style: Style | None) -> tuple[str, str]:
    """Return the colour of a style, and the attribute of bold text."""
    if style is None:
        return INK, ""
    colour = style.color.get_truecolor(THEME).hex if style.color and not style.color.is_default else INK
    return (THEME.ansi_colors[8].hex if style.dim and colour == INK else colour), ' font-weight="bold"' if style.bold else ""
