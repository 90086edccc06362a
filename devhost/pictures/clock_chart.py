"""Draws docs/img/checkpoint-clocks.svg: which guarantees of a checkpoint turn hold for which clock. `make picture` runs it.

The dilation of a clock is the true time that passes in a second of the clock: a slow clock has more than 1. The ranges are found by the
production functions of turns, and by the rules of Ringmaster, whose text has the dilations that the chart marks.
"""

from __future__ import annotations

import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable
from pathlib import Path
from typing import Final, NamedTuple

from shared.checkpoints.clock_rate import judge_rate
from shared.checkpoints.rows import ReplicaRow
from shared.checkpoints.timeouts import turn_limit
from shared.checkpoints.timings import MAX_RATE_SPAN

ROOT: Final = Path(__file__).resolve().parents[2]
TARGET: Final = ROOT / "docs" / "img" / "checkpoint-clocks.svg"
DRIFT: Final = 0.3
"""The fleet's default, and Ringmaster's."""
STORE_ERROR: Final = 500
"""Milliseconds by which the store's time may be ahead of true time."""
TURN: Final = 600_000
"""Milliseconds of the turn in the chart: the default of a new fleet."""
OLD_PRIMARY, SECONDARY, NEW_PRIMARY = 1.0, 1.25, 0.8
"""The dilations of Ringmaster's example."""


def holder_stops_in_time(dilation: float, timeout: int = TURN, drift: float = DRIFT) -> bool:
    """Return True if a holder with this clock has stopped before any instance may end its turn, however late it was told of it."""
    return turn_limit(timeout, 0, drift) * dilation < timeout - STORE_ERROR


def gets_turns(dilation: float, drift: float = DRIFT) -> bool:
    """Return True if the app finds no fault in a clock that it has watched for the longest span."""
    first = (0, 0)
    before = ReplicaRow("a", life=1, seq=1, role="secondary", term=1, at=0, mono=0, born=0, first=first, second=first)
    return not judge_rate(before, round(MAX_RATE_SPAN / dilation), MAX_RATE_SPAN, drift)[2]


def ringmaster_stops_in_time(holder: float, primary: float, drift: float = DRIFT) -> bool:
    """Return True if Ringmaster's holder has stopped before this primary gives the lease to another. The timeout does not matter."""
    return (1 - drift) * holder <= primary


def ringmaster_keeps(holder: float, primary: float, drift: float = DRIFT) -> bool:
    """Return True if the heartbeats of this primary keep the holder in the replica set."""
    return primary / holder >= 1 - drift


class Row(NamedTuple):
    """A guarantee, and the dilations for which it holds."""

    text: str
    holds: Callable[[float], bool]


ROWS: Final = (
    Row("Tocsin: only the current turn's checkpoint counts", lambda dilation: True),
    Row("Tocsin: no instance of the app ends a turn early", lambda dilation: True),
    Row("Tocsin: the holder stops before the next turn", holder_stops_in_time),
    Row("Tocsin: the replica gets turns", gets_turns),
    Row("Ringmaster: the holder stops before a primary of 1.0", lambda dilation: ringmaster_stops_in_time(dilation, OLD_PRIMARY)),
    Row("Ringmaster: the holder stops before a primary of 0.8", lambda dilation: ringmaster_stops_in_time(dilation, NEW_PRIMARY)),
)
FIRST, LAST = 50, 200
"""The dilations of the chart, in hundredths."""
LEFT, WIDE, LINE, TOP = 372, 480, 34, 58
STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1b2733 }
.small { font-size: 12px; fill: #51657a; text-anchor: middle }
.ground { fill: #ffffff }
.fails { fill: #e7ecf2 }
.holds { fill: #2f6db5 }
.mark { stroke: #51657a; stroke-dasharray: 4 4 }
@media (prefers-color-scheme: dark) {
text { fill: #e3e9f0 }
.small { fill: #9fb0c2 }
.ground { fill: #0d1117 }
.fails { fill: #1f2935 }
.holds { fill: #5a9be0 }
.mark { stroke: #9fb0c2 }
}
"""


def bounds(row: Row) -> tuple[int, int]:
    """Return the first and the last dilation of the chart, in hundredths, for which the row's guarantee holds."""
    found = [each for each in range(FIRST, LAST + 1) if row.holds(each / 100)]
    return found[0], found[-1]


def _x(hundredths: float) -> float:
    return LEFT + (hundredths - FIRST) * WIDE / (LAST - FIRST)


def draw() -> str:
    """Return the SVG."""
    high = TOP + LINE * len(ROWS) + 44
    given = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {LEFT + WIDE + 24} {high}", "role": "img"}
    svg = ET.Element("svg", given | {"width": str(LEFT + WIDE + 24), "height": str(high)})
    ET.SubElement(svg, "title").text = "Which guarantees hold for which dilation of a clock"
    ET.SubElement(svg, "style").text = STYLE
    ET.SubElement(svg, "rect", {"class": "ground", "width": str(LEFT + WIDE + 24), "height": str(high)})
    for number, row in enumerate(ROWS):
        y = TOP + LINE * number
        first, last = bounds(row)
        box = {"y": f"{y:g}", "height": str(LINE - 12), "rx": "4"}
        ET.SubElement(svg, "text", {"x": "20", "y": f"{y + 16:g}"}).text = row.text
        ET.SubElement(svg, "rect", {"class": "fails", "x": f"{LEFT:g}", "width": f"{WIDE:g}"} | box)
        ET.SubElement(svg, "rect", {"class": "holds", "x": f"{_x(first):g}", "width": f"{_x(last) - _x(first):g}"} | box)
    foot = TOP + LINE * len(ROWS)
    for name, dilation in (("new primary", NEW_PRIMARY), ("old primary", OLD_PRIMARY), ("secondary", SECONDARY)):
        x = f"{_x(dilation * 100):g}"
        ET.SubElement(svg, "path", {"class": "mark", "d": f"M {x} {TOP - 14} V {foot}"})
        raised = 38 if name == "old primary" else 20
        ET.SubElement(svg, "text", {"class": "small", "x": x, "y": f"{TOP - raised:g}"}).text = f"{name} {dilation:g}"
    for each in range(FIRST, LAST + 1, 25):
        ET.SubElement(svg, "text", {"class": "small", "x": f"{_x(each):g}", "y": f"{foot + 14:g}"}).text = f"{each / 100:g}"
    ET.SubElement(
        svg, "text", {"class": "small", "x": f"{LEFT + WIDE / 2:g}", "y": f"{foot + 34:g}"}
    ).text = "dilation: true seconds in a second of the clock; drift 0.3, a turn of 10 minutes"
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def main() -> int:
    """Draw it."""
    TARGET.write_text(draw())
    print(f"{TARGET.relative_to(ROOT)} is drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
