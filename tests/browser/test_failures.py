"""States of failure: each names one next step, nothing looks well while the service is away, and all times agree."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Route

from tests.integration.scheduler.conftest import ADMIN_KEY, text_of

from .page import PANELS, Look, expect
from .stage import DEMO_KEY, Stage
from .test_page import minutes_of

pytestmark = pytest.mark.asyncio(loop_scope="session")

# Chips and figures that are painted in the colours of a good state.
GOOD = """() => {
  const colours = getComputedStyle(document.documentElement);
  const probe = document.createElement("i");
  document.body.append(probe);
  probe.style.color = colours.getPropertyValue("--good-ink");
  const green = getComputedStyle(probe).color;
  probe.remove();
  const good = (each) => each.checkVisibility() && getComputedStyle(each).color === green;
  return [...document.querySelectorAll(".badge, .tile *")].filter(good).map((each) => each.textContent);
}"""


# The texts of charts.
DRAWN = """
window.drawn = [];
const draw = CanvasRenderingContext2D.prototype.fillText;
CanvasRenderingContext2D.prototype.fillText = function (text, ...more) {
  window.drawn.push(text);
  return draw.call(this, text, ...more);
};
"""


async def away(look: Look, **answer: Any) -> None:
    """Let the service fall silent, or answer like this, until the banner says it."""

    async def reply(route: Route) -> None:
        await (route.fulfill(**answer) if answer else route.abort())

    await look.page.route("**/api/**", reply)
    await look.page.clock.fast_forward(11_000)
    await expect(look.page.locator("#away")).to_be_visible()


async def test_nothing_looks_well_while_the_service_is_away_and_the_banner_has_the_panels_time(look: Look) -> None:
    look.expected = "net::ERR_FAILED"
    await look.page.clock.install()
    await look.open(DEMO_KEY)
    for panel in PANELS:
        await look.shows(panel)
    assert "ready" in await look.page.evaluate(GOOD)
    await away(look)
    assert await look.page.evaluate(GOOD) == []
    await expect(await look.shows("health", "stale")).to_contain_text("Not known while the service does not answer.")
    await expect(look.panel("health").get_by_text("storage answers")).to_be_hidden()
    times = [each.removeprefix("as of ") for each in await look.page.locator(".panel:visible .seen").all_inner_texts() if each]
    banner = look.page.locator("#away")
    await expect(banner).to_contain_text(f"The latest data on this page is from {max(times)}.")
    await expect(banner).to_contain_text("If it lasts: check that the app runs and that this device reaches it.")
    await look.page.unroute("**/api/**")
    await look.page.clock.fast_forward(6_000)
    for panel in PANELS:
        await look.shows(panel)
    assert "ready" in await look.page.evaluate(GOOD)


async def test_storage_that_is_away_is_named_with_what_to_check(look: Look) -> None:
    look.expected = "503"
    await look.page.clock.install()
    await look.open(DEMO_KEY)
    await look.shows("now")
    body = {"status": 503, "title": "Not ready", "detail": "storage does not answer", "storage": {"reachable": False}}
    await away(look, status=503, json=body)
    await expect(look.page.locator("#away")).to_contain_text("The storage of the service does not answer.")
    await expect(look.page.locator("#away")).to_contain_text("If it lasts: check the storage account, and the app's access to it.")


@pytest.mark.parametrize(
    ("detail", "text"),
    [
        ("The key is not valid.", "The key is no longer valid: it may have been revoked. Ask your administrator for another."),
        (
            "The key expired at 2031-01-01T00:00:00.000Z. Create a new key and use that.",
            "The key expired at 2031-01-01T00:00:00.000Z. Ask your administrator for another key.",
        ),
    ],
)
async def test_a_key_that_ends_meanwhile_is_forgotten_with_the_reason_and_the_next_step(look: Look, detail: str, text: str) -> None:
    look.expected = "401"
    await look.open(DEMO_KEY)
    await look.shows("now")
    problem = {"type": "x/unauthenticated", "title": "Unauthenticated", "status": 401, "detail": detail}
    await look.page.route("**/api/v1/stats*", lambda route: route.fulfill(status=401, json=problem))
    await expect(look.page.get_by_role("alert")).to_have_text(text)
    await expect(look.page.locator("#gate")).to_be_visible()


async def test_a_key_without_a_scope_is_told_which_key_to_use(look: Look, stage: Stage) -> None:
    await look.open()
    await look.enter(stage.call("POST", "tenants/demo/keys", {"scopes": ["fleets"]}, ADMIN_KEY)["key"])
    await look.shows("leases")
    await expect(look.page.locator(".lacks")).to_have_text(
        "The key lacks the scope events: the panels of events are left out. Use a key with this scope to see them."
    )


async def test_the_scale_of_lateness_has_whole_units_and_long_figures_stay_in_their_tiles(look: Look) -> None:
    async def history(route: Route) -> None:
        ends = dict.fromkeys(("open", "dead", "lapsed", "cancelled", "moved", "gap"), 0)
        late = {"p50": 20, "p99": 70_000, "max": 50_000_000}
        items = [{"minute": text_of(minute), "accepted": 1, "delivered": 1, **ends, "late_ms": late} for minute in minutes_of(route)]
        await route.fulfill(json={"items": items})

    async def stats(route: Route) -> None:
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "late_ms": {"p50": 20, "p99": 49_980_000, "max": 50_000_000}})

    await look.page.add_init_script(DRAWN)
    await look.page.route("**/api/v1/history*", history)
    await look.page.route("**/api/v1/stats*", stats)
    await look.open(DEMO_KEY)
    await look.shows("late")
    await look.page.wait_for_function("window.drawn.includes('1 h')")
    drawn = {each for each in await look.reads("window.drawn") if re.search(r" (ms|s|min|h|d)$", each)}
    assert {"1 ms", "1 s", "1 min", "10 min", "1 h", "10 h"} <= drawn and all(re.fullmatch(r"10{0,2} \w+", each) for each in drawn)
    await expect(look.panel("now").locator(".tile").first).to_be_visible()
    tiles = await look.panel("now").locator(".tile").all()
    heights = [(await tile.locator("b").bounding_box() or {"height": 0})["height"] for tile in tiles]
    assert max(heights) < 2 * min(heights), "no figure takes two lines"
