"""Adds the pages as text for programs to the site, while mkdocs builds it (mkdocs.yml names this file).

llms.txt        title, summary, and a link to each page with a line about it, in the form of llmstxt.org
llms-full.txt   the text of all pages but those listed under Optional
*.md            each page's source beside its HTML, so that the links of both files and between the sources lead somewhere
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

OPTIONAL: Final = ("reference/stored-rows.md", "reference/log-actions.md", "reference/local-host.md", "reference/bigben.md")
"""Pages that a reader with little room can leave out: long lists for those who work on the service itself."""
MAX_LINKS: Final = 30_000
"""Most bytes of llms.txt: some 7,000 tokens."""
MAX_TEXT: Final = 480_000
"""Most bytes of llms-full.txt: some 120,000 tokens."""
MAX_SUMMARY: Final = 240
"""Most characters of the line about a page."""

_LINK: Final = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_BLOCK: Final = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE_OR_LINK: Final = re.compile(rf"{_BLOCK.pattern}|`[^`\n]+`|{_LINK.pattern}", re.MULTILINE | re.DOTALL)
_TAG: Final = re.compile(r"^</?div[^>]*>\n|^<!--.*?-->\n|\{:[^}]*\}", re.MULTILINE | re.DOTALL)


class Section(NamedTuple):
    """A part of the navigation: its title, and its pages by their paths in docs/."""

    title: str
    pages: tuple[str, ...]


def sections(nav: Sequence[Any], title: str = "") -> Iterator[Section]:
    """Yield the parts of mkdocs' navigation in their order; the title of an inner part begins with that of the part around it."""
    own: list[str] = []
    inner: list[Section] = []
    for entry in nav:
        [(name, value)] = entry.items() if isinstance(entry, dict) else [("", entry)]
        if isinstance(value, str):
            own.append(value)
        else:
            inner += sections(value, f"{title}: {name}" if title else name)
    if own:
        yield Section(title, tuple(own))
    yield from inner


def links(name: str, summary: str, nav: Sequence[Any], pages: Mapping[str, str]) -> str:
    """Return llms.txt. pages: the sources by path."""
    parts = [*sections(nav)]
    shown = [Section(part.title, tuple(page for page in part.pages if page not in OPTIONAL)) for part in parts]
    optional = tuple(page for part in parts for page in part.pages if page in OPTIONAL)
    whole = "The text of all pages in one file, without those under Optional: [llms-full.txt](llms-full.txt)."
    blocks = [f"# {name}", f"> {summary}", whole]
    for part in [*shown, Section("Optional", optional)]:
        if part.pages:
            blocks += [
                f"## {part.title}",
                "\n".join(f"- [{heading(pages[page])}]({page}): {first_line(pages[page])}" for page in part.pages),
            ]
    return _bounded("llms.txt", "\n\n".join(blocks) + "\n", MAX_LINKS)


def whole_text(name: str, summary: str, nav: Sequence[Any], pages: Mapping[str, str]) -> str:
    """Return llms-full.txt: the text of each page under its heading, with the page's path. Links lead from the site's root."""
    blocks = [f"# {name}", f"> {summary}"]
    for page in (page for part in sections(nav) for page in part.pages if page not in OPTIONAL):
        text = _TAG.sub("", pages[page])
        title, _, rest = text[text.index("# ") :].partition("\n")
        blocks.append(f"{title}\n\nPage: {page}\n\n{_with_links_from_root(rest, page).strip()}")
    return _bounded("llms-full.txt", "\n\n".join(blocks) + "\n", MAX_TEXT)


def heading(text: str) -> str:
    """Return the title of a page without marks."""
    found = re.search(r"^# (.+)$", text, re.MULTILINE)
    if found is None:
        raise ValueError(f"a page has no line '# TITLE': {text[:60]!r}")
    return _plain(found[1]).replace("[", "(").replace("]", ")")


def first_line(text: str) -> str:
    """Return the first line of prose after the title, without marks: each page begins with what it is for."""
    prose = _BLOCK.sub("", text[text.index("# ") :].partition("\n")[2])
    for line in prose.splitlines():
        if re.match(r"[\w\"'`*\[(]", line) and not line.startswith(("    ", "- ", "* ")):
            plain = re.sub(r":$", ".", _plain(line))
            return plain if len(plain) <= MAX_SUMMARY else plain[: MAX_SUMMARY - 4].rpartition(" ")[0] + " ..."
    raise ValueError(f"the page {heading(text)!r} has no line of prose")


def _plain(text: str) -> str:
    words = _LINK.sub(lambda found: "" if found[1] else found[2], text)
    return re.sub(r"(?<!\w)(\*\*?|`)(\S.*?)\1(?!\w)", r"\2", words).strip()


def _with_links_from_root(text: str, page: str) -> str:
    """Return a page's text with its links from the site's root. Code stays as it is, and of a picture its description."""
    return _CODE_OR_LINK.sub(lambda found: found[0] if found[3] is None else _from_root(page, *found.groups()), text)


def _from_root(page: str, picture: str, words: str, target: str) -> str:
    if picture:
        return f"({words})" if words else ""
    # A badge: the link's words are a picture.
    words = _LINK.sub(lambda inner: inner[2] if inner[1] else inner[0], words)
    if re.match(r"[a-z]+:", target):
        return f"[{words}]({target})"
    path, mark, anchor = target.partition("#")
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), path)) if path else page
    return f"[{words}]({place}{mark}{anchor})"


def _bounded(file: str, text: str, most: int) -> str:
    if (size := len(text.encode())) > most:
        raise ValueError(
            f"{file} has {size:,} bytes, and may have {most:,}: shorten a page, or list one in OPTIONAL of devhost/llms_txt.py"
        )
    return text


def write(config: Any) -> None:
    """Write both files and the pages' sources into the site."""
    docs, site = Path(config.docs_dir), Path(config.site_dir)
    found = (page for page in docs.rglob("*.md") if "node_modules" not in page.parts)
    pages = {page.relative_to(docs).as_posix(): page.read_text("utf-8") for page in found}
    for page, text in pages.items():
        (site / page).parent.mkdir(parents=True, exist_ok=True)
        (site / page).write_text(text, "utf-8")
    (site / "llms.txt").write_text(links(config.site_name, config.site_description, config.nav, pages), "utf-8")
    (site / "llms-full.txt").write_text(whole_text(config.site_name, config.site_description, config.nav, pages), "utf-8")


def on_post_build(config: Any, **_: Any) -> None:
    """Write the files once mkdocs has built the site."""
    write(config)
