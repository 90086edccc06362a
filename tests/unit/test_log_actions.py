"""docs/reference/log-actions.md is generated from all lines that the code logs. Every log line has an action."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from devhost.pages import log_actions, log_lines
from shared.fleets.watch.alarms import ALARMS
from tests.paths import ROOT

LEVELS = ("debug", "info", "warning", "error", "exception", "critical", "log")


def constants(node: ast.expr) -> Iterator[str]:
    """The texts that an expression may be; none for what is only known when it runs."""
    match node:
        case ast.Constant(str(text)):
            yield text
        case ast.IfExp():
            yield from constants(node.body)
            yield from constants(node.orelse)


@cache
def sources() -> dict[str, str]:
    """Files of the product that log -> their text."""
    found = {path.relative_to(ROOT).as_posix(): path.read_text() for path in (ROOT / "shared").rglob("*.py")}
    return {path: text for path, text in found.items() if "action" in text or "log." in text}


@cache
def logged() -> frozenset[str]:
    """Every action that a log call is given."""
    return frozenset(action for text in sources().values() for action in actions(text))


def actions(source: str) -> Iterator[str]:
    """Return the values of `action` in log calls: in their `extra`, in a variable of that name, or in a variable `action` that goes into
    it."""
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


def test_page_is_the_generated_one() -> None:
    assert log_actions.PAGE.read_text() == log_actions.page(), "run `make reference`"


def test_generator_finds_every_action_that_is_logged() -> None:
    assert {"shard_stuck", "web.internal-error", "failback", "kafka_waiting", "lease_joined", "fleet_ended"} <= logged()
    found = {line.action for line in log_lines.lines()}
    assert sorted(logged() - found) == []
    assert sorted(set(log_actions.NOTES) - found) == [], "notes about actions that nothing logs"


def test_generator_reads_the_level_where_a_line_is_logged() -> None:
    source = """
def f(bad, count):
    extra = {"action": "a_left", "n": count}
    log.info("%d are left: %s", count, bad, extra=extra)
    log.warning("It is bad", extra={"action": "b_bad" if bad else "b_good"})
    work.log("c_done", "done", warn=bad)
"""
    found = [(line.action, line.level) for line in log_lines.read(source)]
    assert found == [("a_left", "info"), ("b_bad", "warning"), ("b_good", "warning"), ("c_done", "warning")]


def test_every_alarm_of_a_fleet_has_its_condition_and_its_remedy_on_the_pages() -> None:
    conditions = (ROOT / "docs" / "explain" / "leases.md").read_text().partition("## The watch\n")[2].partition("\n## ")[0]
    remedies = (ROOT / "docs" / "how-to" / "operations.md").read_text()
    rows = {
        (name, action): kind
        for name, action, kind in re.findall(r"^\| `(\w+)` .*\| `(lease_\w+)` \| `(\w+)` \|$", conditions, re.MULTILINE)
    }
    assert rows | {(name, alarm.action): alarm.notification for name, alarm in ALARMS.items()} == rows
    assert set(re.findall(r"`(\w+)` \(`(lease_\w+)`\)", remedies)) == set(rows) and len(rows) == len(ALARMS)


def unnamed(source: str) -> Iterator[int]:
    """Lines with a log call whose `extra` is missing, or has no `action` that the source shows."""
    tree = ast.parse(source)
    made: dict[str, list[ast.AST]] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign([ast.Name(name)], value) | ast.AnnAssign(ast.Name(name), _, ast.expr() as value):
                made.setdefault(name, []).append(value)
            case ast.FunctionDef(name):
                made.setdefault(name, []).append(node)
    for node in ast.walk(tree):
        match node:
            case ast.Call(ast.Attribute(ast.expr() as of, str(level))) if level in LEVELS and "log" in ast.unparse(of).lower():
                given = [ast.unparse(each.value) for each in node.keywords if each.arg == "extra"]
                texts = given + [text for each in given for text in map(ast.unparse, made.get(each.partition("(")[0], ()))]
                if not any("'action'" in text for text in texts) and 'extra["action"]' not in source:
                    yield node.lineno


def test_every_line_has_an_action() -> None:
    assert list(unnamed('log.info("x")\nlog.error("x", extra={"count": 1})\nextra = {"a": 1}\nlog.debug("x", extra=extra)')) == [1, 2, 4]
    found = {path: list(unnamed(text)) for path, text in sources().items()}
    assert {path: lines for path, lines in found.items() if lines} == {}
