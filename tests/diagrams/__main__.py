"""Draws the scenes into docs/img: `python -m tests.diagrams`."""

from __future__ import annotations

from . import SCENES, target
from .drawing import draw

for name, play in SCENES.items():
    target(name).write_text(draw(play()))
    print(target(name))
