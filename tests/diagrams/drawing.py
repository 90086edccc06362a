"""Draws a scene as SVG: a lane for each actor, an arrow for each effect, time from top to bottom."""

from __future__ import annotations

import textwrap
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

LANE: Final = 184
"""Pixels between two lanes."""
LEFT: Final = 64
"""Pixels for the times."""
TOP: Final = 66
LINE: Final = 16
"""Pixels of a line of text."""
LETTER, CAPITAL = 6.4, 8.6
"""Pixels of a letter, on average; texts are broken by the first."""
STYLE: Final = """
text { font: 12px system-ui, sans-serif; fill: #1b2733; text-anchor: middle }
.actor { font-weight: 600; font-size: 13px }
.what { font-size: 11px; fill: #51657a }
.time { fill: #51657a; text-anchor: end }
.box { fill: #eef3f8; stroke: #2f6db5; stroke-width: 1.5 }
.lane { stroke: #b6c5d6; stroke-dasharray: 3 4 }
.arrow { stroke: #2f6db5; stroke-width: 1.5; fill: none }
.head { fill: #2f6db5 }
.refused { stroke: #b3261e; stroke-dasharray: 6 4 }
.refused-head { fill: #b3261e }
.message { stroke-dasharray: 2 3 }
.note { fill: #fff6dd; stroke: #b58a1b }
.ground { fill: #ffffff }
.behind { fill: #ffffff }
@media (prefers-color-scheme: dark) {
text { fill: #e3e9f0 }
.what, .time { fill: #9fb0c2 }
.box { fill: #1f2935; stroke: #5a9be0 }
.lane { stroke: #3a4a5c }
.arrow { stroke: #5a9be0 }
.head { fill: #5a9be0 }
.refused { stroke: #f2766b }
.refused-head { fill: #f2766b }
.note { fill: #33290f; stroke: #b58a1b }
.ground, .behind { fill: #0d1117 }
}
"""

type Kind = Literal["write", "refused", "message", "call", "note"]


class Actor(NamedTuple):
    """A lane. what: a line about it."""

    name: str
    what: str


class Step(NamedTuple):
    """An effect. at: seconds since the scene began. A `note` has one actor, twice."""

    at: float
    source: str
    target: str
    text: str
    kind: Kind = "write"


class Scene(NamedTuple):
    """A picture's title, lanes and effects, in order of time."""

    title: str
    actors: Sequence[Actor]
    steps: Sequence[Step]


def wrapped(text: str, pixels: float) -> list[str]:
    """Break a text into lines of at most this width. A line break of the text stays."""
    return [line for part in text.split("\n") for line in textwrap.wrap(part, max(12, int(pixels / LETTER)), break_long_words=False)]


def _width(lines: Sequence[str]) -> float:
    return max(sum(CAPITAL if letter.isupper() else LETTER for letter in line) for line in lines)


def _text(parent: ET.Element, x: float, y: float, text: str, kind: str = "") -> None:
    found = ET.SubElement(parent, "text", {"x": f"{x:g}", "y": f"{y:g}"})
    if kind:
        found.set("class", kind)
    found.text = text


def _arrow(root: ET.Element, step: Step, x1: float, x2: float, y: float) -> float:
    """Draw an arrow with its text above, and return the y below it."""
    lines = wrapped(step.text, abs(x2 - x1) - 24)
    bottom = y + LINE * len(lines) + 4
    way = 1 if x2 > x1 else -1
    widest = _width(lines)
    if abs(x2 - x1) > LANE:
        behind = {"x": (x1 + x2 - widest) / 2, "y": y - 1, "width": widest, "height": bottom - y - 4}
        ET.SubElement(root, "rect", {"class": "behind"} | {name: f"{value:g}" for name, value in behind.items()})
    for number, line in enumerate(lines, 1):
        _text(root, (x1 + x2) / 2, y + LINE * number - 5, line)
    refused = step.kind == "refused"
    kind = {"refused": "arrow refused", "message": "arrow message"}.get(step.kind, "arrow")
    ET.SubElement(root, "path", {"class": kind, "d": f"M {x1:g} {bottom:g} H {x2 - 8 * way:g}"})
    head = f"M {x2:g} {bottom:g} l {-9 * way} -4 v 8 Z"
    ET.SubElement(root, "path", {"class": "refused-head" if refused else "head", "d": head})
    return bottom + 10


def _note(root: ET.Element, step: Step, x: float, y: float) -> float:
    """Draw a note on a lane, and return the y below it."""
    lines = wrapped(step.text, LANE - 30)
    wide, high = _width(lines) + 18, LINE * len(lines) + 8
    box = {"class": "note", "x": f"{x - wide / 2:g}", "y": f"{y:g}", "width": f"{wide:g}", "height": f"{high:g}", "rx": "4"}
    ET.SubElement(root, "rect", box)
    for number, line in enumerate(lines, 1):
        _text(root, x, y + LINE * number, line)
    return y + high + 8


def draw(scene: Scene) -> str:
    """Return a scene's SVG."""
    lanes = {actor.name: LEFT + LANE * (number + 0.5) for number, actor in enumerate(scene.actors)}
    root = ET.Element("svg", {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-labelledby": "title"})
    ET.SubElement(root, "title", {"id": "title"}).text = scene.title
    ET.SubElement(root, "style").text = STYLE
    ground = ET.SubElement(root, "rect", {"class": "ground"})
    lines = ET.SubElement(root, "g")
    y, shown = float(TOP), ""
    for step in scene.steps:
        x1, x2 = lanes[step.source], lanes[step.target]
        if (now := f"{round(step.at, 1):g} s") != shown:
            shown = now
            _text(root, LEFT - 4, y + LINE - 4, now, "time")
        y = _note(root, step, x1, y) if step.kind == "note" else _arrow(root, step, x1, x2, y)
    wide, high = LEFT + LANE * len(lanes) + 8, y + 10
    for actor in scene.actors:
        x = lanes[actor.name]
        ET.SubElement(lines, "path", {"class": "lane", "d": f"M {x:g} 54 V {high - 8:g}"})
        box = {"class": "box", "x": f"{x - LANE / 2 + 6:g}", "y": "10", "width": f"{LANE - 12}", "height": "44", "rx": "6"}
        ET.SubElement(root, "rect", box)
        _text(root, x, 29, actor.name, "actor")
        _text(root, x, 46, actor.what, "what")
    root.set("viewBox", f"0 0 {wide:g} {high:g}")
    ground.set("width", f"{wide:g}")
    ground.set("height", f"{high:g}")
    ET.indent(root, " ")
    return ET.tostring(root, encoding="unicode") + "\n"
