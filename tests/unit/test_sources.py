"""tests/SOURCES.md: each row has a verdict, and each file and test that it names exists."""

from __future__ import annotations

import re

from tests.paths import ROOT

PAGE = (ROOT / "tests" / "SOURCES.md").read_text()
ROWS = [row.split(" | ") for row in re.findall(r"^\| (.+) \|$", PAGE, re.MULTILINE) if not row.startswith(("---", "the source |"))]
VERDICTS = ("**Same", "**Better", "**Different", "**Not yet")


def test_each_row_has_a_verdict_and_says_where_to_look() -> None:
    assert len(ROWS) > 80
    assert [row for row in ROWS if len(row) != 3 or not row[1].startswith(VERDICTS)] == []
    assert [row for row in ROWS if "`" not in row[2] and "](" not in row[2]] == []


def test_each_file_and_test_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:shared|tests|bench)/[\w/]+(?:\.py)?)(?:::(test_\w+))?`", PAGE)
    assert len([test for _, test in named if test]) > 70
    texts = {path: (ROOT / path).read_text() for path, _ in named}
    assert [f"{path}::{test}" for path, test in named if test and f"def {test}(" not in texts[path]] == []
