"""The view of all tenants."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Route

from tests.integration.scheduler.conftest import ADMIN_KEY, text_of

from .page import Look, expect
from .stage import DEMO_KEY, EVIL, Stage, now_ms
from .test_forms import visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

QUIET = dict.fromkeys(("stuck", "overdue", "dead", "blocked_channels", "fleets", "urgent_fleets", "retrying", "open"), 0)


async def test_the_tenants_in_trouble_come_first_and_a_click_shows_one(look: Look, stage: Stage) -> None:
    stage.tenant("troubled", "stuck-1", "stuck-2")
    stage.call("PUT", "tenants/at-ease", {}, ADMIN_KEY)
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    panel = await look.shows("tenants")
    row = look.row("tenants", "troubled")
    await expect(row).to_contain_text("soon")
    await expect(row).to_contain_text("2 dead, 24 h")
    await expect(look.row("tenants", "at-ease")).to_contain_text("quiet")
    names = await panel.locator("tbody th").all_inner_texts()
    assert names.index("troubled") < names.index("at-ease") and len(names) == len(stage.call("GET", "tenants", key=ADMIN_KEY)["items"])
    await panel.get_by_role("button", name="troubled", exact=True).click()
    await expect(look.row("dead", "stuck-1")).to_be_visible()
    await expect(look.page.locator("#tenant")).to_have_value("troubled")
    await expect(look.page.get_by_role("link", name="Overview")).to_be_focused()
    assert await look.reads("location.search") == "?tenant=troubled"
    await look.page.go_back()
    await expect(panel).to_be_visible()


async def test_a_tenant_that_was_made_meanwhile_is_shown_by_a_click(look: Look, stage: Stage) -> None:
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    await look.shows("tenants")
    stage.tenant("newborn", "n1")
    await look.page.reload()
    await look.panel("tenants").get_by_role("button", name="newborn", exact=True).click()
    await expect(look.row("dead", "n1")).to_be_visible()


async def test_a_thousand_tenants_cost_one_request_a_look(look: Look) -> None:
    asked: list[int] = []
    worst = {
        **QUIET,
        "tenant": "t-000",
        "urgency": "urgent",
        "stuck": 1,
        "overdue": 1200,
        "dead": 7,
        "blocked_channels": 9,
        "fleets": 2,
        "urgent_fleets": 1,
    }
    blocked = [{"channel": f"c{number}", "state": "breaker-open"} for number in range(5)]
    items = [{**worst, "blocked": blocked}]
    items += [{**QUIET, "tenant": f"t-{number:03}", "urgency": "none", "blocked": []} for number in range(1, 1000)]

    async def overview(route: Route) -> None:
        asked.append(int(parse_qs(urlsplit(route.request.url).query)["limit"][0]))
        answer = {
            "items": items[: asked[-1]],
            "next": "on",
            "tenants": 1000,
            "quiet": 999,
            "read_at": text_of(now_ms()),
            "incomplete": True,
        }
        await route.fulfill(json=answer)

    await look.page.route("**/v1/tenant-overview*", overview)
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    panel = await look.shows("tenants")
    await expect(panel.locator(".sum")).to_contain_text("1,000 tenants. 1 needs attention 999 quiet")
    await expect(panel.locator(".sum")).to_contain_text("Not everything could be counted")
    await expect(panel.locator("tbody tr")).to_have_count(50)
    first = panel.locator("tbody tr").first
    for text in ("1 stuck", "1,199 overdue", "7 dead, 24 h", "c0 circuit breaker open", "7 more blocked channels", "2 fleets with alarms"):
        await expect(first).to_contain_text(text)
    before = [each for each in look.asked if "/v1/stats" in each or "/v1/tenants/" in each]
    assert before == [], "nothing is asked for each tenant"
    await panel.get_by_role("button", name="Show 50 more").click()
    await expect(panel.locator("tbody tr")).to_have_count(100)
    assert asked[0] == 50 and asked[-1] == 100


async def test_more_than_a_thousand_tenants_are_paged_through(look: Look) -> None:
    items = [{**QUIET, "tenant": f"t-{number:04}", "urgency": "none", "blocked": []} for number in range(1700)]
    asked: list[int] = []

    async def overview(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        limit, start = int(query["limit"][0]), int(query.get("cursor", ["0"])[0])
        asked.append(limit)
        following = str(start + limit) if start + limit < len(items) else None
        answer = {"items": items[start : start + limit], "next": following, "tenants": 1700, "quiet": 1700, "read_at": text_of(now_ms())}
        await route.fulfill(json=answer)

    await look.page.route("**/v1/tenant-overview*", overview)
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    panel = await look.shows("tenants")
    for shown, adds in ((50, 50), (100, 100), (200, 200), (400, 400), (800, 800), (1600, 100)):
        await expect(panel.locator("tbody tr")).to_have_count(shown)
        await panel.get_by_role("button", name=f"Show {adds} more").click()
    await expect(panel.locator("tbody tr")).to_have_count(1700)
    await expect(panel.get_by_role("button", name="more")).to_have_count(0)
    assert max(asked) == 1000


async def test_a_page_of_a_tenant_beyond_the_first_thousands_stays_there_and_says_where_the_others_are(look: Look, stage: Stage) -> None:
    look.expected = "404"
    stage.tenant("zz-last")
    names = [f"a-{number:04}" for number in range(4000)]

    async def listed(route: Route) -> None:
        start = int(parse_qs(urlsplit(route.request.url).query).get("cursor", ["0"])[0])
        items = [{"name": name} for name in names[start : start + 1000]]
        await route.fulfill(json={"items": items, "next": str(start + 1000)})

    await look.page.route("**/v1/tenants?*", listed)
    await look.open(ADMIN_KEY, "?tenant=zz-last")
    await look.shows("now")
    chosen = look.page.locator("#tenant")
    await expect(chosen).to_have_value("zz-last")
    assert await chosen.locator("option:disabled").all_inner_texts() == ["more: see the tab Tenants"]
    await look.fits("thousands of tenants")
    await visit(look, ADMIN_KEY, "?tenant=no-such")
    await expect(chosen).to_have_value("a-0000")


async def test_names_of_tenants_and_channels_stay_text(look: Look) -> None:
    item = {**QUIET, "tenant": EVIL, "urgency": "soon", "blocked_channels": 1, "blocked": [{"channel": EVIL, "state": EVIL}]}
    answer = {"items": [item], "next": None, "tenants": 1, "quiet": 0, "read_at": text_of(now_ms())}
    await look.page.route("**/v1/tenant-overview*", lambda route: route.fulfill(json=answer))
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    await expect(await look.shows("tenants")).to_contain_text(EVIL)
    assert await look.reads("document.querySelectorAll('main img, main script').length") == 0


async def test_only_an_admin_key_has_the_view(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY, "?view=tenants")
    await look.shows("now")
    await expect(look.page.get_by_role("link", name="Tenants")).to_have_count(0)
    await expect(look.panel("tenants")).to_have_count(0)


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1920)])
async def test_the_view_is_accessible_and_fits_the_screen(look: Look, stage: Stage, scheme: Any, width: int) -> None:
    item = {**QUIET, "tenant": "n" * 40, "urgency": "soon", "dead": 123_456, "blocked_channels": 2}
    item |= {"blocked": [{"channel": "c" * 40, "state": "breaker-half-open"}] * 2}

    async def overview(route: Route) -> None:
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "items": [item, *answer["items"]]})

    await look.page.route("**/v1/tenant-overview*", overview)
    await look.page.set_viewport_size({"width": width, "height": 844})
    await look.page.emulate_media(color_scheme=scheme)
    await look.open(ADMIN_KEY, "?tenant=demo&view=tenants")
    await look.shows("tenants")
    await look.fits("tenants")
