"""Draws docs/img/architecture.svg from docs/img/architecture.toml: `make picture`. Boxes in a grid, arrows between their sides."""

from __future__ import annotations

import sys
import tomllib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
SOURCE: Final = ROOT / "docs" / "img" / "architecture.toml"
TARGET: Final = SOURCE.with_suffix(".svg")
CELL: Final = (84, 62)
"""Pixels of a cell of the grid."""
MARGIN: Final = 24
STYLE: Final = """
text { font: 13px system-ui, sans-serif; fill: #1b2733; text-anchor: middle }
.first { font-weight: 600; font-size: 14px }
.area { fill: #eef3f8; stroke: #b6c5d6; stroke-dasharray: 5 4 }
.caption { font-size: 12px; fill: #51657a; text-anchor: start }
.box { fill: #ffffff; stroke: #2f6db5; stroke-width: 1.5 }
.arrow { stroke: #51657a; stroke-width: 1.5; fill: none }
.head { fill: #51657a }
.ground { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e3e9f0 }
.area { fill: #161d26; stroke: #3a4a5c }
.caption { fill: #9fb0c2 }
.box { fill: #1f2935; stroke: #5a9be0 }
.arrow { stroke: #9fb0c2 }
.head { fill: #9fb0c2 }
.ground { fill: #0d1117 }
}
"""


def _place(at: list[float]) -> tuple[float, float, float, float]:
    x, y, wide, high = at
    return MARGIN + x * CELL[0], MARGIN + y * CELL[1], wide * CELL[0], high * CELL[1]


def _side(boxes: dict[str, list[float]], end: str) -> tuple[float, float]:
    name, _, side = end.partition(".")
    x, y, wide, high = _place(boxes[name])
    return {
        "left": (x, y + high / 2),
        "right": (x + wide, y + high / 2),
        "top": (x + wide / 2, y),
        "bottom": (x + wide / 2, y + high),
    }[side]


def _path(boxes: dict[str, list[float]], arrow: dict[str, Any]) -> str:
    (x1, y1), (x2, y2) = _side(boxes, arrow["from"]), _side(boxes, arrow["to"])
    if "under" in arrow:
        low = max(y1, y2) + arrow["under"] * CELL[1]
        return f"M {x1:g} {y1:g} V {low:g} H {x2:g} V {y2:g}"
    if arrow["from"].endswith((".left", ".right")):
        middle = x1 + (x2 - x1) * arrow.get("bend", 0.5)
        return f"M {x1:g} {y1:g} H {middle:g} V {y2:g} H {x2:g}"
    middle = (y1 + y2) / 2
    return f"M {x1:g} {y1:g} V {middle:g} H {x2:g} V {y2:g}"


def draw(source: str) -> str:
    """The SVG of a source. KeyError for an arrow to a box that is not there."""
    picture = tomllib.loads(source)
    wide, high = (round(2 * MARGIN + picture[name] * size) for name, size in zip(("columns", "rows"), CELL, strict=True))
    given = {"xmlns": "http://www.w3.org/2000/svg", "viewBox": f"0 0 {wide} {high}", "role": "img"}
    svg = ET.Element("svg", given | {"width": str(wide), "height": str(high)})
    ET.SubElement(svg, "title").text = picture["title"]
    ET.SubElement(svg, "style").text = STYLE
    head = {"id": "head", "viewBox": "0 0 8 8", "refX": "7", "refY": "4", "markerWidth": "8", "markerHeight": "8"}
    marker = ET.SubElement(ET.SubElement(svg, "defs"), "marker", head | {"orient": "auto-start-reverse"})
    ET.SubElement(marker, "path", {"class": "head", "d": "M 0 0 L 8 4 L 0 8 z"})
    ET.SubElement(svg, "rect", {"class": "ground", "width": str(wide), "height": str(high)})
    for area in picture["areas"]:
        x, y, w, h = _place(area["at"])
        ET.SubElement(svg, "rect", {"class": "area", "x": f"{x:g}", "y": f"{y:g}", "width": f"{w:g}", "height": f"{h:g}", "rx": "8"})
        ET.SubElement(svg, "text", {"class": "caption", "x": f"{x + 10:g}", "y": f"{y + 20:g}"}).text = area["text"]
    boxes = {box["name"]: box["at"] for box in picture["boxes"]}
    for arrow in picture["arrows"]:
        ends = {"marker-end": "url(#head)"} | ({"marker-start": "url(#head)"} if arrow.get("both") else {})
        ET.SubElement(svg, "path", {"class": "arrow", "d": _path(boxes, arrow)} | ends)
    for box in picture["boxes"]:
        x, y, w, h = _place(box["at"])
        ET.SubElement(svg, "rect", {"class": "box", "x": f"{x:g}", "y": f"{y:g}", "width": f"{w:g}", "height": f"{h:g}", "rx": "6"})
        top = y + h / 2 - 9 * (len(box["text"]) - 1) + 5
        for number, line in enumerate(box["text"]):
            kind = {"class": "first"} if number == 0 else {}
            ET.SubElement(svg, "text", {"x": f"{x + w / 2:g}", "y": f"{top + 18 * number:g}"} | kind).text = line
    ET.indent(svg)
    return ET.tostring(svg, encoding="unicode") + "\n"


def main() -> int:
    """Draw it."""
    TARGET.write_text(draw(SOURCE.read_text()))
    print(f"{TARGET.relative_to(ROOT)} is drawn")
    return 0


if __name__ == "__main__":
    sys.exit(main())
