"""Changes of all events that match a search."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Locator, Route

from tests.integration.scheduler.conftest import ADMIN_KEY, millis_of, text_of
from tests.waiting import eventually

from .page import Look, expect
from .stage import DEMO_KEY, EVIL, Stage, now_ms

pytestmark = pytest.mark.asyncio(loop_scope="session")

JOB: dict[str, Any] = {
    "id": "0a1b2c3d4e5f6g7h",
    "action": "redrive",
    "filter": {"error": EVIL, "labels": {"a": EVIL}},
    "created": text_of(now_ms()),
}
JOB |= {"count": 1200, "sample": [], "done": 0, "skipped": 0, "failed": 0, "reasons": {}, "failures": []}
SAMPLE = {"id": EVIL, "state": "dead", "due": text_of(now_ms()), "channel": EVIL}


def events(stage: Stage, label: str, number: int) -> None:
    """Create planned events with a label."""
    made = [{"id": f"{label}-{at}", "delay": "PT3H", "payload": None, "labels": {"bulk": label}} for at in range(number)]
    assert stage.call("POST", "events/batch", made)["rejected"] == 0


def states(stage: Stage, label: str) -> set[str]:
    return {each["state"] for each in stage.listed(f"events?id_prefix={label}-")}


async def found(look: Look, label: str = "", state: str = "") -> Locator:
    """Search for events; return the panel. Until it shows what was found, its buttons for all that match are disabled."""
    await look.open(DEMO_KEY, "?view=events")
    panel = await look.shows("search")
    await panel.get_by_label("Labels").fill(f"bulk={label}" if label else "")
    await panel.get_by_label("State").select_option(state)
    await panel.get_by_role("button", name="Search").click()
    return panel


async def test_all_that_match_are_cancelled_once_their_count_is_typed(look: Look, stage: Stage) -> None:
    events(stage, "doomed", 12)
    panel = await found(look, "doomed")
    await panel.get_by_role("button", name="Cancel all that match").click()
    dialog = look.page.get_by_role("dialog", name="Cancel all that match")
    await expect(dialog.get_by_role("status")).to_have_text("12 events match.")
    await expect(dialog.locator("tbody tr")).to_have_count(10)
    typed, button = dialog.get_by_label("Type the count to confirm: 12"), dialog.get_by_role("button", name="Cancel 12 events")
    await expect(typed).to_be_focused()
    for wrong in ("", "1", "13", "twelve"):
        await typed.fill(wrong)
        await expect(button).to_be_disabled()
        await typed.press("Enter")
    assert states(stage, "doomed") == {"scheduled"}
    await typed.fill("12")
    await typed.press("Enter")
    await expect(dialog.get_by_role("status")).to_have_text("12 of 12 events cancelled.")
    assert states(stage, "doomed") == {"cancelled"}
    await look.page.keyboard.press("Escape")
    await expect(look.row("search", "doomed-0")).to_contain_text("cancelled")
    await expect(await look.shows("jobs")).to_contain_text("12 of 12 events cancelled.")


async def test_nobody_acts_on_the_former_result_while_a_search_is_under_way(look: Look, stage: Stage) -> None:
    events(stage, "sought", 2)
    panel, answered = await found(look), asyncio.Event()
    button = panel.get_by_role("button", name="Cancel all that match")
    await expect(button).to_be_enabled()

    async def late(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await look.page.route("**/api/v1/events?*", late)
    await panel.get_by_label("Labels").fill("bulk=sought")
    await panel.get_by_role("button", name="Search").click()
    await expect(button).to_be_disabled()
    answered.set()
    await expect(button).to_be_enabled()
    await expect(panel.locator("tbody tr")).to_have_count(2)


async def test_a_change_of_an_event_shown_before_does_not_end_the_wait_for_a_search(look: Look, stage: Stage) -> None:
    events(stage, "former", 2)
    panel, answered = await found(look, "former"), asyncio.Event()
    button = panel.get_by_role("button", name="Cancel all that match")
    await expect(panel.locator("tbody tr")).to_have_count(2)

    async def late(route: Route) -> None:
        await answered.wait()
        await route.continue_()

    await look.page.route("**/api/v1/events?*", late)
    await panel.get_by_label("Labels").fill("bulk=none")
    await panel.get_by_role("button", name="Search").click()
    await expect(button).to_be_disabled()
    await panel.get_by_role("button", name="former-0").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    await dialog.get_by_role("button", name="Cancel the event").click()
    await expect(panel.locator("tbody")).to_contain_text("cancelled")
    await expect(button).to_be_disabled()
    answered.set()
    await expect(panel).to_contain_text("No event matches.")


@pytest.mark.parametrize(("way", "text", "field"), [("later by", "later", "How much"), ("all to one time", "time", "New due time")])
async def test_all_that_match_are_moved(look: Look, stage: Stage, way: str, text: str, field: str) -> None:
    events(stage, text, 3)
    before = millis_of(stage.call("GET", f"events/{text}-0")["due"])
    panel = await found(look, text)
    await panel.get_by_role("button", name="Move all that match").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("Move", exact=True).select_option(way)
    await dialog.get_by_label(field).fill("PT2H" if way == "later by" else "2031-01-01T12:30:15")
    await dialog.get_by_role("button", name="Count the events").click()
    await dialog.get_by_label("Type the count").fill("3")
    await dialog.get_by_role("button", name="Move 3 events").click()
    await expect(dialog.get_by_role("status")).to_have_text("3 of 3 events moved.")
    due = millis_of(stage.call("GET", f"events/{text}-0")["due"])
    assert due == (before + 7_200_000 if way == "later by" else millis_of("2031-01-01T12:30:15.000Z"))


async def test_a_move_without_a_valid_duration_is_explained_in_its_dialog(look: Look, stage: Stage) -> None:
    look.expected = "422"
    panel = await found(look)
    await panel.get_by_role("button", name="Move all that match").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("How much").fill("soon")
    await dialog.get_by_role("button", name="Count the events").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("/later")
    await expect(dialog.get_by_role("button", name="Count the events")).to_be_enabled()


async def test_a_count_that_nobody_confirms_changes_nothing_and_ends_the_job(look: Look, stage: Stage) -> None:
    events(stage, "spared", 2)
    panel = await found(look, "spared")
    await panel.get_by_role("button", name="Fire now all that match").click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.get_by_label("Type the count")).to_be_focused()
    await look.page.keyboard.press("Escape")
    await expect(panel.get_by_role("button", name="Fire now all that match")).to_be_focused()
    jobs = [each for each in stage.call("GET", "jobs")["items"] if each["filter"].get("labels") == {"bulk": "spared"}]
    stage.until(lambda: [stage.call("GET", f"jobs/{each['id']}")["state"] for each in jobs] == ["cancelled"], "the end of the job")
    assert states(stage, "spared") == {"scheduled"}


async def test_dead_events_of_a_tenant_are_redriven_by_the_operator(look: Look, stage: Stage) -> None:
    stage.tenant("bulky", "b1", "b2")
    await look.open(ADMIN_KEY, "?tenant=bulky&view=events")
    panel = await look.shows("search")
    await panel.get_by_label("State").select_option("dead")
    await panel.get_by_role("button", name="Search").click()
    await expect(panel.locator(".bulk button")).to_have_text(["Redrive …"])
    await panel.get_by_role("button", name="Redrive all that match").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("Type the count").fill("2")
    await dialog.get_by_role("button", name="Redrive 2 events").click()
    await expect(dialog.get_by_role("status")).to_have_text("2 of 2 events redriven.")
    stage.until(lambda: stage.call("GET", "stats?tenant=bulky", key=ADMIN_KEY)["delivered"] == 2, "their delivery")


async def test_only_what_can_be_done_with_the_searched_events_has_a_button(look: Look, stage: Stage) -> None:
    panel = await found(look)
    await expect(panel.locator(".bulk button")).to_have_text(["Cancel …", "Move …", "Fire now …", "Redrive …"])
    await panel.get_by_label("State").select_option("delivered")
    await panel.get_by_role("button", name="Search").click()
    await expect(panel.locator(".bulk")).to_have_text("Events that are delivered cannot be changed.")
    await panel.get_by_label("State").select_option("retrying")
    await panel.get_by_role("button", name="Search").click()
    await expect(panel.locator(".bulk button")).to_have_text(["Cancel …", "Move …", "Fire now …"])
    await look.page.get_by_role("button", name="Forget key").click()
    await look.enter(stage.call("POST", "tenants/demo/keys", {"scopes": ["read"]}, ADMIN_KEY)["key"])
    await look.page.get_by_role("link", name="Events").click()
    await look.shows("search")
    await expect(look.panel("search").locator(".bulk button")).to_have_count(0)


async def made_up(look: Look, *answers: dict[str, Any]) -> list[tuple[str, Any]]:
    """Answer calls of jobs in place of the service, the last answer repeatedly; return the calls that change something."""
    calls: list[tuple[str, Any]] = []
    left = list(answers)

    async def answer(route: Route) -> None:
        request = route.request
        if request.method == "POST":
            calls.append((request.url.partition("/v1/")[2].partition("?")[0], request.post_data_json))
        elif "/jobs?" in request.url:
            return await route.fulfill(json={"items": [], "next": None})
        await route.fulfill(json={**JOB, **(left.pop(0) if len(left) > 1 else left[0])})

    await look.page.route(re.compile("/api/v1/jobs"), answer)
    return calls


async def test_a_job_shows_its_progress_is_stopped_and_lists_what_failed_and_why(look: Look, stage: Stage) -> None:
    counted = {"state": "counted", "sample": [SAMPLE], "confirmation": "1200-x", "more": True}
    running = {"state": "running", "done": 400, "skipped": 100, "failed": 3, "started": text_of(now_ms())}
    end = {**running, "state": "cancelled", "reasons": {EVIL: 100, "not-dead": 3}, "failures": [{"id": EVIL, "reason": EVIL}] * 3}
    calls = await made_up(look, {"state": "counting", "count": 700}, counted, running, running, end)
    panel = await found(look, state="dead")
    await panel.get_by_role("button", name="Redrive all that match").click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.get_by_role("status")).to_contain_text("1,200 events match. More match than one job may change")
    await look.fits("a count to confirm")
    await dialog.get_by_label("Type the count to confirm: 1,200").fill("1,200")
    await dialog.get_by_role("button", name="Redrive 1,200 events").click()
    bar = dialog.get_by_role("progressbar")
    await expect(bar).to_have_js_property("value", 503)
    await expect(bar).to_have_js_property("max", 1200)
    await expect(dialog).to_contain_text("503 of 1,200: 400 redriven, 100 skipped, 3 failed.")
    await expect(dialog.get_by_role("status")).to_have_text("400 of 1,200 events redriven, 100 skipped, 3 failed. The job was stopped.")
    await expect(dialog.get_by_role("heading", name="Failed")).to_be_visible()
    await expect(dialog.locator("tbody tr")).to_have_count(3)
    await expect(dialog.locator(".reasons")).to_contain_text(f"100: {EVIL}")
    assert await look.reads("document.querySelectorAll('main img, dialog img, dialog script').length") == 0
    assert [name for name, _ in calls] == ["jobs", f"jobs/{JOB['id']}/confirm"] and calls[1][1] == {"confirmation": "1200-x"}
    await look.fits("a report with failures")


async def test_a_running_job_is_stopped_by_its_button_and_goes_on_when_its_dialog_is_closed(look: Look, stage: Stage) -> None:
    counted = {"state": "counted", "sample": [SAMPLE], "confirmation": "1200-x"}
    running = {"state": "running", "done": 400, "started": text_of(now_ms())}
    calls = await made_up(look, counted, running)
    panel = await found(look, state="dead")
    await panel.get_by_role("button", name="Redrive all that match").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("Type the count").fill("1200")
    await dialog.get_by_role("button", name="Redrive 1,200 events").click()
    await expect(dialog.get_by_role("button", name="Stop the job")).to_be_focused()
    await look.fits("a running job")
    await look.page.keyboard.press("Enter")
    await eventually(lambda: calls[-1][0] == f"jobs/{JOB['id']}/cancel", "the stop")
    stopped = len(calls)
    await look.page.keyboard.press("Escape")
    await expect(look.page.locator("#toast")).to_contain_text("The job goes on.")
    assert len(calls) == stopped


async def test_a_confirmation_whose_answer_is_lost_is_followed_and_not_undone(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    counted = {"state": "counted", "sample": [SAMPLE], "confirmation": "1200-x"}
    calls = await made_up(look, counted, {"state": "running", "done": 400, "started": text_of(now_ms())})
    await look.page.route("**/confirm*", lambda route: route.abort())
    panel = await found(look, state="dead")
    await panel.get_by_role("button", name="Redrive all that match").click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_label("Type the count").fill("1200")
    await dialog.get_by_role("button", name="Redrive 1,200 events").click()
    await expect(dialog).to_contain_text("400 of 1,200: 400 redriven")
    await look.page.keyboard.press("Escape")
    await expect(look.page.locator("#toast")).to_contain_text("The job goes on.")
    assert [name for name, _ in calls] == ["jobs"], "the job is not cancelled"
