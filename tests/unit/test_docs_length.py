"""The documentation stays as short as promised: who reads it has little time."""

from __future__ import annotations

import re

from tests.paths import ROOT, docs_pages

MOST_WORDS = 44_000
MOST_WORDS_OF_THE_README = 900
GENERATED = {
    "docs/reference/command.md": 1_200,
    "docs/reference/limits.md": 900,
    "docs/reference/log-actions.md": 900,
    "docs/reference/observability.md": 1_600,
    "docs/reference/problems.md": 1_000,
    "docs/reference/settings.md": 1_300,
    "docs/reference/stored-rows.md": 11_000,
}
"""Pages in which a reader looks up one entry, made by `make reference`, with the most words of each."""
MOST_WORDS_OF_A_NEW_PAGE = 600
NEW = frozenset(
    {
        "docs/how-to/ask-with-an-assistant.md",
        "docs/how-to/check-a-receiver.md",
        "docs/how-to/days-of-the-month.md",
        "docs/how-to/index.md",
        "docs/how-to/kubernetes.md",
        "docs/how-to/migrate-from-durable-timers.md",
        "docs/how-to/migrate-from-hangfire.md",
        "docs/how-to/migrate-from-logic-apps.md",
        "docs/how-to/migrate-from-quartz.md",
        "docs/how-to/migrate-from-service-bus-scheduled.md",
        "docs/how-to/migrate-from-timer-triggers.md",
        "docs/how-to/run-it-here.md",
        "docs/how-to/send-any-request.md",
        "docs/how-to/when-azure-fails.md",
        "docs/reference/compatibility.md",
    }
)
"""Pages that count on their own."""


def words(text: str) -> int:
    """Return the number of words as `wc -w` counts them."""
    return len(text.split())


def counted() -> dict[str, int]:
    """The words of each page."""
    return {page.relative_to(ROOT).as_posix(): words(page.read_text()) for page in docs_pages()}


def test_the_documentation_is_as_short_as_promised() -> None:
    pages = {name: count for name, count in counted().items() if name not in GENERATED and name not in NEW}
    longest = sorted(pages, key=pages.__getitem__, reverse=True)[:10]
    assert sum(pages.values()) <= MOST_WORDS, f"shorten a page before you add to one; the longest: {', '.join(longest)}"


def test_a_page_that_counts_on_its_own_is_short() -> None:
    pages = counted()
    most = GENERATED | dict.fromkeys(NEW, MOST_WORDS_OF_A_NEW_PAGE)
    assert {name: pages[name] for name in most if pages[name] > most[name]} == {}


def test_each_generated_page_is_one_that_make_reference_writes() -> None:
    [line] = re.findall(r"^\tfor page in (.+); do \$\(PY\) -m devhost\.pages", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert len(GENERATED) == len([*line.split(), "settings", "problems"])


def test_the_readme_fits_on_two_screens() -> None:
    assert words((ROOT / "README.md").read_text()) <= MOST_WORDS_OF_THE_README
