"""Sequence diagrams of the explanations: `python -m tests.diagrams` runs the production protocols and draws what they do.

Each module plays one scene on storage in memory and virtual time, records its effects, and returns a `Scene`:

    delivery      an event from its request to its endpoint
    hand_off      a partition from one server to another
    turn          a checkpoint turn
    maintenance   one node after the other is prepared and approved
    drawing       draws a scene as SVG

`tests/unit/test_diagrams.py` compares the drawn scenes with docs/img, so a picture cannot differ from the code.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.paths import ROOT

from . import delivery, hand_off, maintenance, turn
from .drawing import Scene

SCENES: Final[dict[str, Callable[[], Scene]]] = {
    "delivery": delivery.play,
    "lease-hand-off": hand_off.play,
    "turn": turn.play,
    "maintenance": maintenance.play,
}


def target(name: str) -> Path:
    """Return the file of a picture."""
    return ROOT / "docs" / "img" / f"{name}.svg"
