"""Draws what grows: `python -m bench growth --json | python -m bench.growth.chart > docs/img/growth.svg`."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Final

from .. import svg
from .figures import KINDS

PANEL, INNER, LEFT, TOP, BOTTOM = 340, 260, 56, 104, 44
"""Width of a kind's panel, its inner width and height, and the margins of its inner part."""
LINES: Final = {
    "CPU of a POST": ("a POST", "#2f6db3", ""),
    "CPU of an event of a herd": ("an event of a herd", "#b3572f", "6 4"),
    "CPU of a list's first page": ("a list", "#3f8f4f", "2 3"),
    "CPU of one tenant's GET /events": ("GET /events", "#c04f8f", "10 2"),
    "CPU of one tenant's GET /stats": ("GET /stats", "#b08a1e", "5 2 1 2"),
    "CPU of a sweep": ("a sweep", "#7a4fa3", "8 3 2 3"),
    "CPU of the hourly job": ("the hourly job", "#777777", "1 4"),
    "memory of the process": ("memory", "#222222", "12 4"),
}
"""The name, the colour and the dashes of each measure's line."""
LEAST: Final = 0.5
"""The lower end of the scale, which is logarithmic."""


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG document. rows: the details of the rows of `growth`."""
    shown = [row for row in rows if row.get("measure") in LINES and row["base"]]
    most = 10.0 ** max(1, math.ceil(math.log10(max((value / row["base"] for row in shown for value in row["values"]), default=10.0))))
    width, height = PANEL * 2, TOP + 2 * (INNER + BOTTOM)
    lines = [
        *svg.opening(width, height, "Growth with the number of open events, tenants, schedules and channels"),
        f'<text x="{LEFT}" y="20" fill="#333333">CPU and memory, as a multiple of the smallest size</text>',
    ]
    for number, (label, colour, dashes) in enumerate(LINES.values()):
        lines += svg.key(LEFT + 220 * (number % 3), 40 + 18 * (number // 3), label, colour, dashes)
    for number, kind in enumerate(KINDS):
        left, top = LEFT + PANEL * (number % 2), TOP + (INNER + BOTTOM) * (number // 2)
        lines += _panel(kind, [row for row in shown if row["kind"] == kind], left, top, most)
    return svg.document(lines)


def _panel(kind: str, rows: Sequence[Mapping[str, Any]], left: int, top: int, most: float) -> list[str]:
    """Return the lines of a kind. most: the upper end of the scale."""
    high = INNER - 40

    def height(factor: float) -> float:
        return round(top + 24 + high * (1 - math.log(max(factor, LEAST) / LEAST) / math.log(most / LEAST)), 1)

    lines = [f'<text x="{left}" y="{top + 12}" fill="#333333">{escape(KINDS[kind])}</text>']
    for power in range(round(math.log10(most)) + 1):
        y = height(10.0**power)
        lines.append(f'<line x1="{left}" y1="{y}" x2="{left + INNER}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="{left - 8}" y="{y + 4}" text-anchor="end" fill="#333333">{10**power:,}</text>')
    sizes = sorted({size for row in rows for size in row["sizes"]})
    places = {size: round(left + 20 + (INNER - 40) * at / max(1, len(sizes) - 1), 1) for at, size in enumerate(sizes)}
    for size, x in places.items():
        lines.append(f'<text x="{x}" y="{top + high + 44}" text-anchor="middle" fill="#333333">{size:,}</text>')
    for row in rows:
        label, colour, dashes = LINES[row["measure"]]
        points = [(places[size], height(value / row["base"])) for size, value in zip(row["sizes"], row["values"], strict=True) if value > 0]
        lines += svg.curve(points, colour, dashes, label)
    return lines


def main() -> None:
    figures = json.load(sys.stdin)["figures"]
    sys.stdout.write(draw([row["details"] for row in figures if row["bench"] == "growth"]))


if __name__ == "__main__":
    main()
