"""Draws two runs as an SVG document: a panel for each series, the unchanged run dashed. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Final

WIDTH, PANEL, LEFT, RIGHT, TOP, BELOW = 720, 200, 72, 32, 44, 34
"""Pixels: the document's width, the height of a panel with its title, and the margins."""
GRID: Final = 4
RUNS: Final = (("unchanged", "#5a6b7b", "6 4"), ("changed", "#b3572f", ""))
"""Name, colour and dashes of each run."""
STEPS: Final = (1, 2, 5)
TICKS: Final = (5, 10, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400)
"""Seconds between two times below a panel."""
MAX_TICKS: Final = 8

type Series = Mapping[str, Sequence[Sequence[float]]]


def draw(unchanged: Series, changed: Series, title: str) -> str:
    """Return the document. Each series: points of seconds and values, by the panel's title."""
    panels = list(dict.fromkeys([*unchanged, *changed]))
    height = TOP + PANEL * len(panels)
    most_x = max((point[0] for each in (unchanged, changed) for points in each.values() for point in points), default=0.0) or 1.0
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="12" role="img">',
        f"<title>{escape(title)}</title>",
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" fill="#333333" font-size="13">{escape(title)}</text>',
    ]
    for number, (name, colour, dashes) in enumerate(RUNS):
        x = LEFT + 110 * number
        lines.append(f'<line x1="{x}" y1="32" x2="{x + 26}" y2="32" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
        lines.append(f'<text x="{x + 32}" y="36" fill="#333333">{name}</text>')
    for number, panel in enumerate(panels):
        lines += _panel(panel, TOP + PANEL * number, most_x, (unchanged.get(panel, ()), changed.get(panel, ())))
    return "\n".join([*lines, "</svg>", ""])


def _panel(title: str, top: float, most_x: float, runs: Sequence[Sequence[Sequence[float]]]) -> list[str]:
    most_y = _round_up(max((value for points in runs for _, value in points), default=0.0))
    inner_x, inner_y, begins = WIDTH - LEFT - RIGHT, PANEL - 24 - BELOW, top + 24

    def at(seconds: float, value: float) -> tuple[float, float]:
        return round(LEFT + inner_x * seconds / most_x, 1), round(begins + inner_y * (1 - value / most_y), 1)

    lines = [f'<text x="{LEFT}" y="{top + 16}" fill="#333333">{escape(title)}</text>']
    for part in range(GRID + 1):
        value = most_y * part / GRID
        x, y = at(0, value)
        lines.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end" fill="#333333">{value:,.6g}</text>')
    tick = next((each for each in TICKS if each * MAX_TICKS >= most_x), TICKS[-1])
    for number in range(int(most_x / tick) + 1):
        x, y = at(number * tick, 0)
        lines.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle" fill="#333333">{_span(number * tick)}</text>')
    for (_, colour, dashes), points in zip(RUNS, runs, strict=True):
        if points:
            path = " ".join(f"{x},{y}" for x, y in (at(*point) for point in points))
            style = f'stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dashes}"'
            lines.append(f'<polyline points="{path}" fill="none" {style}/>')
    return lines


def _span(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"+{hours}:{minutes:02}:{rest:02}" if hours else f"+{minutes}:{rest:02}"


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 ... that is at least `value`; 1 for 0. Below 1, the next of 0.5, 0.2, 0.1 ..."""
    if value <= 0:
        return 1.0
    scale = 1.0
    while value <= scale / 10:
        scale /= 10
    while True:
        for step in (step * scale / 10 for step in STEPS):
            if step >= value:
                return step
        scale *= 10
