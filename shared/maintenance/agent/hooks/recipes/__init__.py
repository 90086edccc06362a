"""Ready-made hooks: `recipe.name` in the agent's file names a recipe; the other keys of that table are the recipe's settings.

    cassandra   takes a Cassandra node out of its ring and puts it back, by nodetool
    systemd     stops units and starts them again

A recipe runs as Python hooks, each in a process of its own. It notes in the agent's folder what it switched off, and later switches on only
that. What an operator had switched off stays off.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from ...model import HookKind
from ...sections import Section
from ...timings import DEFAULT_DEADLINE
from ..runner import Hook

_ROOT: Final = str(Path(__file__).parents[5])
"""The folder of this package, where a hook's process finds it."""


def _cassandra(section: Section) -> dict[HookKind, Hook]:
    options = {
        "nodetool": section.text("nodetool", "nodetool"),
        "arguments": section.texts("arguments"),
        "finish": section.text("finish", "flush", among=("nothing", "flush", "drain")),
        "service": section.text("service", "cassandra"),
        "thrift": section.flag("thrift", False),
    }
    return _build("cassandra", section, options, str(options["nodetool"]), ("prepare", "emergency", "restore", "verify"))


def _systemd(section: Section) -> dict[HookKind, Hook]:
    units = section.texts("units")
    if not section.has("units"):
        section.add_fault("units", 'left out; write the units to stop, like ["cassandra.service"]')
    program = section.text("systemctl", "systemctl")
    return _build("systemd", section, {"units": units, "systemctl": program}, program, ("prepare", "restore", "verify"))


def _build(name: str, section: Section, options: Mapping[str, Any], program: str, kinds: tuple[HookKind, ...]) -> dict[HookKind, Hook]:
    deadline = section.number("deadline_seconds", DEFAULT_DEADLINE, 0.1, 86_400)
    environment = {"TOCSIN_RECIPE": json.dumps(options)}
    return {
        kind: Hook(call=f"{__name__}.{name}:{kind}", path=_ROOT, deadline=deadline, environment=environment, program=program)
        for kind in kinds
    }


RECIPES: Final[Mapping[str, Callable[[Section], dict[HookKind, Hook]]]] = {"cassandra": _cassandra, "systemd": _systemd}
