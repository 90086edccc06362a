"""The view of channels: addresses without their secrets, states, pauses, secrets and tests."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Locator, Route

from tests.integration.scheduler.conftest import ADMIN_KEY, text_of
from tests.integration.scheduler.receiver import status

from .page import Look, expect
from .stage import DEMO_KEY, EVIL, MINUTE, Stage, now_ms

pytestmark = pytest.mark.asyncio(loop_scope="session")


def channel(stage: Stage, tenant: str, name: str = "default", path: str = "", **more: Any) -> str:
    """Create a tenant's channel; return its path in the API."""
    stage.call("PUT", f"tenants/{tenant}", {}, ADMIN_KEY)
    where = f"tenants/{tenant}/channels/{name}"
    stage.call("PUT", where, {"type": "http", "url": stage.receiver.url(path or f"/{tenant}"), **more}, ADMIN_KEY)
    return where


async def opened(look: Look, tenant: str, key: str = ADMIN_KEY) -> Locator:
    """Open the view of channels."""
    await look.open(key, f"?tenant={tenant}&view=channels")
    return await look.shows("channels")


async def send(look: Look, name: str) -> Locator:
    """Send a test to a channel; return the dialog."""
    await look.page.get_by_role("button", name=f"Send test {name}").click()
    dialog = look.page.get_by_role("dialog", name=f"Send a test to {name}")
    await dialog.get_by_role("button", name="Send the test").click()
    return dialog


async def test_an_address_is_shown_without_its_path_and_its_limits_with_it(look: Look, stage: Stage) -> None:
    limits = {"deliveries_per_second": 20, "concurrency": 3}
    where = channel(stage, "secretive", path="/hidden/path?token=t0ken", limits=limits, per_key={"ordered": True})
    await opened(look, "secretive")
    row = look.row("channels", "default")
    await expect(row).to_contain_text(stage.receiver.url("").rstrip("/"))
    await expect(row).to_contain_text("20/s, 3 at once; each key: in order")
    await expect(row).to_contain_text("ok")
    await row.get_by_role("button", name="default", exact=True).click()
    await expect(look.page.get_by_role("dialog", name="default")).to_contain_text("never rotated")
    assert stage.call("GET", where, key=ADMIN_KEY)["url"].endswith("token=t0ken")
    assert await look.reads(r"/hidden\/path|t0ken/.test(document.documentElement.outerHTML)") is False


async def test_a_pause_has_a_reason_holds_a_test_and_ends_with_its_delivery(look: Look, stage: Stage) -> None:
    where = channel(stage, "pausing")
    panel = await opened(look, "pausing")
    await panel.get_by_role("button", name="Pause default").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Pause the channel").click()
    await expect(dialog.get_by_label("Reason")).to_be_focused()
    assert stage.call("GET", where, key=ADMIN_KEY)["paused"] is False, "a pause needs a reason"
    await dialog.get_by_label("Reason").fill(EVIL)
    await dialog.get_by_role("button", name="Pause the channel").click()
    await expect(dialog).to_be_hidden()
    await expect(look.row("channels", "default")).to_contain_text(re.compile(r"paused since \d\d:\d\d:\d\d: <img src=x"))
    await expect(panel.locator(".sum")).to_contain_text("1 delivers nothing")
    await expect(panel.get_by_role("button", name="Resume default")).to_be_focused()
    assert stage.call("GET", where, key=ADMIN_KEY)["reason"] == EVIL
    dialog = await send(look, "default")
    await expect(dialog.get_by_role("status")).to_have_text("The test waits: the channel is paused.")
    stage.call("POST", f"{where}/resume", key=ADMIN_KEY)
    await expect(dialog.get_by_role("status")).to_contain_text("the receiver answered 204.")
    await dialog.get_by_role("button", name="Open the event").click()
    await expect(look.page.get_by_role("dialog")).to_contain_text("delivered")


async def test_a_dialog_acts_on_the_tenant_for_which_it_was_opened(look: Look, stage: Stage) -> None:
    mine, other = (channel(stage, name) for name in ("mine", "others"))
    panel = await opened(look, "mine")
    await panel.get_by_role("button", name="Pause default").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("Reason").fill("a move")
    # As when the tenant is deleted meanwhile, and the page turns to another.
    change = "(select) => { select.value = 'others'; select.dispatchEvent(new Event('change')); }"
    await look.page.locator("#tenant").evaluate(change)
    await dialog.get_by_role("button", name="Pause the channel").click()
    await expect(dialog).to_be_hidden()
    assert [stage.call("GET", where, key=ADMIN_KEY)["paused"] for where in (mine, other)] == [True, False]


async def test_a_test_shows_the_answer_and_is_not_tried_again(look: Look, stage: Stage) -> None:
    channel(stage, "failing", answers="all")
    stage.receiver.script("/failing", status(503), status(204))
    await opened(look, "failing")
    dialog = await send(look, "default")
    await expect(dialog.get_by_role("status")).to_contain_text(re.compile("^Failed in .*503.* It is not tried again.$"))
    [event] = stage.listed("events?tenant=failing", ADMIN_KEY)
    assert event["state"] == "cancelled"
    await dialog.get_by_role("button", name="Send another").click()
    await expect(dialog.get_by_role("status")).to_contain_text("the receiver answered 204.")
    await expect(dialog).to_contain_text("It has no body.")


async def test_a_hostile_answer_of_a_test_stays_text_and_a_faulty_payload_is_not_sent(look: Look, stage: Stage) -> None:
    await opened(look, "demo")
    await look.page.get_by_role("button", name="Send test refuses").click()
    dialog = look.page.get_by_role("dialog", name="Send a test to refuses")
    await dialog.get_by_label("Payload").fill("{no")
    await dialog.get_by_role("button", name="Send the test").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("The payload is not JSON")
    await expect(dialog.get_by_label("Payload")).to_be_focused()
    await dialog.get_by_label("Payload").fill(f'"{EVIL.replace(chr(34), chr(39))}"')
    await dialog.get_by_role("button", name="Send the test").click()
    await expect(dialog.get_by_role("status")).to_contain_text("Refused in ")
    await expect(dialog.get_by_label("Body of the answer")).to_have_text(EVIL)
    assert await look.reads("document.querySelectorAll('main img, dialog img, dialog script').length") == 0
    await look.fits("a refused test")


async def test_a_new_secret_is_shown_once_and_leaves_the_page_with_its_dialog(look: Look, stage: Stage) -> None:
    where = channel(stage, "rotating")
    await look.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = await opened(look, "rotating")
    await panel.get_by_role("button", name="default", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Rotate secret default").click()
    await dialog.get_by_role("button", name="Create a new secret").click()
    await expect(dialog).to_contain_text("It is shown only here")
    secret = await dialog.locator("code").inner_text()
    assert secret.startswith("whsec_") and "rotated_at" in stage.call("GET", where, key=ADMIN_KEY)
    await dialog.get_by_role("button", name="Copy the secret").click()
    await expect(dialog.get_by_role("status")).to_have_text("Copied.")
    assert await look.reads("navigator.clipboard.readText()") == secret
    await look.fits("a new secret")
    await look.page.keyboard.press("Escape")
    assert secret not in await look.reads("document.documentElement.outerHTML + JSON.stringify(sessionStorage)")


async def test_a_key_without_a_scope_has_no_button_for_it_and_is_told_which_one_it_lacks(look: Look, stage: Stage) -> None:
    channel(stage, "scoped")
    made = {scope: stage.call("POST", "tenants/scoped/keys", {"scopes": [scope]}, ADMIN_KEY)["key"] for scope in ("events", "read")}
    stage.call("POST", "tenants/scoped/channels/default/pause", key=ADMIN_KEY)
    panel = await opened(look, "scoped", made["events"])
    await expect(panel).to_contain_text("The key lacks the scope admin: it cannot see addresses and limits, nor pause, resume or rotate.")
    await expect(look.row("channels", "default")).to_contain_text("paused")
    await expect(panel.get_by_role("button")).to_have_text(["default", "Send test"])
    await look.page.get_by_role("button", name="Forget key").click()
    panel = await opened(look, "scoped", made["read"])
    await expect(panel).to_contain_text("It lacks the scope events: it cannot send a test. Use a key with these scopes.")
    await expect(panel.get_by_role("button")).to_have_text(["default"])


async def test_an_open_breaker_is_explained_and_closed_by_a_person(look: Look, stage: Stage) -> None:
    asked: list[str] = []
    flow = {"breaker": "open", "since": text_of(now_ms() - MINUTE), "until": text_of(now_ms() + MINUTE), "failures": 7, "error": EVIL}

    async def listed(route: Route) -> None:
        answer = await (await route.fetch()).json()
        items = [{**each, "flow": flow} if each["name"] == "busy" else each for each in answer["items"]]
        await route.fulfill(json={**answer, "items": items})

    async def resume(route: Route) -> None:
        asked.append(route.request.url)
        await route.fulfill(json={})

    await look.page.route("**/tenants/demo/channels?*", listed)
    await look.page.route("**/channels/busy/resume", resume)
    panel = await opened(look, "demo")
    await expect(panel.locator("tbody tr").first).to_contain_text(
        re.compile(r"busy.*circuit breaker open since .*, 7 failures: <img.*Next try at ")
    )
    await panel.get_by_role("button", name="Close breaker busy").click()
    await look.page.get_by_role("dialog").get_by_role("button", name="Close it").click()
    await expect(look.page.locator("#toast")).to_have_text("The circuit breaker of busy is closed.")
    assert len(asked) == 1


async def test_the_last_failure_of_each_channel_is_listed_and_its_last_answers_lead_to_events(look: Look, stage: Stage) -> None:
    panel = await opened(look, "demo", DEMO_KEY)
    await expect(look.row("channels", "busy")).to_contain_text("503")
    await panel.get_by_role("button", name="busy", exact=True).click()
    dialog = look.page.get_by_role("dialog", name="busy")
    await expect(dialog.locator("tbody tr")).to_contain_text("503")
    await dialog.get_by_role("button", name="Its events").click()
    await expect(look.row("search", "patient")).to_be_visible()
    await expect(look.panel("search").get_by_label("Channel")).to_have_value("busy")


async def test_the_view_works_by_keyboard_alone(look: Look, stage: Stage) -> None:
    channel(stage, "by-keys")
    panel = await opened(look, "by-keys")
    await panel.get_by_role("button", name="default", exact=True).focus()
    await look.page.keyboard.press("Enter")
    await expect(look.page.get_by_role("dialog", name="default")).to_be_visible()
    await look.page.keyboard.press("Escape")
    await expect(panel.get_by_role("button", name="default", exact=True)).to_be_focused()
    await look.page.keyboard.press("Tab")
    await look.page.keyboard.press("Enter")
    await look.page.keyboard.type("a reason")
    await look.page.keyboard.press("Enter")
    await expect(look.row("channels", "default")).to_contain_text("a reason")
    await expect(panel.get_by_role("button", name="Resume default")).to_be_focused()


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1920)])
async def test_every_state_of_the_view_is_accessible_and_fits_the_screen(look: Look, stage: Stage, scheme: Any, width: int) -> None:
    where = channel(stage, "fitting", "n" * 40, limits={"deliveries_per_second": 20, "concurrency": 300}, per_key={"ordered": True})
    stage.call("POST", f"{where}/pause", {"reason": "W" * 200}, ADMIN_KEY)
    await look.page.set_viewport_size({"width": width, "height": 844})
    await look.page.emulate_media(color_scheme=scheme)
    panel = await opened(look, "fitting")
    await look.fits("a long name and reason")
    await panel.get_by_role("button", name="n" * 40, exact=True).click()
    await expect(look.page.get_by_role("dialog")).to_contain_text("No delivery in the last hour")
    await look.fits("the dialog of a channel")
    await look.page.get_by_role("dialog").get_by_role("button", name="Send test").click()
    await look.fits("a test of a paused channel")
    await look.page.keyboard.press("Escape")
    stage.call("PUT", "tenants/empty", {}, ADMIN_KEY)
    await look.page.get_by_role("button", name="Forget key").click()
    await look.open(ADMIN_KEY, "?tenant=empty&view=channels")
    await expect(await look.shows("channels", "empty")).to_contain_text("There are no channels yet.")
    await look.fits("no channels")
