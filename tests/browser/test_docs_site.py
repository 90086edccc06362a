"""The documentation as a site: accessible in light, dark and on a phone, with nothing cut and nothing fetched from elsewhere."""

from __future__ import annotations

from typing import Literal

import pytest
from playwright.async_api import Browser

from tests.paths import ROOT, docs_pages

from .page import AXE, FAULTS, TIMEOUT

PAGES = sorted(page.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for page in docs_pages())
OF_EACH_KIND = (
    "index.html",
    "start/first-steps.html",
    "how-to/index.html",
    "how-to/choose.html",
    "how-to/declare.html",
    "how-to/serve-partitions.html",
    "reference/api.html",
    "reference/dashboard.html",
    "explain/scheduler.html",
)
"""Pages that between them have cards, code in each language, tables, diagrams and pictures."""
CUT = """() => {
  const cut = [];
  if (document.documentElement.scrollWidth > innerWidth) cut.push(`the page is ${document.documentElement.scrollWidth} wide`);
  for (const each of document.querySelectorAll(".md-content pre, .md-content pre > code, .md-content .md-typeset__scrollwrap")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(each).overflowX);
    if (each.scrollWidth > each.clientWidth + 1 && !scrolls) cut.push(each.textContent.slice(0, 80));
  }
  return cut;
}"""


@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("light", 390)])
async def test_axe_finds_no_fault_and_no_code_is_cut(scheme: Literal["light", "dark"], width: int, browser: Browser, site: str) -> None:
    context = await browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT)
    asked: set[str] = set()
    page.on("request", lambda request: asked.add(request.url))
    faults = []
    for name in OF_EACH_KIND if width > 600 else PAGES:
        await page.goto(site + name.replace("README.html", "index.html"), wait_until="load" if name in OF_EACH_KIND else "domcontentloaded")
        assert await page.evaluate("() => document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
        found = await page.evaluate(CUT)
        if name in OF_EACH_KIND:
            await page.add_script_tag(path=AXE)
            found += await page.evaluate(FAULTS)
        faults += [f"{name}: {each}" for each in found]
    await context.close()
    assert faults == []
    assert [url for url in asked if not url.startswith((site, "data:"))] == []


@pytest.mark.asyncio(loop_scope="session")
async def test_the_front_page_has_a_card_for_each_reader_and_code_has_colours_and_a_button_to_copy_it(browser: Browser, site: str) -> None:
    context = await browser.new_context(viewport={"width": 1280, "height": 900})
    page = await context.new_page()
    page.set_default_timeout(TIMEOUT)
    await page.goto(f"{site}index.html")
    cards = page.locator(".grid.cards > ul > li")
    assert [each.partition("\n")[0] for each in await cards.all_inner_texts()] == [
        "I write an application",
        "I operate it",
        "I run a fleet",
        "I decide",
    ]
    assert await page.locator(".md-tabs__link").all_inner_texts() == ["Start", "How to", "Reference", "Explain"]
    await page.goto(f"{site}start/first-steps.html")
    await page.locator("pre .md-code__button, pre .md-clipboard, .md-code__nav button").first.wait_for(state="attached")
    colours = "() => new Set([...document.querySelectorAll('pre code span')].map(each => getComputedStyle(each).color)).size"
    assert await page.evaluate(colours) > 2
    await context.close()
