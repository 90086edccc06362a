"""The page of the dashboard: keys, failures of the service, hostile texts, the keyboard, small screens and large fleets."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Route

from tests.integration.scheduler.conftest import ADMIN_KEY, millis_of, text_of

from .page import FLEET_PANELS, PANELS, Look, chart_label, expect
from .stage import DEMO_KEY, EVIL, FLEET, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_wrong_key_is_explained_and_not_kept(look: Look) -> None:
    look.expected = "401"
    await look.open()
    for wrong in ("no", "not-a-key-at-all", "schlüssel-schlüssel"):
        await look.enter(wrong)
        await expect(look.page.get_by_role("alert")).to_contain_text("This is not a valid key.")
        await expect(look.page.locator("#panels")).to_be_hidden()
    assert await look.reads("[sessionStorage.length, localStorage.length, document.cookie]") == [0, 0, ""]
    await look.enter(DEMO_KEY)
    await look.shows("now")
    await expect(look.page.locator("#gate")).to_be_hidden()


async def test_the_key_stays_in_the_tab_until_it_is_forgotten(look: Look) -> None:
    await look.open(DEMO_KEY)
    await look.shows("now")
    await look.page.reload()
    await look.shows("now")
    assert await look.reads("[sessionStorage.length, localStorage.length, document.cookie]") == [1, 0, ""]
    assert DEMO_KEY not in look.page.url
    await look.page.get_by_role("button", name="Forget key").click()
    await expect(look.page.get_by_label("Key", exact=True)).to_be_focused()
    assert await look.reads("sessionStorage.length") == 0
    assert await look.reads("document.body.innerText.includes('bill-0')") is False


async def test_nothing_more_is_asked_once_the_key_is_forgotten(look: Look) -> None:
    held, go = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        held.set()
        await go.wait()
        await route.continue_()

    await look.page.route("**/v1/tenants?*", hold)
    await look.open()
    await look.enter(ADMIN_KEY)
    await held.wait()
    await look.page.get_by_role("button", name="Forget key").click()
    async with look.page.expect_request_finished(lambda request: "/v1/tenants?" in request.url):
        go.set()
    await look.enter(DEMO_KEY)
    await look.shows("now")
    forgotten = [each for each in look.unkeyed if "/api/v1/" in each]
    assert forgotten == []


async def test_the_root_of_the_devhost_and_an_address_with_a_slash_lead_there_and_a_local_service_names_its_key(look: Look) -> None:
    await look.page.goto(look.url)
    assert urlsplit(look.page.url).path == "/api/dashboard"
    await expect(look.page.locator("#local")).to_contain_text("local-demo-key")
    await look.page.get_by_role("button", name="Fill it in").click()
    await look.page.keyboard.press("Enter")
    await look.shows("health")
    await look.page.goto(f"{look.url}/api/dashboard/?fleet=db")
    await look.shows("leases")


async def test_the_admin_key_goes_from_tenant_to_tenant(look: Look, stage: Stage) -> None:
    stage.tenant("other")
    await look.open(ADMIN_KEY)
    await expect(look.page.locator("#tenant")).to_have_value("demo")
    await expect(await look.shows("health")).to_contain_text("tocsin-shards")
    await look.page.locator("#tenant").select_option("other")
    await look.shows("dead", "empty")
    for panel in FLEET_PANELS:
        await expect(look.panel(panel)).to_be_hidden()
    await expect(look.page.get_by_label("Fleet", exact=True)).to_be_hidden()


async def test_a_key_that_is_revoked_meanwhile_is_forgotten_with_a_notice(look: Look, stage: Stage) -> None:
    look.expected = "401"
    made = stage.call("POST", "tenants/demo/keys", {"scopes": ["events", "fleets"]}, ADMIN_KEY)
    await look.open(made["key"])
    await look.shows("now")
    stage.call("DELETE", f"tenants/demo/keys/{made['prefix']}", key=ADMIN_KEY)
    await expect(look.page.get_by_role("alert")).to_contain_text("The key is no longer valid: it may have been revoked.")
    await expect(look.page.locator("#panels")).to_be_hidden()
    assert await look.reads("[sessionStorage.length, document.querySelectorAll('.panel').length]") == [0, 0]


async def test_a_tenants_key_shows_its_tenant_whatever_was_looked_at_before(look: Look, stage: Stage) -> None:
    stage.tenant("before")
    await look.open(ADMIN_KEY)
    await look.page.locator("#tenant").select_option("before")
    await look.shows("dead", "empty")
    assert await look.reads("location.search") == "?tenant=before"
    await look.page.get_by_role("button", name="Forget key").click()
    await look.enter(DEMO_KEY)
    await expect(look.row("dead", "bill-0")).to_be_visible()
    await expect(look.page.locator("#tenant")).to_be_hidden()
    await look.page.get_by_role("button", name="Forget key").click()
    await look.open(DEMO_KEY, "?tenant=demo")
    await expect(look.row("dead", "bill-0")).to_be_visible()


async def test_a_key_sees_the_panels_of_its_scopes_and_no_button_that_would_be_refused(look: Look, stage: Stage) -> None:
    async def enter(*scopes: str) -> None:
        await look.enter(stage.call("POST", "tenants/demo/keys", {"scopes": scopes}, ADMIN_KEY)["key"])
        await look.shows("health")

    await look.open()
    await enter("fleets")
    await look.shows("leases")
    await expect(look.page.get_by_text("The key lacks the scope events")).to_be_visible()
    await expect(look.panel("dead")).to_have_count(0)
    await expect(look.page.get_by_role("navigation").get_by_role("link")).to_have_text(["Overview"])
    await look.page.get_by_role("button", name="Forget key").click()
    await enter("events")
    await look.shows("dead")
    await expect(look.panel("leases")).to_have_count(0)
    await look.page.get_by_role("button", name="Forget key").click()
    await enter("read")
    await look.shows("maintenance")
    await expect(look.row("dead", "bill-0")).to_be_visible()
    await expect(look.page.get_by_role("button", name=re.compile("Redrive|Approve|Hold"))).to_have_count(0)
    await look.row("dead", "bill-0").get_by_role("button", name="bill-0").click()
    dialog = look.page.get_by_role("dialog", name="bill-0")
    await expect(dialog).to_contain_text("400")
    await expect(dialog.get_by_role("button")).to_have_count(1)


async def test_a_service_that_falls_silent_is_reported_and_what_was_known_stays(look: Look) -> None:
    look.expected = "net::ERR_FAILED|503"
    await look.page.clock.install()
    await look.open(DEMO_KEY)
    await look.shows("dead")
    await look.page.route("**/api/v1/dead-letters*", lambda route: route.abort())
    await look.page.clock.fast_forward(31_000)
    panel = await look.shows("dead", "error")
    await expect(panel).to_contain_text("The service does not answer")
    await expect(look.row("dead", "bill-0")).to_be_visible()
    await look.page.unroute("**/api/v1/dead-letters*")
    await look.page.clock.fast_forward(31_000)
    await look.shows("dead")


async def test_a_service_that_is_away_has_one_banner_and_the_panels_keep_their_data(look: Look) -> None:
    look.expected = "net::ERR_FAILED"
    await look.page.clock.install()
    await look.open(DEMO_KEY)
    for panel in PANELS:
        await look.shows(panel)
    away = look.page.get_by_role("alert").filter(has_text="The service does not answer. The latest data on this page is from")
    await look.page.route("**/api/**", lambda route: route.abort())
    await look.page.clock.fast_forward(11_000)
    await expect(away).to_be_visible()
    await expect(look.page.locator("#live")).to_have_attribute("data-away", "")
    await expect(look.page.locator(".panel .wrong:visible")).to_have_count(0)
    await expect(look.row("dead", "bill-0")).to_be_visible()
    await look.page.unroute("**/api/**")
    await look.page.clock.fast_forward(6_000)
    await expect(away).to_be_hidden()
    for panel in PANELS:
        await look.shows(panel)


async def test_a_kept_key_outlives_a_service_that_is_away(look: Look) -> None:
    look.expected = "503"
    await look.page.clock.install()
    await look.open(DEMO_KEY)
    await look.shows("now")
    await look.page.route("**/api/v1/key", lambda route: route.fulfill(status=503, body="<h1>no</h1>", content_type="text/html"))
    await look.page.reload()
    await expect(look.page.get_by_role("alert")).to_contain_text("The key is stored, and the page tries again automatically.")
    await look.page.unroute("**/api/v1/key")
    await look.page.clock.fast_forward(6_000)
    await look.shows("now")
    await expect(look.page.locator("#gate")).to_be_hidden()


async def test_what_one_panel_cannot_show_or_waits_for_holds_no_other(look: Look) -> None:
    look.expected = "page error|net::ERR_FAILED"
    letters = "**/api/v1/dead-letters*"
    waiting: list[Route] = []
    failed: list[str] = []
    most = 0

    async def never(route: Route) -> None:
        nonlocal most
        waiting.append(route)
        most = max(most, len(waiting) - len(failed))

    look.page.on("requestfailed", lambda request: failed.append(request.url) if "dead-letters" in request.url else None)
    await look.page.clock.install()
    await look.page.route(letters, never)
    await look.page.route(f"**/api/v1/fleets/{FLEET}/turns*", lambda route: route.fulfill(json={"items": [None], "next": None}))
    async with look.page.expect_request(letters):
        await look.open(DEMO_KEY)
    await expect(await look.shows("turns", "error")).to_contain_text("This page could not display the answer of the service.")
    await look.shows("leases")
    for _ in range(3):
        async with look.page.expect_response(f"**/fleets/{FLEET}/nodes*"):
            await look.page.clock.fast_forward(8_000)
    assert most == 1
    for route in waiting[len(failed) :]:
        await route.abort()


async def test_a_hidden_tab_asks_nothing_and_catches_up_once(look: Look) -> None:
    await look.page.clock.install()
    await look.page.add_init_script("Object.defineProperty(document, 'hidden', { get: () => Boolean(window.away) })")
    await look.open(DEMO_KEY)
    for panel in PANELS:
        await look.shows(panel)
    await look.reads("window.away = true; document.dispatchEvent(new Event('visibilitychange'))")
    before = len(look.asked)
    for _ in range(6):
        await look.page.clock.fast_forward(600_000)
    # What had begun may end; an hour of looking on would be thousands.
    assert len(look.asked) - before <= 8
    await look.page.clock.pause_at(datetime.now(UTC) + timedelta(hours=2))
    async with look.page.expect_response("**/readyz"):
        await look.reads("window.away = false; for (let at = 0; at < 50; at += 1) document.dispatchEvent(new Event('visibilitychange'))")
    assert len(look.asked) - before <= 40


async def test_a_device_with_a_wrong_clock_shows_the_services_minutes(look: Look) -> None:
    await look.page.clock.install(time=datetime.now(UTC) + timedelta(hours=30, minutes=30))
    await look.open(DEMO_KEY)
    await expect(await look.shows("health")).to_contain_text(re.compile(r"This device's clock is 30 h \d+ min ahead of the service's"))
    await look.shows("due")
    assert int((await chart_label(look.page, "due")).split(", ")[-1].removesuffix(" planned")) >= 300
    await expect(look.row("dead", "bill-0")).to_be_visible()


async def test_names_labels_payloads_and_errors_stay_text(look: Look) -> None:
    await look.open(DEMO_KEY)
    await look.shows("dead")
    await look.panel("dead").get_by_role("button", name="bill-0", exact=True).click()
    dialog = look.page.get_by_role("dialog", name="bill-0")
    await expect(dialog.get_by_label("Payload")).to_contain_text(json.dumps(EVIL))
    await dialog.get_by_text("Answer: text/html").click()
    await expect(dialog.get_by_label("Body of the answer")).to_have_text(EVIL)
    await expect(dialog).to_contain_text(f"note={EVIL}")
    await look.page.keyboard.press("Escape")
    for panel in ("leases", "turns", "maintenance"):
        await expect(await look.shows(panel)).to_contain_text("<img src=x onerror=")
    assert await look.reads("document.querySelectorAll('main img, main script, dialog img, dialog script').length") == 0
    assert await look.page.title() == "Tocsin"


@pytest.mark.parametrize("sink", ["document.body.innerHTML = '<b>x</b>'", "document.write('x')"])
async def test_the_page_cannot_make_markup_of_text(look: Look, sink: str) -> None:
    look.expected = "Trusted|policy|Content Security"
    await look.open()
    assert await look.reads(f"(() => {{ try {{ {sink}; return 'done' }} catch (error) {{ return error.name }} }})()") == "TypeError"


async def test_it_works_by_keyboard_alone(look: Look, stage: Stage) -> None:
    stage.die("by-keyboard")
    await look.open()
    await look.page.keyboard.type(DEMO_KEY)
    await look.page.keyboard.press("Enter")
    await expect(look.row("dead", "by-keyboard")).to_be_visible()
    button = look.page.get_by_role("button", name="Redrive by-keyboard")
    for _ in range(60):
        await look.page.keyboard.press("Tab")
        if await button.evaluate("(button) => button === document.activeElement"):
            break
    await look.page.keyboard.press("Enter")
    await expect(look.row("dead", "by-keyboard")).to_have_count(0)
    await expect(look.page.locator("#toast")).to_have_text("by-keyboard will be delivered again.")
    await expect(look.page.locator(":focus")).to_have_accessible_name(re.compile("^Redrive "))


@pytest.mark.parametrize(("scheme", "width"), [("light", 360), ("dark", 1920)])
async def test_every_state_is_accessible_and_fits_the_screen(look: Look, stage: Stage, scheme: Any, width: int) -> None:
    look.expected = "500|net::ERR_FAILED"
    go = asyncio.Event()

    async def hold(route: Route) -> None:
        await go.wait()
        await route.continue_()

    async def refuse(route: Route) -> None:
        problem = {"type": "x/internal-error", "title": "Internal error", "status": 500, "detail": EVIL}
        await route.fulfill(status=500, content_type="application/problem+json", body=json.dumps(problem))

    await look.page.set_viewport_size({"width": width, "height": 800})
    await look.page.emulate_media(color_scheme=scheme)
    data = re.compile("/api/v1/(?!key|fleet-overview)|/readyz")
    await look.page.route(data, hold)
    await look.open()
    await look.fits("sign-in")
    await look.enter(DEMO_KEY)
    await look.shows("now", "loading")
    await look.fits("loading")
    go.set()
    for panel in PANELS:
        await look.shows(panel)
    await look.fits("overview")
    await look.row("dead", "bill-2").get_by_role("button", name="bill-2", exact=True).click()
    await expect(look.page.get_by_role("dialog")).to_contain_text("q~")
    await look.page.get_by_role("dialog").get_by_role("button", name="Redrive").click()
    await look.fits("dialog of an event")
    await look.page.keyboard.press("Escape")
    for view, panel in (("Events", "search"), ("Schedules", "schedules")):
        await look.page.get_by_role("link", name=view).click()
        await look.shows(panel)
        await look.fits(view)
    await look.page.get_by_role("link", name="Overview").click()
    await look.page.route("**/dead-letters*", refuse)
    await look.page.get_by_label("Range").select_option("15")
    await look.shows("dead", "error")
    await look.fits("error")
    await look.page.unroute(data)
    await look.page.route(data, lambda route: route.abort())
    await look.page.get_by_label("Range").select_option("60")
    await expect(look.page.locator("#away")).to_be_visible()
    await look.shows("now", "stale")
    await look.fits("away")
    await look.page.get_by_role("button", name="Forget key").click()
    await look.page.unroute(data)
    stage.call("PUT", "tenants/blank", {}, ADMIN_KEY)
    await look.enter(stage.call("POST", "tenants/blank/keys", {"scopes": ["read"]}, ADMIN_KEY)["key"])
    await look.shows("dead", "empty")
    await look.fits("empty, with a key that only reads")
    await look.page.get_by_role("link", name="Schedules").click()
    await look.shows("schedules", "empty")
    await look.fits("no schedules")


async def test_a_thousand_partitions_cost_only_those_that_move(look: Look) -> None:
    await look.page.add_init_script(COUNTED)
    moved = await many(look)
    await look.open(DEMO_KEY)
    panel = await look.shows("leases")
    await expect(panel.locator(".cell")).to_have_count(1024)
    assert "null" not in await panel.inner_text()
    await look.reads("window.begin()")
    moved["to"] = 1
    await expect(panel).to_contain_text("Recent hand-offs")
    await expect(panel.locator('[data-server="s01"] .cell')).to_have_count(17)
    # Cells that were taken out and put in: of the two servers between which one moved, not of the 62 others.
    assert await look.reads("window.cells") <= 4 * 17


async def test_a_day_and_a_night_of_minutes_are_drawn(look: Look) -> None:
    await many(look)
    await look.open(DEMO_KEY)
    await look.page.get_by_label("Range").select_option("1440")
    await expect(look.panel("due").locator(".chart")).to_have_attribute(
        "aria-label", f"Events per minute: {1440 * 50:,} delivered, 0 dead or lapsed, 0 open and past, {1440 * 20:,} planned"
    )
    late = look.panel("late").locator(".chart")
    await expect(late).to_have_attribute("aria-label", "Lateness over 1,440 minutes; maximum: 60 ms")


COUNTED = """
window.cells = 0;
window.begin = () => new MutationObserver((seen) => {
  for (const each of seen) if (each.target.className === "cells") window.cells += each.addedNodes.length + each.removedNodes.length;
}).observe(document.querySelector("#panel-leases .map"), { childList: true, subtree: true });
"""


def minutes_of(route: Route) -> range:
    """The minutes that the page asks for."""
    asked = parse_qs(urlsplit(route.request.url).query)
    return range(millis_of(asked["from"][0]), millis_of(asked["to"][0]), 60_000)


async def many(look: Look) -> dict[str, int]:
    """Answers of a large fleet and a busy tenant in place of the service's. Partition 0 is of the server `to`."""
    moved = {"to": 0}

    async def nodes(route: Route) -> None:
        shares: list[dict[str, int]] = [{} for _ in range(64)]
        for number in range(1024):
            shares[moved["to"] if number == 0 else number % 64][str(number)] = 1
        beat = {"seq": 1, "age_ms": 900, "state": "live", "incarnation": "x", "fault_domain": "", "capacity": 0, "load": 0, "scans": 1}
        empty: dict[str, Any] = {"assign": [], "release": [], "intents": [], "turn": None, "maintenance": None}
        items = [{"node": f"s{number:02}", "beat": beat, "partitions": share, **empty} for number, share in enumerate(shares)]
        await route.fulfill(json={"items": items, "next": None})

    async def fleet(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "partitions": 1024})

    async def history(route: Route) -> None:
        ends = dict.fromkeys(("open", "dead", "lapsed", "cancelled", "moved", "gap"), 0)
        late = {"p50": 20, "p99": 50, "max": 60}
        chart_label = {"accepted": 50, "delivered": 50, **ends, "late_ms": late}
        items = [{"minute": text_of(minute), **chart_label} for minute in minutes_of(route)]
        await route.fulfill(json={"items": items})

    async def load(route: Route) -> None:
        items = [{"minute": text_of(minute), "scheduled": 20} for minute in minutes_of(route)]
        await route.fulfill(json={"items": items})

    await look.page.route(f"**/api/v1/fleets/{FLEET}/nodes*", nodes)
    await look.page.route(f"**/api/v1/fleets/{FLEET}", fleet)
    await look.page.route("**/api/v1/history*", history)
    await look.page.route("**/api/v1/load*", load)
    return moved
