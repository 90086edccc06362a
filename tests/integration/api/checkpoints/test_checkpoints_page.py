"""docs/examples/checkpoints/walk-through.sh gives its answers, and the docstring of `shared.checkpoints` names existing code."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import shared.checkpoints
from tests.paths import ROOT
from tests.unit.scheduler.harness import World

SCRIPT = (ROOT / "docs" / "examples" / "checkpoints" / "walk-through.sh").read_text()
FLEET = "/api/v1/fleets/store"


async def called(world: World, line: str) -> Any:
    """The answer to a line that calls the app."""
    tokens = shlex.split(line.replace("$(mono)", str(world.clock.now())))
    if tokens[0] == "post":
        answer = await world.demo.call("POST", f"{FLEET}/{tokens[1]}", json.loads(tokens[2]))
    else:
        assert tokens[tokens.index("-X") :][:3] == ["-X", "PUT", "$APP"]
        answer = await world.demo.call("PUT", FLEET, json.loads(tokens[tokens.index("-d") + 1]))
    return answer.json()


async def test_the_walk_through_gives_the_answers_that_it_shows(world: World) -> None:
    answers: list[Any] = []
    shown: list[Any] = []
    for line in SCRIPT.splitlines():
        if line.startswith("post "):
            answers.append(await called(world, line))
        elif line.startswith("curl "):
            await called(world, line)
        elif line.startswith("sleep "):
            await world.clock.advance(int(line.removeprefix("sleep ")))
        elif line.startswith("#> "):
            shown.append(json.loads(line.removeprefix("#> ")))
    assert answers == shown and len(shown) == 10


def test_every_rule_of_ringmaster_is_in_the_function_that_the_docstring_names() -> None:
    named = re.findall(r"([\w/]+\.py): (\w+)", shared.checkpoints.__doc__ or "")
    assert len(named) > 25
    for file, name in named:
        tree = ast.parse((ROOT / "shared" / "checkpoints" / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{file} has no {name}"
