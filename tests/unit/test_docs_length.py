"""The documentation stays as short as promised: who reads it has little time."""

from __future__ import annotations

import re

from tests.paths import ROOT

MOST_WORDS = 47_000
MOST_WORDS_OF_THE_README = 900
LOOKED_UP = {
    "docs/reference/stored-rows.md": 10_000,
    "docs/explain/stored-forms.md": 600,
    "docs/explain/wakes.md": 900,
    "docs/reference/compatibility.md": 400,
}
"""Pages that count on their own, with the most words of each: a generated one in which an operator looks up one entry, and new ones."""


def words(text: str) -> int:
    """Return the number of tokens that hold a letter or a digit: rules and borders of tables are no words."""
    return sum(1 for token in text.split() if re.search(r"\w", token))


def test_rules_and_borders_are_no_words() -> None:
    assert words("| a | `b c` |\n| --- | ---: |\n- **d**: 5 → 6.") == 6


def test_the_documentation_is_as_short_as_promised() -> None:
    counted = {page.relative_to(ROOT).as_posix(): words(page.read_text()) for page in (ROOT / "docs").rglob("*.md")}
    for page, most in LOOKED_UP.items():
        assert counted.pop(page) <= most, page
    longest = sorted(counted, key=counted.__getitem__, reverse=True)[:10]
    assert sum(counted.values()) <= MOST_WORDS, f"shorten a page before you add to one; the longest: {', '.join(longest)}"


def test_the_readme_fits_on_two_screens() -> None:
    assert words((ROOT / "README.md").read_text()) <= MOST_WORDS_OF_THE_README
