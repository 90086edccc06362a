"""Writes the figures of `docs/explain/wakes.md` into its marked block, from `results.json`, which `python -m bench flex --page` updates."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from devhost.azurite import ROOT

from ..report import Figure
from .loads import LOADS

RESULTS: Final = Path(__file__).parent / "results.json"
"""The figures that the documentation shows."""
PAGE: Final = ROOT / "docs" / "explain" / "wakes.md"
_BLOCK: Final = re.compile(r"<!-- flex -->.*?<!-- end -->", re.DOTALL)
_SHOWN: Final = ("late", "p50", "p99", "longest", "kilo_gb_seconds", "operations", "instances")


def as_results(found: Sequence[Figure], parameters: Mapping[str, object]) -> dict[str, Any]:
    """Return the figures as they are kept: without the single runs on many platforms."""
    figures = {}
    for each in found:
        row = {"value": each.value and round(each.value, 4), "unit": each.unit, "target": each.wanted, "note": each.note}
        figures[each.name] = row | {name: each.details[name] for name in _SHOWN if name in each.details}
    return {"parameters": dict(parameters), "figures": figures}


def read() -> dict[str, Any]:
    """Return the committed results."""
    found: dict[str, Any] = json.loads(RESULTS.read_text())
    return found


def block(results: Mapping[str, Any]) -> str:
    """Return the block of figures as Markdown."""
    figures = results["figures"]
    lines = ["| load | USD a month | `off` | % late | `off` | stored 25 to 120 s ahead |", "| --- |" + " ---: |" * 5]
    for name, load in LOADS.items():
        # A month of herds has no meaning.
        if name == "herd":
            continue
        auto, off = (figures.get(f"{load.title}, {mode}: a month") for mode in ("auto", "off"))
        if auto is None or off is None:
            continue
        far, near = (figures.get(f"{load.title}, stored {when} ahead: later than 100 ms") for when in ("2 to 15 min", "25 to 120 s"))
        late = far["value"] if far else 100 * auto["late"]
        cells = [f"{auto['value']:.2f}", f"{off['value']:.2f}", _share(late, load.title), _share(100 * off["late"], load.title)]
        lines.append(f"| {load.title} | {' | '.join(cells)} | {_share(near['value'], load.title) if near else ''} |")
    return "\n".join(lines)


def _share(percent: float, title: str) -> str:
    return "" if title == "idle" else f"{percent:.1f}"


def write(results: Mapping[str, Any]) -> None:
    """Keep the results, and write the page's block."""
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    PAGE.write_text(updated(PAGE.read_text(), results))


def updated(text: str, results: Mapping[str, Any]) -> str:
    """Return the page with its block replaced."""
    return _BLOCK.sub(lambda _: f"<!-- flex -->\n\n{block(results)}\n\n<!-- end -->", text)
