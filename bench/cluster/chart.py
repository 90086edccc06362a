"""Draws throughput against instances.

python -m bench cluster-throughput --json | python -m bench.cluster.chart > docs/img/cluster.svg
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from typing import Any, Final

from .. import svg

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 360, 80, 24, 40, 48
SERIES: Final = {"stored_per_second": ("stored", "#2f6db3", ""), "fired_per_second": ("delivered", "#b3572f", "6 4")}
"""The name, the colour and the dashes of the line of each series."""
STEPS: Final = (1, 2, 5)


def draw(runs: Sequence[dict[str, Any]]) -> str:
    """Return an SVG document. runs: the details of the rows of `cluster-throughput`, one for each number of instances."""
    most_x = max(run["instances"] for run in runs)
    most_y = _round_up(max(run[name] for run in runs for name in SERIES))
    inner_x, inner_y = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def at(instances: float, rate: float) -> tuple[float, float]:
        return round(LEFT + inner_x * instances / most_x, 1), round(TOP + inner_y * (1 - rate / most_y), 1)

    lines = [
        *svg.opening(WIDTH, HEIGHT, "Events a second against instances"),
        f'<text x="{LEFT}" y="22" fill="#333333">events a second, on virtual time</text>',
    ]
    for part in range(6):
        rate = most_y * part / 5
        x, y = at(0, rate)
        lines.append(f'<line x1="{x}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x - 8}" y="{y + 4}" text-anchor="end" fill="#333333">{rate:,.0f}</text>')
    for run in runs:
        x, y = at(run["instances"], 0)
        lines.append(f'<text x="{x}" y="{y + 20}" text-anchor="middle" fill="#333333">{run["instances"]}</text>')
    lines.append(f'<text x="{LEFT + inner_x / 2}" y="{HEIGHT - 8}" text-anchor="middle" fill="#333333">instances of one core</text>')
    for number, (name, (label, colour, dashes)) in enumerate(SERIES.items()):
        points = [at(run["instances"], run[name]) for run in runs]
        lines += svg.curve(points, colour, dashes)
        lines += svg.key(LEFT + 16, TOP + 16 + 20 * number, label, colour, dashes)
    return svg.document(lines)


def _round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20 ... that is at least `value`."""
    scale = 1
    while True:
        for step in STEPS:
            if step * scale >= value:
                return float(step * scale)
        scale *= 10


def main() -> None:
    figures = json.load(sys.stdin)["figures"]
    sys.stdout.write(draw([row["details"] for row in figures if row["bench"] == "cluster-throughput"]))


if __name__ == "__main__":
    main()
