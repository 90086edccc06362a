"""The site's Markdown library reads each page as CommonMark does, and so as GitHub shows it: lists, code, tables, headings."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser

import markdown
import pytest
import yaml
from markdown_it import MarkdownIt
from mkdocs.config import load_config
from mkdocs.utils.meta import get_data

from tests.paths import ROOT, docs_pages

PAGES = [page.relative_to(ROOT).as_posix() for page in docs_pages()]
OUTLINED = frozenset({"ul", "ol", "li", "pre", "table", "blockquote", "h1", "h2", "h3", "h4"})


class Outline(HTMLParser):
    """The parts of a page in their order, each two spaces deeper than the part that contains it, with its first words."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._open: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in OUTLINED:
            self.lines.append(f"{'  ' * len(self._open)}{tag} ")
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in OUTLINED:
            assert self._open.pop() == tag
            self.lines.append("")

    def handle_data(self, data: str) -> None:
        """Keep the words of code and lists: what a part lost to its neighbour then shows."""
        if self._open and self._open[-1] in ("li", "pre"):
            self.lines[-1] += "".join(data.split()).rstrip("¶")


def outline(html: str) -> list[str]:
    return [line for line in Outline(html).lines if line]


@cache
def site() -> markdown.Markdown:
    """Return the site's Markdown library, with the extensions of mkdocs.yml."""
    settings = load_config(str(ROOT / "mkdocs.yml"))
    return markdown.Markdown(extensions=settings.markdown_extensions, extension_configs=settings.mdx_configs)


def on_the_site(text: str) -> list[str]:
    return outline(site().reset().convert(text))


def by_commonmark(text: str) -> list[str]:
    return outline(MarkdownIt("commonmark").enable("table").render(text))


@pytest.mark.parametrize("page", PAGES)
def test_the_site_shows_the_parts_that_commonmark_reads(page: str) -> None:
    text, _ = get_data((ROOT / page).read_text())
    assert on_the_site(text) == by_commonmark(text)


@pytest.mark.parametrize(
    "text",
    ["- a\n  - nested by two spaces\n", "1. a\n\n- another list\n", "text\n- a list without an empty line\n", "1. a\n\n        b\n\nc\n"],
)
def test_a_page_that_the_two_read_differently_is_found(text: str) -> None:
    assert (on_the_site(text) == by_commonmark(text)) is ("1. a\n\n    " in text)


@pytest.mark.parametrize("page", PAGES)
def test_a_diagram_or_command_after_a_list_is_code_and_no_part_of_its_last_item(page: str) -> None:
    text, _ = get_data((ROOT / page).read_text())
    assert [line for line in on_the_site(text) if line.strip().startswith("li") and ("──►" in line or "tocsin--" in line)] == []


def test_each_how_to_page_is_in_the_navigation_and_in_the_list_of_its_folder() -> None:
    settings = load_config(str(ROOT / "mkdocs.yml"))

    def pages(part: object) -> list[str]:
        if isinstance(part, str):
            return [part]
        return [each for inner in (part.values() if isinstance(part, dict) else part) for each in pages(inner)]  # type: ignore[attr-defined]

    navigated = pages(settings.nav)
    assert len(navigated) == len(set(navigated))
    listed = (ROOT / "docs" / "how-to" / "index.md").read_text()
    assert sorted(each.removeprefix("docs/") for each in PAGES if "/examples/" not in each) == sorted(navigated)
    assert [
        each for each in navigated if each.startswith("how-to/") and not each.endswith("index.md") and f"]({each[7:]})" not in listed
    ] == []


@pytest.mark.parametrize("folder", ["start", "how-to"])
def test_the_search_prefers_pages_that_say_what_to_do(folder: str) -> None:
    assert yaml.safe_load((ROOT / "docs" / folder / ".meta.yml").read_text())["search"]["boost"] > 1
