"""The walk-through of docs/reference/checkpoints.md gives its answers, and the docstring of `shared.checkpoints` names existing code."""

from __future__ import annotations

import ast
import json
import re
import shlex
from typing import Any

import shared.checkpoints
from tests.paths import ROOT
from tests.unit.scheduler.harness import World

REFERENCE = (ROOT / "docs" / "reference" / "checkpoints.md").read_text()
FLEET = "/api/v1/fleets/store"


def blocks() -> list[tuple[str, str]]:
    """The walk-through's blocks: kind and text."""
    text = REFERENCE.partition("## A walk-through")[2].partition("\n## ")[0]
    found: list[tuple[str, str]] = re.findall(r"```(sh|json)\n(.*?)```", text, re.DOTALL)
    return found


async def called(world: World, line: str) -> Any:
    """The answer to a line that calls the app."""
    tokens = shlex.split(line.replace("$(mono)", str(world.clock.now())))
    if tokens[0] == "post":
        answer = await world.demo.call("POST", f"{FLEET}/{tokens[1]}", json.loads(tokens[2]))
    else:
        assert tokens[tokens.index("-X") :][:3] == ["-X", "PUT", "$APP"]
        answer = await world.demo.call("PUT", FLEET, json.loads(tokens[tokens.index("-d") + 1]))
    return answer.json()


async def test_the_walk_through_goes_as_the_page_says(world: World) -> None:
    answers: list[Any] = []
    shown = 0
    for kind, block in blocks():
        if kind == "sh":
            answers = [await called(world, line) for line in block.splitlines() if line.startswith(("curl ", "post "))]
            await world.clock.advance(20)
            continue
        assert answers == [json.loads(line) for line in block.splitlines()]
        shown += len(answers)
    assert shown == 10


def test_every_rule_of_ringmaster_is_in_the_function_that_the_docstring_names() -> None:
    named = re.findall(r"([\w/]+\.py): (\w+)", shared.checkpoints.__doc__ or "")
    assert len(named) > 25
    for file, name in named:
        tree = ast.parse((ROOT / "shared" / "checkpoints" / file).read_text())
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert name in defined, f"{file} has no {name}"
