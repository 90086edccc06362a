"""Adds to each page what the site's theme leaves out, while mkdocs builds it (mkdocs.yml names this file)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final

import yaml

_SEARCH: Final = 'data-md-component="search" role="dialog"'
_WORDS: Final = "search.yml"
"""The file in docs/ with other words for pages."""
_LATER: Final = (
    "how-to/ask-with-an-assistant",
    "how-to/migrate-from-durable",
    "how-to/migrate-from-hangfire",
    "how-to/migrate-from-logic",
    "how-to/migrate-from-quartz",
    "how-to/migrate-from-service",
    "how-to/migrate-from-timer",
)
"""Beginnings of the names of pages that name many features in passing: the search shows them after the pages about these."""


def on_files(files: Any, config: Any) -> None:
    """Read the other words, refuse words for a page that does not exist, and leave their file out of the site."""
    words = yaml.safe_load((Path(config.docs_dir) / _WORDS).read_text())
    if missing := set(words) - set(files.src_uris):
        raise ValueError(f"docs/{_WORDS} names pages that are not there: {', '.join(sorted(missing))}")
    config.extra["words"] = {page: [word.strip() for word in line.split(",")] for page, line in words.items()}
    files.remove(files.src_uris[_WORDS])


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Give the page's other words to the theme's search, which calls them tags."""
    page.meta["tags"] = config.extra["words"].get(page.file.src_uri, [])
    if page.file.src_uri.startswith(_LATER):
        page.meta["search"] = {"boost": 0.4}
    return markdown


def on_page_content(html: str, **_: Any) -> str:
    """Make the empty corner of a table a cell: a heading without text says nothing to those who hear the page."""
    return re.sub(r"<th([^>]*)></th>", r"<td\1></td>", html)


def on_post_page(output: str, config: Any, **_: Any) -> str:
    """Give the search dialog a name, and each part of the navigation one of its own, which screen readers read out."""
    if _SEARCH not in output:
        raise ValueError(f"the theme's page has no {_SEARCH!r}: does its search dialog have a name now?")
    output = output.replace(_SEARCH, f'{_SEARCH} aria-label="Search"')
    return re.sub(r'aria-labelledby="__nav_(\d+(?:_\d+)*)_label"', lambda found: f'aria-label="{_part(config.nav, found[1])}"', output)


def _part(nav: Any, numbers: str) -> str:
    """Return the titles that lead to a part of the navigation: `2_3` is the third entry of the second part."""
    titles = []
    for number in numbers.split("_"):
        [(title, nav)] = nav[int(number) - 1].items()
        titles.append(title)
    return ": ".join(titles)
