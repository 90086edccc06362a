"""The chart of lateness shows the committed figures, and fresh ones replace those of the same condition."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET

from bench.events.conditions import _CONDITIONS
from bench.lateness_chart import FIGURES, TARGET, draw, merged, place

ROWS = json.loads(FIGURES.read_text())


def test_the_chart_is_drawn_from_the_figures() -> None:
    assert draw(ROWS) == TARGET.read_text(), "run `python -m bench.lateness_chart`, and look at the picture"
    assert {row["condition"] for row in ROWS} == set(_CONDITIONS)


def test_each_figure_has_a_mark_at_its_place() -> None:
    root = ET.fromstring(draw([{"condition": "a <b>", "p50": 1, "p99": 100, "max": 10_000}]))
    marks = [each.get("cx") for each in root.iter("{http://www.w3.org/2000/svg}circle") if len(each)]
    assert marks == [str(place(ms)) for ms in (10_000, 100, 1)]
    assert place(100) - place(1) == place(10_000) - place(100)


def test_fresh_figures_replace_those_of_the_same_condition() -> None:
    former = [{"condition": "one", "p50": 1, "p99": 2, "max": 3}, {"condition": "two", "p50": 1, "p99": 2, "max": 3}]
    details = {"p50": 4.04, "p99": 5.0, "max": 6.0, "early": 0}
    report = {"figures": [{"name": "lateness p99, two", "details": details}, {"name": "else", "details": {}}]}
    assert merged(former, report) == [former[0], {"condition": "two", "p50": 4.0, "p99": 5.0, "max": 6.0}]
