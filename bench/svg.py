"""The parts that the charts of the documentation share."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def opening(width: int, height: int, title: str) -> list[str]:
    """Return the first lines of a document: its size, its title, and a white ground."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]


def document(lines: Iterable[str]) -> str:
    """Return the whole document. lines: those of `opening`, and all that follow."""
    return "\n".join([*lines, "</svg>", ""])


def key(x: int, y: int, label: str, colour: str, dashes: str) -> list[str]:
    """Return the lines that say what a curve shows."""
    return [
        f'<line x1="{x}" y1="{y}" x2="{x + 28}" y2="{y}" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>',
        f'<text x="{x + 36}" y="{y + 4}" fill="#333333">{escape(label)}</text>',
    ]


def curve(points: Sequence[tuple[float, float]], colour: str, dashes: str, label: str = "") -> list[str]:
    """Return the lines of a curve with a dot at each point. label: shown by a dot under the pointer."""
    path = " ".join(f"{x},{y}" for x, y in points)
    ends = f"><title>{escape(label)}</title></circle>" if label else "/>"
    return [
        f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>',
        *(f'<circle cx="{x}" cy="{y}" r="3.5" fill="{colour}"{ends}' for x, y in points),
    ]
