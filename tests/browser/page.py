"""A page at the dashboard, as a person uses it, that remembers what went wrong on it."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import ConsoleMessage, Locator, Page, Request
from playwright.async_api import expect as expected

from devhost.azurite import ROOT
from tests.waiting import ran_out

TIMEOUT = 180_000  # milliseconds that anything may take on a busy machine
expected.set_options(timeout=TIMEOUT)

PANELS = ("now", "fleets", "due", "late", "dead", "leases", "turns", "maintenance", "locks", "health")
"""The ids of the panels of the overview, in their order on the page."""
FLEET_PANELS = ("fleets", "leases", "turns", "maintenance")
"""The panels that are there only for tenants with fleets."""


AXE = ROOT / "node_modules" / "axe-core" / "axe.min.js"
FAULTS = """axe.run(document, { resultTypes: ["violations"] }).then((found) =>
  found.violations.flatMap((each) => each.nodes.map((node) => `${each.id}: ${node.target.join(" ")} ${node.failureSummary}`)))"""
_UNFIT = """(width) => {
  const bad = document.documentElement.scrollWidth > width ? [`the page is ${document.documentElement.scrollWidth} wide`] : [];
  for (const node of document.querySelectorAll("body *")) {
    if (!node.checkVisibility() || node.closest(".visually-hidden, .uplot, noscript, select, dialog:not([open])")) continue;
    const style = getComputedStyle(node);
    const name = `${node.tagName}.${node.className}`;
    if (style.overflowX === "hidden" && node.scrollWidth > node.clientWidth + 1) bad.push(`${name} is clipped`);
    if (node.tagName === "DIALOG" && node.scrollWidth > node.clientWidth + 1) bad.push(`${name} is wider than it shows`);
    const scrolls = ["auto", "scroll"].includes(style.overflowY) && node.scrollHeight > node.clientHeight + 1;
    if (width < 600 && scrolls && node.tagName !== "DIALOG") bad.push(`${name} scrolls in the page`);
  }
  return bad;
}"""


class _Expected:
    """The assertions of Playwright about a page or a part of it, each of which waits until it holds."""

    def __init__(self, what: Any) -> None:
        self._what = expected(what)

    def __getattr__(self, name: str) -> Callable[..., Awaitable[None]]:
        assertion = getattr(self._what, name)

        async def wait(*arguments: Any, **options: Any) -> None:
            try:
                await assertion(*arguments, **options)
                return
            except AssertionError as error:
                failed = error
            ran_out(f"{name} {arguments}", options.get("timeout", TIMEOUT) / 1000, str(failed), failed)

        return wait


def expect(what: Any) -> Any:
    """Playwright's `expect`, whose waits raise StillWaiting when they run out."""
    return _Expected(what)


async def chart_label(page: Page, panel: str) -> str:
    """Return the description of a panel's chart for screen readers."""
    return str(await page.locator(f"#panel-{panel} .chart").get_attribute("aria-label"))


class Look:
    """One page. `faults`: errors of the page; `expected`: pattern of console errors that belong to the test; `unkeyed`: requests without a
    key."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.faults: list[str] = []
        self.asked: list[str] = []
        self.unkeyed: list[str] = []
        self.expected: str | None = None
        page.set_default_timeout(TIMEOUT)
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.faults.append(f"page error: {error}"))
        page.on("dialog", lambda dialog: self.faults.append(f"dialog: {dialog.message}"))
        page.on("request", self._request)

    def _console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.faults.append(f"{message.type}: {message.text}")

    def _request(self, request: Request) -> None:
        self.asked.append(request.url)
        if "authorization" not in request.headers:
            self.unkeyed.append(request.url)

    async def open(self, key: str | None = None, query: str = "") -> None:
        """The dashboard, and the key if there is one."""
        await self.page.goto(f"{self.url}/api/dashboard{query}")
        if key is not None:
            await self.enter(key)
            await expect(self.page.locator("#panels")).to_be_visible()

    async def enter(self, key: str) -> None:
        await self.page.get_by_label("Key", exact=True).fill(key)
        await self.page.get_by_role("button", name="Show").click()

    def panel(self, name: str) -> Locator:
        return self.page.locator(f"#panel-{name}")

    async def shows(self, name: str, state: str = "data") -> Locator:
        """The panel, once it is in that state."""
        panel = self.panel(name)
        await expect(panel).to_have_attribute("data-state", state)
        return panel

    def row(self, name: str, text: str) -> Locator:
        """The row of the panel's tables that has this text, in the same case: a time such as T10:00 does not have `t1`."""
        return self.panel(name).locator("tbody tr").filter(has_text=re.compile(re.escape(text)))

    async def reads(self, expression: str) -> Any:
        return await self.page.evaluate(expression)

    async def fits(self, state: str) -> None:
        """Assert that axe finds no fault, that nothing is clipped, and that on a phone nothing but the page and a dialog scrolls."""
        if not await self.reads("'axe' in window"):
            await self.page.evaluate(AXE.read_text())
        assert await self.reads(FAULTS) == [], state
        assert self.page.viewport_size
        unfit = await self.page.evaluate(_UNFIT, self.page.viewport_size["width"])
        assert unfit == [], f"{state}: {unfit}"

    def was_clean(self) -> None:
        """No error on the page but the expected ones, and no request to anybody else."""
        left = [each for each in self.faults if self.expected is None or not re.search(self.expected, each)]
        assert not left, left
        origin = urlsplit(self.url)[:2]
        others = [each for each in self.asked if urlsplit(each).scheme not in ("data", "blob") and urlsplit(each)[:2] != origin]
        assert not others, others
