"""Operators can look up what a log line means: each action that the code logs is in the table of docs/operations.md.

Those of turns may be in docs/checkpoints.md; those of leases and fleets are told on a page of their own, docs/leases.md, and those of a
node's agent on docs/maintenance.md (a test of its own reads that).
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]


def constants(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be; none for what is only known when it runs."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.IfExp():
            yield from constants(node.body)
            yield from constants(node.orelse)


def actions(source: str) -> Iterator[str]:
    """What log calls are given as `action`: in their `extra`, in a variable of that name, or in a variable `action` that goes into it."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.keyword("extra", value) | ast.Assign([ast.Name("extra")], value):
                for found in ast.walk(value):
                    if isinstance(found, ast.Dict):
                        for key, each in zip(found.keys, found.values, strict=True):
                            if isinstance(key, ast.Constant) and key.value == "action":
                                yield from constants(each)
            case ast.Assign([ast.Name("action") | ast.Subscript(ast.Name("extra"), ast.Constant("action"))], value):
                yield from constants(value)


def test_every_action_that_is_logged_is_explained() -> None:
    logged = {action for path in (ROOT / "shared").rglob("*.py") for action in actions(path.read_text())}
    assert {"shard_stuck", "web.internal-error", "failback", "kafka_waiting"} <= logged
    table = (ROOT / "docs" / "operations.md").read_text().partition("## Log actions")[2].partition("\n## ")[0]
    table += (ROOT / "docs" / "checkpoints.md").read_text().partition("### Log actions")[2].partition("\n## ")[0]
    explained = {name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`([^`]+)`", row)}
    mine = {action for action in logged ^ explained if not action.startswith(("lease_", "fleet_", "agent_"))}
    assert (sorted(mine & logged), sorted(mine & explained)) == ([], []), "logged and not explained, explained and not logged"
