"""Draws lateness under good and bad conditions, docs/img/lateness.svg, from the measured figures in `lateness.json`.

python -m bench.lateness_chart                                                  draws the chart again
python -m bench conditions throttling --quick --json | python -m bench.lateness_chart --update     draws it with new figures
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from . import svg

FIGURES: Final = Path(__file__).parent / "lateness.json"
TARGET: Final = Path(__file__).parents[1] / "docs" / "img" / "lateness.svg"
MARKS: Final = {"p50": "#2f6db3", "p99": "#b3572f", "max": "#777777"}
"""The figures of a condition, in ms, and their colours."""
LEFT, RIGHT, TOP, ROW, INNER = 290, 32, 48, 34, 400
LEAST, MOST = 1.0, 10_000.0
"""The ends of the scale in ms, which is logarithmic."""


def place(ms: float) -> float:
    """Return the place of a lateness, in pixels from the left."""
    share = math.log(min(max(ms, LEAST), MOST) / LEAST) / math.log(MOST / LEAST)
    return round(LEFT + INNER * share, 1)


def draw(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return an SVG document with a line for each condition."""
    width, bottom = LEFT + INNER + RIGHT, TOP + ROW * len(rows)
    lines = svg.opening(width, bottom + 34, "Lateness under each condition")
    for number, (name, colour) in enumerate(MARKS.items()):
        x = LEFT + 90 * number
        lines.append(f'<circle cx="{x + 6}" cy="20" r="5" fill="{colour}"/><text x="{x + 18}" y="24" fill="#333333">{name}</text>')
    for power in range(5):
        x, text = place(10**power), f"{10**power:,} ms" if power < 3 else f"{10 ** (power - 3)} s"
        lines.append(f'<line x1="{x}" y1="{TOP - 8}" x2="{x}" y2="{bottom}" stroke="#dddddd"/>')
        lines.append(f'<text x="{x}" y="{bottom + 20}" text-anchor="middle" fill="#333333">{text}</text>')
    for number, row in enumerate(rows):
        y = TOP + ROW * number + ROW // 2
        lines.append(f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end" fill="#333333">{escape(row["condition"])}</text>')
        lines.append(f'<line x1="{place(row["p50"])}" y1="{y}" x2="{place(row["max"])}" y2="{y}" stroke="#999999" stroke-width="2"/>')
        lines += [
            f'<circle cx="{place(row[name])}" cy="{y}" r="5" fill="{MARKS[name]}"><title>{name} {row[name]:,} ms</title></circle>'
            for name in reversed(MARKS)
        ]
    return svg.document(lines)


def merged(former: Sequence[dict[str, Any]], report: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows with the figures of a report of `bench --json` instead of their own."""
    fresh = {
        each["name"].partition(", ")[2]: {name: round(each["details"][name], 1) for name in MARKS}
        for each in report["figures"]
        if each["name"].startswith("lateness p99, ")
    }
    return [{**row, **fresh.get(row["condition"], {})} for row in former]


def main() -> None:
    rows = json.loads(FIGURES.read_text())
    if "--update" in sys.argv:
        rows = merged(rows, json.load(sys.stdin))
        FIGURES.write_text("[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n]\n")
    TARGET.write_text(draw(rows))


if __name__ == "__main__":
    main()
