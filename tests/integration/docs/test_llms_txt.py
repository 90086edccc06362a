"""The site has its pages as text for programs: llms.txt, llms-full.txt, and the sources beside the HTML."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from devhost import llms_txt
from tests.paths import ROOT, docs_pages

LINK = re.compile(r"\]\(([^)\s]+)\)")
PAGES = {page.relative_to(ROOT / "docs").as_posix(): page.read_text() for page in docs_pages()}
NAV = [{"Start": ["a.md", {"B": "sub/b.md"}]}, {"More": ["c.md", {"Inner": [{"D": "d.md"}]}]}]
SMALL = {
    "a.md": "# A\n\nThe **first** page, see [B](sub/b.md).\n",
    "sub/b.md": "# `b` of [A](../a.md)\n\n```sh\necho '[x](y.md)'\n```\n\nRead [`a`](../a.md#a), `[n](l.md)`, [e](#part).\n![c](c.png)\n",
    "c.md": "# C\n\n- a list\n\nThe prose comes second:\n",
    "d.md": "# D\n\nLast.\n",
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


def prose(text: str) -> str:
    """Return the text without code, but with the links whose words are code."""
    return re.sub(r"(?<!\[)`[^`\n]*`(?!\])", "", re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL))


@pytest.mark.parametrize("name", ["llms.txt", "llms-full.txt"])
def test_each_link_leads_to_a_file_of_the_site(name: str, site: Path) -> None:
    targets = {link.partition("#")[0] for link in LINK.findall(prose((site / name).read_text())) if not re.match(r"[a-z]+:", link)}
    assert len(targets) > 50
    assert sorted(target for target in targets if not (site / target).exists()) == []


def test_the_source_of_each_page_lies_beside_its_html(site: Path) -> None:
    assert {page: (site / page).read_text() for page in PAGES} == PAGES
    html = [page.replace("README.md", "index.md").removesuffix(".md") + ".html" for page in PAGES]
    assert [page for page in html if not (site / page).exists()] == []


def test_llms_txt_has_the_form_of_llmstxt_org_and_a_line_about_each_page(site: Path) -> None:
    lines = (site / "llms.txt").read_text().splitlines()
    settings = yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=yaml.BaseLoader)
    assert lines[0] == "# Tocsin" and lines[2] == f"> {settings['site_description']}"
    sections = [line for line in lines if line.startswith("## ")]
    assert sections[-1] == "## Optional" and len(set(sections)) == len(sections)
    entries = lines[lines.index(sections[0]) :]
    assert [line for line in entries if line and not re.fullmatch(r"## .+|- \[[^\[\]]+\]\([^)\s]+\.md\): .{10,240}", line)] == []
    listed = [LINK.findall(line)[0] for line in entries if line.startswith("- ")]
    assert sorted(listed) == sorted(page for page in PAGES if not page.startswith("examples/"))


def test_llms_full_txt_has_the_text_of_each_page_but_the_optional_ones(site: Path) -> None:
    text = (site / "llms-full.txt").read_text()
    shown = re.findall(r"^Page: (.+)$", text, re.MULTILINE)
    assert sorted([*shown, *llms_txt.OPTIONAL]) == sorted(page for page in PAGES if not page.startswith("examples/"))
    blocks = {block for page in shown for block in re.findall(r"^```.*?^```$", PAGES[page], re.MULTILINE | re.DOTALL)}
    assert len(blocks) > 50 and [block for block in blocks if block not in text] == []


def test_sections_follow_the_navigation() -> None:
    found = [(part.title, part.pages) for part in llms_txt.sections(NAV)]
    assert found == [("Start", ("a.md", "sub/b.md")), ("More", ("c.md",)), ("More: Inner", ("d.md",))]


def test_a_line_about_a_page_is_its_first_prose_without_marks() -> None:
    assert llms_txt.first_line(SMALL["a.md"]) == "The first page, see B."
    assert llms_txt.first_line(SMALL["c.md"]) == "The prose comes second."
    assert llms_txt.heading(SMALL["sub/b.md"]) == "b of A"
    assert llms_txt.first_line("# X\n\nsnake_case and 2*3*4 stay, *this* goes.\n") == "snake_case and 2*3*4 stay, this goes."
    assert len(llms_txt.first_line("# X\n\n" + "long " * 200)) <= llms_txt.MAX_SUMMARY


def test_links_lead_from_the_root_and_code_stays_as_it_is() -> None:
    text = llms_txt.whole_text("N", "S", NAV, SMALL)
    assert "Read [`a`](a.md#a), `[n](l.md)`, [e](sub/b.md#part).\n(c)" in text
    assert "echo '[x](y.md)'" in text


def test_a_page_without_title_or_prose_is_refused() -> None:
    with pytest.raises(ValueError, match="has no line '# TITLE'"):
        llms_txt.links("N", "S", ["a.md"], {"a.md": "no title"})
    with pytest.raises(ValueError, match="'A' has no line of prose"):
        llms_txt.links("N", "S", ["a.md"], {"a.md": "# A\n\n- only a list\n"})


def test_files_that_are_too_long_are_refused() -> None:
    with pytest.raises(ValueError, match=r"llms-full\.txt has [\d,]+ bytes, and may have 480,000"):
        llms_txt.whole_text("N", "S", ["a.md"], {"a.md": "# A\n\n" + "word " * 100_000})
    with pytest.raises(ValueError, match=r"llms\.txt has [\d,]+ bytes, and may have 30,000"):
        llms_txt.links("N", "S", ["a.md"] * 1_000, {"a.md": "# A\n\n" + "word " * 100})
