"""What the site's theme leaves out, added to each page while mkdocs builds it (mkdocs.yml names this file).

A page names other words for its subject in a comment, `<!-- search: resend, replay -->`: the search box finds the page by them, and no
reader sees them.
"""

from __future__ import annotations

import re
from typing import Any

_SEARCH = 'data-md-component="search" role="dialog"'


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give the page's other words to the theme's search, which calls them tags."""
    lines = re.findall(r"^<!-- search: (.+) -->$", markdown, re.MULTILINE)
    page.meta["tags"] = [word.strip() for line in lines for word in line.split(",")]
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
