"""Each row of the state table (states.md) has a test, and each test a row."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from devhost.pages import log_lines
from tests.paths import ROOT

HERE = Path(__file__).parent


def marked() -> Iterator[tuple[str, str]]:
    """The rows that tests are marked with."""
    for path in HERE.glob("test_table_*.py"):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                for mark in node.decorator_list:
                    if isinstance(mark, ast.Call) and isinstance(mark.func, ast.Name) and mark.func.id == "row":
                        yield ast.literal_eval(mark.args[0]), ast.literal_eval(mark.args[1])


def test_each_row_of_the_table_is_tested() -> None:
    table = (HERE / "states.md").read_text()
    rows = set(re.findall(r"^\| ([^|]+?) \| ([^|]+?) \| [^|]+ \|$", table, re.MULTILINE)) - {("from", "trigger"), ("---", "---")}
    tested = set(marked())
    assert len(rows) >= 38
    assert (sorted(rows - tested), sorted(tested - rows)) == ([], []), "rows without a test, tests without a row"


def test_each_log_action_of_the_rules_is_known_to_the_page_of_log_actions() -> None:
    rules = ROOT / "shared" / "maintenance" / "agent"
    logged = {
        found
        for path in (*(rules / "decisions").glob("*.py"), rules / "dry_run.py")
        for found in re.findall(r'"(agent_\w+)"', path.read_text())
    }
    assert len(logged) > 40 and logged <= {line.action for line in log_lines.lines()}
