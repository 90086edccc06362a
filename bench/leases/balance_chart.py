"""Draws docs/img/balance.svg, the load of the busiest server over time, from what `python -m bench leases-balance --json` prints."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

WIDTH, HEIGHT, PAD, TOP = 320, 200, 44, 34
COLOURS: Final = {"Tocsin": ("#2f6db3", ""), "KCL 3": ("#b3572f", "5 3")}
LOW: Final = 0.95
TITLES: Final = {"uniform": "uniform", "zipf": "Zipf", "hot": "one hot partition", "wave": "daily wave"}


def draw(runs: Sequence[dict[str, Any]]) -> str:
    """Return an SVG document with one chart for each skew. runs: skew, who, and series of seconds and ratios."""
    skews = list(dict.fromkeys(run["skew"] for run in runs))
    size = f"{2 * WIDTH} {HEIGHT * -(-len(skews) // 2) + 28}"
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="sans-serif" font-size="11" role="img">']
    lines += ["<title>Load of the busiest server over the bound</title>", '<rect width="100%" height="100%" fill="#ffffff"/>']
    for at, (who, (colour, dashes)) in enumerate(COLOURS.items()):
        x = PAD + 90 * at
        lines.append(f'<line x1="{x}" y1="14" x2="{x + 24}" y2="14" stroke="{colour}" stroke-width="2" stroke-dasharray="{dashes}"/>')
        lines.append(f'<text x="{x + 30}" y="18" fill="#333333">{who}</text>')
    lines.append(f'<text x="{PAD + 190}" y="18" fill="#333333">busiest server / bound, minutes; dotted: 1.1</text>')
    for at, skew in enumerate(skews):
        lines += _panel([run for run in runs if run["skew"] == skew], TITLES.get(skew, skew), WIDTH * (at % 2), 24 + HEIGHT * (at // 2))
    return "\n".join([*lines, "</svg>", ""])


def _panel(runs: Sequence[dict[str, Any]], title: str, left: float, top: float) -> list[str]:
    longest = max(run["series"][-1][0] for run in runs)
    high = max(1.2, *(ratio for run in runs for _, ratio in run["series"])) + 0.05
    wide, tall = WIDTH - PAD - 16, HEIGHT - TOP - 26

    def point(seconds: float, ratio: float) -> tuple[float, float]:
        return round(left + PAD + wide * seconds / longest, 1), round(top + TOP + tall * (high - ratio) / (high - LOW), 1)

    lines = [f'<text x="{left + PAD}" y="{top + 22}" fill="#333333" font-weight="bold">{title}</text>']
    for ratio in (1.0, 1.1, *(1 + step / 2 for step in range(1, 20) if 1 + step / 2 < high)):
        (x, y), dots = point(0, ratio), "2 3" if ratio == 1.1 else ""
        stroke = "#888888" if dots else "#dddddd"
        lines.append(f'<line x1="{x}" y1="{y}" x2="{x + wide}" y2="{y}" stroke="{stroke}" stroke-dasharray="{dots}"/>')
        if not dots:
            lines.append(f'<text x="{x - 6}" y="{y + 4}" text-anchor="end" fill="#333333">{ratio:g}</text>')
    for part in range(4):
        x, y = point(longest * part / 3, LOW)
        lines.append(f'<text x="{x}" y="{y + 16}" text-anchor="middle" fill="#333333">{longest * part / 180:.0f}</text>')
    for run in runs:
        colour, dashes = COLOURS[run["who"]]
        path = " ".join(f"{x},{y}" for x, y in (point(*each) for each in run["series"]))
        lines.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6" stroke-dasharray="{dashes}"/>')
    return lines


def main() -> None:
    figures = json.load(sys.stdin)["figures"]
    sys.stdout.write(draw([row["details"] for row in figures if row.get("details", {}).get("series")]))


if __name__ == "__main__":
    main()
