"""Every relative link and anchor in the documentation leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.paths import ROOT, docs_pages

PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / ".github").rglob("*.md")), *docs_pages()]
LINK = re.compile(r"\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """Return a page's text without its blocks and spans of code."""
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


def slug(heading: str) -> str:
    """Return the anchor of a heading, as GitHub and the site's generator make it."""
    text = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").lower())
    return text.strip().replace(" ", "-")


@cache
def anchors(page: Path) -> frozenset[str]:
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return frozenset(slug(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE))


def broken(page: Path) -> Iterator[str]:
    for link in LINK.findall(prose(page.read_text())):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            yield f"{page.relative_to(ROOT)}: {link}: no such file"
        elif anchor and (target.suffix != ".md" or anchor not in anchors(target)):
            yield f"{page.relative_to(ROOT)}: {link}: no such heading"


def test_every_link_leads_somewhere() -> None:
    assert len(PAGES) > 20 and sum(len(LINK.findall(page.read_text())) for page in PAGES) > 100
    assert [link for page in PAGES for link in broken(page)] == []
