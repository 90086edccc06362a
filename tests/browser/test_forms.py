"""The forms that create and change events and schedules, and the time-line of an event."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote
from zoneinfo import ZoneInfo

import httpx
import pytest
from playwright.async_api import Locator, Route

from tests.integration.scheduler.conftest import ADMIN_KEY, now_ms, text_of
from tests.integration.scheduler.receiver import status

from .page import Look, expect
from .stage import DEMO_KEY, EVIL, MINUTE, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")

BIG = '{"number": 12345678901234567890, "exact": 1.10}'


def stored_text(stage: Stage, path: str) -> str:
    """The API's answer as it is written."""
    return httpx.get(f"{stage.url}/api/v1/{path}", headers={"authorization": f"Bearer {DEMO_KEY}"}, timeout=180).text


def create_as_written(stage: Stage, text: str) -> None:
    """An event from JSON text."""
    headers = {"authorization": f"Bearer {DEMO_KEY}", "content-type": "application/json"}
    answer = httpx.post(f"{stage.url}/api/v1/events", content=text, headers=headers, timeout=180)
    assert answer.status_code == 201, answer.text


async def visit(look: Look, key: str, query: str) -> None:
    """Sign in, also where the page was before."""
    if look.page.url != "about:blank":
        await look.reads("sessionStorage.clear()")
    await look.open(key, query)


async def new_event(look: Look, key: str = DEMO_KEY, query: str = "?view=events") -> Locator:
    await visit(look, key, query)
    await look.panel("search").get_by_role("button", name="New event").click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="New event")).to_be_visible()
    return dialog


async def new_schedule(look: Look) -> Locator:
    await visit(look, DEMO_KEY, "?view=schedules")
    await look.panel("schedules").get_by_role("button", name="New schedule").click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.get_by_role("heading", name="New schedule")).to_be_visible()
    return dialog


async def open_event(look: Look, event_id: str) -> Locator:
    await visit(look, DEMO_KEY, f"?view=events&event={event_id}")
    dialog = look.page.get_by_role("dialog", name=event_id)
    await expect(dialog.get_by_role("region", name="Time-line")).to_be_visible()
    return dialog


def fault_of(dialog: Locator, label: str) -> Locator:
    """The problem beside a field."""
    return dialog.locator(".field").filter(has=dialog.page.get_by_label(label, exact=True)).locator(".fault")


async def test_an_event_is_created_and_opened_and_its_payload_is_sent_as_written(look: Look, stage: Stage) -> None:
    dialog = await new_event(look)
    await dialog.get_by_label("Id (optional)").fill("made-here")
    await dialog.get_by_label("Delay").fill("1s")
    await dialog.get_by_label("Payload (JSON)").fill(BIG)
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Labels").fill(f"team=blue\nnote={EVIL}")
    await dialog.get_by_label("Expires").fill("1h 30m")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("made-here is scheduled, due")
    await look.fits("a created event")
    await expect(dialog.get_by_role("button", name="Open the event")).to_be_focused()
    await look.page.keyboard.press("Enter")
    await expect(dialog.get_by_role("region", name="Time-line")).to_be_visible()
    found = stage.until(lambda: (one := stage.call("GET", "events/made-here"))["state"] == "delivered" and one, "its delivery")
    assert found["labels"] == {"team": "blue", "note": EVIL} and found["expires"] == "PT1H30M"
    assert '"payload":{"number":12345678901234567890,"exact":1.10}' in stored_text(stage, "events/made-here")
    assert [each.body for each in stage.receiver.hits if each.id == "made-here"] == [b'{"number":12345678901234567890,"exact":1.10}']


async def test_the_same_event_again_is_no_second_one_and_another_content_is_refused(look: Look, stage: Stage) -> None:
    look.expected = "409"
    stage.call("POST", "events", {"id": "twice", "due": "2031-01-01T08:00:00Z", "payload": {"a": 1}, "channel": "default"})
    dialog = await new_event(look)
    await dialog.get_by_label("Id (optional)").fill("twice")
    await dialog.get_by_label("When").select_option("at a time")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_label("Due at").fill("2031-01-01T09:00")
    await dialog.get_by_label("Payload (JSON)").fill('{"a": 2}')
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("id")
    await dialog.get_by_label("Payload (JSON)").fill('{"a": 1}')
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("was stored before with this content")


async def test_one_event_for_each_of_several_channels_is_created(look: Look, stage: Stage) -> None:
    dialog = await new_event(look)
    await dialog.get_by_label("Channel, or several").fill("default, busy")
    await dialog.get_by_label("Delay").fill("3h")
    await dialog.get_by_label("Id (optional)").fill("both")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("both is stored as 2 events")
    await dialog.get_by_role("button", name="Open the event").click()
    await expect(look.page.get_by_role("dialog", name="both").locator("tbody tr")).to_have_count(2)
    assert {each["channel"] for each in stage.call("GET", "events/both")["events"]} == {"default", "busy"}


async def test_an_event_whose_answer_was_lost_is_stored_once(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"

    async def lose(route: Route) -> None:
        await route.fetch()
        await route.abort()

    dialog = await new_event(look)
    await look.page.route("**/api/v1/events", lose)
    await dialog.get_by_label("Delay").fill("3h")
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Labels").fill("team=lost")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("does not answer")
    await look.page.unroute("**/api/v1/events")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("was stored before with this content")
    found = [each for each in stage.listed("events?limit=1000") if each.get("labels") == {"team": "lost"}]
    assert len(found) == 1


async def test_an_address_that_names_an_event_opens_it_as_text(look: Look, stage: Stage) -> None:
    look.expected = "404|422"
    await look.open(DEMO_KEY, f"?view=events&event={quote(EVIL)}")
    dialog = look.page.get_by_role("dialog", name=EVIL)
    await expect(dialog.get_by_role("status")).to_contain_text("no event with this id")
    assert await look.reads("document.querySelectorAll('dialog img, dialog script').length") == 0 and await look.page.title() == "Tocsin"
    dialog = await open_event(look, "patient")
    await dialog.get_by_role("link", name="Link to this event").click()
    await expect(look.page.get_by_role("dialog", name="patient").get_by_role("region", name="Time-line")).to_be_visible()
    key = stage.call("POST", "tenants/demo/keys", {"scopes": ["fleets"]}, ADMIN_KEY)["key"]
    await visit(look, key, "?event=patient")
    await look.shows("health")
    await expect(look.page.get_by_role("dialog")).to_have_count(0)


async def test_bad_input_is_explained_beside_its_field(look: Look) -> None:
    look.expected = "422"
    dialog = await new_event(look)
    create = dialog.get_by_role("button", name="Create the event")
    payload = dialog.get_by_label("Payload (JSON)")
    await payload.fill('{"a": 1,}')
    await expect(dialog.get_by_text('Line 1, column 9: expected a name in double quotes, found "}".')).to_be_visible()
    await create.click()
    await expect(fault_of(dialog, "Payload (JSON)")).to_contain_text("Line 1, column 9")
    await expect(payload).to_be_focused()
    await payload.fill('"text"')
    await expect(dialog.get_by_text("Valid JSON, 6 bytes.")).to_be_visible()
    await dialog.get_by_label("Id (optional)").fill("no spaces, please")
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Flexible window").fill("soon")
    await dialog.get_by_text("More: labels").click()
    await create.click()
    await expect(fault_of(dialog, "Id (optional)")).to_contain_text("A-Z a-z 0-9")
    # A folded field shows its problem.
    await expect(fault_of(dialog, "Flexible window")).to_contain_text("ISO 8601")
    await expect(dialog.get_by_label("Id (optional)")).to_be_focused()
    await expect(dialog.get_by_label("Id (optional)")).to_have_attribute("aria-invalid", "true")
    await look.fits("refused fields")
    await dialog.get_by_label("Id (optional)").fill("fine")
    await expect(fault_of(dialog, "Id (optional)")).to_be_hidden()
    await dialog.get_by_label("Flexible window").fill("")
    await dialog.get_by_label("Channel, or several").fill("no-such")
    await create.click()
    await expect(fault_of(dialog, "Channel, or several")).to_contain_text("no-such")
    await dialog.get_by_label("Channel, or several").fill("default")
    await dialog.get_by_label("Labels").fill("blue")
    await create.click()
    await expect(fault_of(dialog, "Labels")).to_contain_text("Blue is not NAME=VALUE")


async def test_what_no_time_and_no_id_can_be_is_said_beside_its_field(look: Look) -> None:
    look.expected = "422"
    dialog = await new_event(look)
    create = dialog.get_by_role("button", name="Create the event")
    for delay in ("1000000000d", "1" + "0" * 30 + "d", "P1000000000D"):
        await dialog.get_by_label("Delay").fill(delay)
        await expect(dialog.locator(".when [role=status]")).to_have_text("That is too far ahead.")
        await create.click()
        await expect(fault_of(dialog, "Delay")).to_have_text("Longer than 3660 days")
    await dialog.get_by_label("When").select_option("at a time")
    await dialog.get_by_label("Due at").fill("12031-01-01T00:00")
    await expect(dialog.locator(".when [role=status]")).to_have_text("Choose a day and a time.")
    await create.click()
    await expect(fault_of(dialog, "Due at")).to_contain_text("The year has more than four digits")
    await dialog.get_by_role("button", name="In 5 minutes").click()
    await dialog.get_by_label("Id (optional)").fill("   ")
    await create.click()
    await expect(fault_of(dialog, "Id (optional)")).to_contain_text("An id has no spaces; leave the field empty")
    await look.fits("impossible times and ids")
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("..")
    await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(fault_of(dialog, "Id")).to_contain_text("An id has only A-Z a-z 0-9")
    await dialog.get_by_label("Id", exact=True).fill("far-away")
    await dialog.get_by_text("More: start").click()
    await dialog.get_by_label("Start").fill("12031-01-01T00:00")
    await expect(fault_of(dialog, "Start")).to_contain_text("The year has more than four digits")
    await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(fault_of(dialog, "Start")).to_contain_text("The year has more than four digits")
    await dialog.get_by_label("Start").fill("2031-01-01T00:00")
    await expect(dialog.get_by_role("region", name="Preview").locator("tbody tr")).to_have_count(10)
    await look.page.keyboard.press("Escape")


async def test_an_id_of_spaces_or_dots_is_looked_for_nowhere(look: Look) -> None:
    await visit(look, DEMO_KEY, "?view=events")
    panel = await look.shows("search")
    await panel.get_by_label("Event id").fill("   ")
    await panel.get_by_role("button", name="Open", exact=True).click()
    await expect(panel.get_by_label("Event id")).to_be_focused()
    assert await look.reads("document.activeElement.validity.patternMismatch") is True
    await expect(look.page.get_by_role("dialog")).to_have_count(0)
    for odd in (".", "..", "a/b"):
        await panel.get_by_label("Event id").fill(odd)
        await panel.get_by_role("button", name="Open", exact=True).click()
        await expect(look.page.get_by_role("dialog").get_by_role("status")).to_have_text("There is no event with this id.")
        await look.page.keyboard.press("Escape")


async def test_an_event_has_the_retries_and_the_target_of_its_form(look: Look, stage: Stage) -> None:
    look.expected = "422"
    dialog = await new_event(look)
    create = dialog.get_by_role("button", name="Create the event")
    await dialog.get_by_label("Id (optional)").fill("retried-here")
    await dialog.get_by_label("Delay").fill("3h")
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Path").fill("/orders/17")
    await dialog.get_by_label("Method").select_option("PUT")
    await dialog.get_by_label("Query").fill(f"page=2\nsaid=a=b {EVIL}")
    await dialog.get_by_label("Headers").fill("x-order=17\nx-order=18")
    await create.click()
    await expect(fault_of(dialog, "Headers")).to_contain_text("X-order is there twice")
    await dialog.get_by_label("Headers").fill("x-order=17")
    await dialog.get_by_label("Pauses between attempts").fill("5s, 1m 30s,")
    await dialog.get_by_label("Attempts", exact=True).fill("eight")
    await create.click()
    await expect(fault_of(dialog, "Attempts")).to_contain_text("Eight is not a number of attempts")
    await dialog.get_by_label("Attempts", exact=True).fill("8")
    await create.click()
    await expect(fault_of(dialog, "Pauses between attempts")).to_be_visible()
    await dialog.get_by_label("Attempts", exact=True).fill("")
    await dialog.get_by_label("Retry within").fill("2h")
    await look.fits("retries and a target")
    await create.click()
    await expect(dialog.get_by_role("status")).to_contain_text("retried-here is scheduled")
    found = stage.call("GET", "events/retried-here")
    assert found["retry"] == {"schedule": ["PT5S", "PT1M30S"], "within": "PT2H"}
    target = {"path": "/orders/17", "query": {"page": "2", "said": f"a=b {EVIL}"}, "method": "PUT", "headers": {"x-order": "17"}}
    assert found["target"] == target
    dialog = await open_event(look, "retried-here")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_text("More: callbacks").click()
    await expect(dialog.get_by_label("Query")).to_have_value(f"page=2\nsaid=a=b {EVIL}")
    await dialog.get_by_label("Query").fill("page=3")
    await dialog.get_by_label("Method").select_option("POST")
    await look.fits("an event's target")
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(look.page.locator("#toast")).to_have_text("retried-here is changed.")
    changed = {"path": "/orders/17", "query": {"page": "3"}, "headers": {"x-order": "17"}}
    assert stage.call("GET", "events/retried-here")["target"] in (changed, changed | {"method": "POST"})
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_text("More: callbacks").click()
    for name in ("Path", "Query", "Headers"):
        await dialog.get_by_label(name).fill("")
    await dialog.get_by_role("button", name="Save the changes").click()
    stage.until(lambda: "target" not in stage.call("GET", "events/retried-here"), "the channel's own target")


async def test_an_event_whose_request_has_no_body_is_created_and_edited_and_a_body_of_another_type_is_shown(
    look: Look, stage: Stage
) -> None:
    look.expected = "422"
    dialog = await new_event(look)
    await dialog.get_by_label("Id (optional)").fill("asks")
    await dialog.get_by_label("Delay").fill("3h")
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_label("Method").select_option("GET")
    payload = dialog.get_by_label("Payload (JSON)")
    await expect(payload).to_have_value("")
    await payload.fill("1")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(fault_of(dialog, "Payload (JSON)")).to_contain_text("has no body")
    await payload.fill("")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("asks is scheduled")
    assert "payload" not in stage.call("GET", "events/asks")
    dialog = await open_event(look, "asks")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_text("More: callbacks").click()
    await dialog.get_by_label("Path").fill("/18")
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(look.page.locator("#toast")).to_have_text("asks is changed.")
    assert stage.call("GET", "events/asks")["target"] == {"path": "/18", "method": "GET"}
    stage.call("POST", "events", {"id": "xml-to-see", "delay": "PT3H", "payload": "PGEvPg==", "content_type": "text/xml"})
    dialog = await open_event(look, "xml-to-see")
    await expect(dialog.get_by_role("heading", name="Payload (base64 of text/xml)")).to_be_visible()


async def test_press_of_the_button_counts_though_the_preview_has_found_a_fault(look: Look) -> None:
    look.expected = "422"
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("pressed")
    await dialog.get_by_label("Rule").select_option("every")
    await dialog.get_by_label("Interval").fill("@daily")
    await expect(fault_of(dialog, "Interval")).to_contain_text("ISO 8601")
    async with look.page.expect_request(lambda request: request.method == "PUT"):
        await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(fault_of(dialog, "Interval")).to_contain_text("ISO 8601")
    for label, rule in (("Interval", "every"), ("Cron expression", "cron")):
        await dialog.get_by_label("Rule").select_option(rule)
        await dialog.get_by_label(label, exact=True).fill(" ")
        await dialog.get_by_role("button", name="Create the schedule").click()
        await expect(fault_of(dialog, label)).to_contain_text("is missing, such as")


async def test_type_of_a_payload_and_the_terms_of_attempts_are_shown_with_schedules_and_in_forms(look: Look, stage: Stage) -> None:
    terms = {"timeout": "PT5S", "retry": {"schedule": ["PT5S", "PT1M"], "within": "PT1H"}}
    content = {"payload": "PGEvPg==", "content_type": "text/xml", **terms}
    stage.call("PUT", "schedules/xml-nightly", {"cron": "0 3 * * *", **content})
    stage.call("POST", "events", {"id": "xml-to-edit", "delay": "PT3H", **content})
    await visit(look, DEMO_KEY, "?view=schedules")
    await look.panel("schedules").get_by_role("button", name="xml-nightly", exact=True).click()
    dialog = look.page.get_by_role("dialog", name="xml-nightly")
    await expect(dialog.get_by_role("heading", name="Payload (base64 of text/xml)")).to_be_visible()
    await expect(dialog.get_by_text("within PT1H; schedule PT5S, PT1M")).to_be_visible()
    await dialog.get_by_role("button", name="Edit xml-nightly").click()
    await look.page.get_by_role("dialog").get_by_label("Payload (JSON: the base64 of text/xml)").fill('"PGIvPg=="')
    await look.page.get_by_role("dialog").get_by_role("button", name="Save the schedule").click()
    await expect(look.page.locator("#toast")).to_have_text("xml-nightly is stored.")
    found = stage.call("GET", "schedules/xml-nightly")
    assert {name: found[name] for name in content} == {**content, "payload": "PGIvPg=="}
    dialog = await open_event(look, "xml-to-edit")
    await expect(dialog.get_by_text("within PT1H; schedule PT5S, PT1M")).to_be_visible()
    await dialog.get_by_role("button", name="Edit").click()
    await expect(dialog.get_by_label("Payload (JSON: the base64 of text/xml)")).to_have_value('"PGEvPg=="')


async def test_form_says_that_nothing_is_scheduled_under_the_id_of_a_cancelled_event(look: Look, stage: Stage) -> None:
    stage.call("POST", "events", {"id": "gone-before", "due": "2031-01-01T08:00:00Z", "payload": {"a": 1}, "channel": "default"})
    stage.call("DELETE", "events/gone-before")
    dialog = await new_event(look)
    await dialog.get_by_label("Id (optional)").fill("gone-before")
    await dialog.get_by_label("When").select_option("at a time")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_label("Due at").fill("2031-01-01T09:00")
    await dialog.get_by_label("Payload (JSON)").fill('{"a": 1}')
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("gone-before exists and is cancelled: nothing is scheduled. It was due ")


async def test_pairs_of_a_target_that_no_line_can_hold_stay_as_they_are(look: Look, stage: Stage) -> None:
    odd = {"query": {"a=b": " c ", "d": "e"}, "headers": {"x-a": "b  c"}}
    stage.call("POST", "events", {"id": "odd-target", "delay": "PT3H", "payload": 1, "target": odd})
    dialog = await open_event(look, "odd-target")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_text("More: callbacks").click()
    await dialog.get_by_label("Path").fill("/new")
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(look.page.locator("#toast")).to_have_text("odd-target is changed.")
    target = stage.call("GET", "events/odd-target")["target"]
    assert {name: target[name] for name in ("query", "headers", "path")} == {**odd, "path": "/new"}


async def test_a_time_is_that_of_the_named_zone_also_where_the_clock_changes(look: Look) -> None:
    dialog = await new_event(look)
    await dialog.get_by_role("button", name="Tomorrow 09:00").click()
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_role("button", name="Tomorrow 09:00").click()
    tomorrow = datetime.now(ZoneInfo("Europe/Berlin")).date() + timedelta(days=1)
    said = dialog.locator(".when [role=status]")
    await expect(said).to_contain_text(f"{tomorrow:%a %Y-%m-%d} 09:00:00 (Europe/Berlin, UTC+0")
    for local, text in (
        ("2031-03-30T02:30", "02:30 does not exist, so it is 03:00."),
        ("2031-10-26T02:30", "02:30 comes twice, and this is the first."),
        ("2021-01-01T00:00", "The time is past: it is delivered at once."),
    ):
        await dialog.get_by_label("Due at").fill(local)
        await expect(said).to_contain_text(text)
    await dialog.get_by_label("Time zone").fill("Europe/Nowhere")
    await expect(said).to_contain_text("does not know the time zone")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(fault_of(dialog, "Due at")).to_contain_text("The time zone is unknown")


async def test_channels_are_suggested_as_far_as_the_key_may_see_them(look: Look, stage: Stage) -> None:
    stage.tenant("suggesting")
    dialog = await new_event(look, ADMIN_KEY, "?tenant=suggesting&view=events")
    channel = dialog.get_by_label("Channel, or several")
    await expect(look.page.locator(f"#{await channel.get_attribute('list')} option")).to_have_count(1)
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("is scheduled")
    assert len(stage.listed("events?tenant=suggesting", ADMIN_KEY)) == 1


async def test_a_key_that_only_reads_has_no_forms(look: Look, stage: Stage) -> None:
    key = stage.call("POST", "tenants/demo/keys", {"scopes": ["read"]}, ADMIN_KEY)["key"]
    await look.open(key, "?view=events&event=patient")
    dialog = look.page.get_by_role("dialog", name="patient")
    await expect(dialog.get_by_role("region", name="Time-line")).to_be_visible()
    await expect(dialog.get_by_role("button", name=re.compile("Edit|Cancel"))).to_have_count(0)
    await look.page.keyboard.press("Escape")
    await expect(look.page.get_by_role("button", name="New event")).to_have_count(0)
    await look.page.get_by_role("link", name="Schedules").click()
    await look.shows("schedules")
    await expect(look.page.get_by_role("button", name="New schedule")).to_have_count(0)


async def test_an_event_is_changed_with_its_payload_kept_as_written(look: Look, stage: Stage) -> None:
    raw = f'{{"id": "edited", "due": "2031-01-01T00:00:00.500Z", "payload": {BIG}, "expires": "PT1H"}}'
    create_as_written(stage, raw)
    dialog = await open_event(look, "edited")
    await expect(dialog.get_by_role("region", name="Payload", exact=True)).to_contain_text("12345678901234567890")
    await dialog.get_by_role("button", name="Edit").click()
    await expect(dialog.get_by_label("Payload (JSON)")).to_have_value('{\n  "number": 12345678901234567890,\n  "exact": 1.10\n}')
    await look.fits("an event's form")
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(dialog.get_by_role("alert")).to_have_text("You have changed nothing")
    async with look.page.expect_request(lambda request: request.method == "PATCH") as sent:
        await dialog.get_by_label("Expires").fill("")
        await dialog.get_by_text("More: callbacks").click()
        await dialog.get_by_label("Callback to channel, if dead or lapsed").fill("busy")
        await dialog.get_by_role("button", name="Save the changes").click()
    request = await sent.value
    # The milliseconds of a due time that was not touched stay, and nothing is sent but what was changed.
    assert request.post_data_json == {"expires": None, "on_dead": "busy"} and (await request.all_headers())["if-match"]
    await expect(look.page.get_by_role("dialog", name="edited").get_by_role("region", name="Time-line")).to_be_visible()
    found = stage.call("GET", "events/edited")
    assert (found["due"], found.get("expires"), found["on_dead"]) == ("2031-01-01T00:00:00.500Z", None, "busy")
    assert '"exact": 1.10' in stored_text(stage, "events/edited")


async def test_an_event_that_changed_meanwhile_shows_what_it_was_and_is(look: Look, stage: Stage) -> None:
    look.expected = "412"
    stage.call("POST", "events", {"id": "shared", "delay": "PT3H", "payload": {"said": 1}})
    dialog = await open_event(look, "shared")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Payload (JSON)").fill('{"mine": true}')
    stage.call("PATCH", "events/shared", {"payload": {"said": EVIL}})
    await dialog.get_by_role("button", name="Save the changes").click()
    conflict = dialog.get_by_role("alert").filter(has_text="Nothing is saved yet")
    await expect(conflict.get_by_role("row").filter(has_text="payload")).to_contain_text(json.dumps({"said": EVIL}, separators=(",", ":")))
    await look.fits("a conflict")
    await expect(conflict).to_be_focused()
    await conflict.get_by_role("button", name="Load it").click()
    await expect(dialog.get_by_label("Payload (JSON)")).to_have_value(json.dumps({"said": EVIL}, indent=2))
    await dialog.get_by_label("Payload (JSON)").fill('{"mine": 2}')
    stage.call("PATCH", "events/shared", {"payload": 3})
    await dialog.get_by_role("button", name="Save the changes").click()
    await dialog.get_by_role("button", name="Save my changes over it").click()
    await expect(look.page.locator("#toast")).to_have_text("shared is changed.")
    assert stage.call("GET", "events/shared")["payload"] == {"mine": 2}


async def test_an_event_is_cancelled_only_as_it_was_seen(look: Look, stage: Stage) -> None:
    look.expected = "412"
    stage.call("POST", "events", {"id": "seen", "delay": "PT3H", "payload": 1})
    dialog = await open_event(look, "seen")
    await dialog.get_by_role("button", name="Cancel", exact=True).click()
    stage.call("PATCH", "events/seen", {"payload": 2})
    await dialog.get_by_role("button", name="Cancel the event").click()
    await expect(dialog.get_by_role("alert").filter(has_text="Nothing is saved yet")).to_contain_text("payload")
    assert stage.call("GET", "events/seen")["state"] == "scheduled"
    await dialog.get_by_role("button", name="Go on with its present state").click()
    await dialog.get_by_role("button", name="Cancel the event").click()
    await expect(dialog.get_by_role("region", name="Time-line")).to_contain_text("Cancelled")
    assert stage.call("GET", "events/seen")["state"] == "cancelled"


async def test_a_schedule_is_created_with_its_occurrences_shown_across_the_change_of_the_clock(look: Look, stage: Stage) -> None:
    dialog = await new_schedule(look)
    preview = dialog.get_by_role("region", name="Preview")
    await dialog.get_by_label("Time zone").fill("Europe/Berlin")
    await dialog.get_by_label("Cron expression").fill("30 2 * * *")
    await dialog.get_by_text("More: start").click()
    await dialog.get_by_label("Start", exact=True).fill("2031-03-25T00:00")
    gap = preview.get_by_role("row").filter(has_text="2031-03-30")
    await expect(gap).to_contain_text("2031-03-30 03:00:00 UTC+02:00")
    await expect(gap).to_contain_text("02:30 does not exist, so it is 03:00.")
    await expect(preview).to_contain_text("Read as: at 02:30 every day, in Europe/Berlin.")
    await dialog.get_by_label("Cron expression").fill("15 30 2 30 3 SUN")
    await expect(preview).to_contain_text("Read as: at 02:30:15 on day 30 of March if it is Sunday, in Europe/Berlin.")
    await expect(gap).to_contain_text("02:30 does not exist, so it is 03:00.")
    await dialog.get_by_label("Cron expression").fill("30 2 * * *")
    await dialog.get_by_label("Start", exact=True).fill("2031-10-22T00:00")
    await expect(preview.get_by_role("row").filter(has_text="2031-10-26")).to_contain_text("02:30 comes twice, and this is the first.")
    await expect(preview.get_by_role("row").filter(has_text="2031-10-27")).to_contain_text("UTC+01:00 instead of UTC+02:00")
    await expect(preview.locator("tbody tr")).to_have_count(10)
    await look.fits("a preview")
    await dialog.get_by_label("Id", exact=True).fill("made-schedule")
    await dialog.get_by_label("Payload (JSON)").fill(BIG)
    await dialog.get_by_role("button", name="Create the schedule").click()
    shown = look.page.get_by_role("dialog", name="made-schedule")
    await expect(shown.locator("tbody tr")).to_have_count(10)
    await expect(look.row("schedules", "made-schedule")).to_be_visible()
    found = stage.call("GET", "schedules/made-schedule")
    assert (found["cron"], found["timezone"], found["start"]) == ("30 2 * * *", "Europe/Berlin", "2031-10-21T22:00:00.000Z")
    assert '"payload":{"number":12345678901234567890,"exact":1.10}' in stored_text(stage, "schedules/made-schedule")


async def test_a_wrong_rule_is_explained_while_it_is_typed(look: Look) -> None:
    look.expected = "422"
    dialog = await new_schedule(look)
    preview = dialog.get_by_role("region", name="Preview")
    await expect(preview.locator("tbody tr")).to_have_count(10)
    await dialog.get_by_label("Cron expression").fill("61 2 * * *")
    await expect(fault_of(dialog, "Cron expression")).to_contain_text("0 to 59")
    await expect(preview.locator("tbody tr")).to_have_count(0)
    await dialog.get_by_label("Cron expression").fill("1 2 * * *")
    await dialog.get_by_label("Time zone").fill(EVIL)
    await expect(fault_of(dialog, "Time zone")).to_contain_text("Europe/Berlin")
    await dialog.get_by_label("Rule").select_option("fixed interval")
    await dialog.get_by_label("Interval").fill("1h")
    await expect(preview.locator("tbody tr")).to_have_count(10)
    await dialog.get_by_text("More: start").click()
    await dialog.get_by_label("Calendars whose days have none").fill("no-such-calendar")
    await expect(fault_of(dialog, "Calendars whose days have none")).to_contain_text("no-such-calendar")
    await look.fits("a wrong rule")
    await expect(dialog.locator("img, script")).to_have_count(0)


async def test_only_the_last_rule_is_previewed_and_the_rest_of_the_form_asks_nothing(look: Look) -> None:
    dialog = await new_schedule(look)
    preview = dialog.get_by_role("region", name="Preview")
    await expect(preview.locator("tbody tr")).to_have_count(10)
    asked = len([each for each in look.asked if "schedules/preview" in each])
    await dialog.get_by_label("Id", exact=True).press_sequentially("some-name")
    await dialog.get_by_label("Payload (JSON)").press_sequentially(" ")
    await dialog.get_by_label("Cron expression").fill("")
    await expect(preview).to_contain_text("once there is a rule")
    await dialog.get_by_label("Cron expression").press_sequentially("0 0 1 1 *", delay=1)
    await expect(preview.locator("tbody tr").first).to_contain_text("01-01 00:00:00")
    assert len([each for each in look.asked if "schedules/preview" in each]) - asked <= 3


async def test_a_new_schedule_never_replaces_another(look: Look, stage: Stage) -> None:
    look.expected = "412"
    stage.call("PUT", "schedules/taken", {"every": "P1D", "payload": "first"})
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("taken")
    await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(fault_of(dialog, "Id")).to_contain_text("There is a schedule with this id already")
    assert stage.call("GET", "schedules/taken")["payload"] == "first"


async def test_a_schedule_is_changed_and_keeps_what_the_form_was_not_used_for(look: Look, stage: Stage) -> None:
    look.expected = "412"
    stage.call("PUT", "calendars/feasts", {"dates": ["2031-12-25"]})
    content = {
        "cron": "0 8 * * MON",
        "timezone": "Europe/Berlin",
        "start": "2030-01-01T00:00:00.250Z",
        "end": "2040-01-01T00:00:00.000Z",
        "jitter": "PT1M",
        "catch_up": {"policy": "all", "within": "PT2H"},
        "exclude": {"dates": ["2031-01-06"], "calendars": ["feasts"]},
        "at_most_once_per": "week",
        "ordering_key": "it's one",
        "channels": ["busy", "default"],
        "retry": {"attempts": 3},
        "timeout": "PT45S",
        "on_dead": "default",
    }
    stage.call("PUT", "schedules/kept", {**content, "payload": {"said": EVIL}})
    await look.open(DEMO_KEY, "?view=schedules")
    await look.row("schedules", "kept").get_by_role("button", name="kept", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Edit kept").click()
    await expect(dialog.get_by_role("heading", name="Edit kept")).to_be_visible()
    await look.fits("a schedule's form")
    await dialog.get_by_label("Cron expression").fill("0 9 * * MON")
    await dialog.get_by_role("button", name="Save the schedule").click()
    await expect(look.page.locator("#toast")).to_have_text("kept is stored.")
    found = stage.call("GET", "schedules/kept")
    assert {name: found[name] for name in content} == {**content, "cron": "0 9 * * MON"} and found["payload"] == {"said": EVIL}
    await dialog.get_by_role("button", name="Edit kept").click()
    await dialog.get_by_label("Cron expression").fill("0 10 * * MON")
    stage.call("PUT", "schedules/kept", {"cron": "0 7 * * MON", "payload": EVIL})
    await dialog.get_by_role("button", name="Save the schedule").click()
    conflict = dialog.get_by_role("alert").filter(has_text="Nothing is saved yet")
    await expect(conflict.get_by_role("row").filter(has_text="cron")).to_contain_text("0 7 * * MON")
    await expect(conflict.get_by_role("row").filter(has_text="payload")).to_contain_text(EVIL)
    await look.fits("a schedule that changed meanwhile")
    assert stage.call("GET", "schedules/kept")["cron"] == "0 7 * * MON"
    await conflict.get_by_role("button", name="Load it").click()
    await expect(dialog.get_by_label("Cron expression")).to_have_value("0 7 * * MON")
    await dialog.get_by_role("button", name="Back").click()
    await expect(dialog).to_contain_text("0 7 * * MON (UTC)")


async def test_a_schedule_is_deleted_after_a_question_and_only_as_it_was_seen(look: Look, stage: Stage) -> None:
    look.expected = "412"
    stage.call("PUT", "schedules/leaving", {"every": "P1D", "payload": 1})
    await look.open(DEMO_KEY, "?view=schedules")
    await look.row("schedules", "leaving").get_by_role("button", name="leaving", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Delete leaving").click()
    await expect(dialog.get_by_role("heading", name="Delete leaving")).to_be_visible()
    stage.call("PUT", "schedules/leaving", {"every": "P2D", "payload": 1})
    await dialog.get_by_role("button", name="Delete the schedule").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("changed")
    await look.page.keyboard.press("Escape")
    await look.row("schedules", "leaving").get_by_role("button", name="leaving", exact=True).click()
    await dialog.get_by_role("button", name="Delete leaving").click()
    await dialog.get_by_role("button", name="Delete the schedule").click()
    await expect(look.row("schedules", "leaving")).to_have_count(0)
    assert "leaving" not in {each["id"] for each in stage.call("GET", "schedules")["items"]}


async def test_an_event_is_created_by_keyboard_alone(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY, "?view=events")
    await (await look.shows("search")).get_by_role("button", name="New event").focus()
    await look.page.keyboard.press("Enter")
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.get_by_label("Channel, or several")).to_be_focused()
    await look.page.keyboard.press("Tab")
    await look.page.keyboard.type("typed")
    await look.page.keyboard.press("Enter")
    await expect(dialog.get_by_role("button", name="Open the event")).to_be_focused()
    assert stage.call("GET", "events/typed")["payload"] == {"hello": "world"}
    await look.page.keyboard.press("Escape")
    await expect(look.page.get_by_role("button", name="New event")).to_be_focused()


@pytest.mark.parametrize(("scheme", "width"), [("dark", 390), ("light", 1280)])
async def test_forms_and_time_line_are_accessible_and_fit_the_screen(look: Look, scheme: Any, width: int) -> None:
    look.expected = "422"
    await look.page.set_viewport_size({"width": width, "height": 844})
    await look.page.emulate_media(color_scheme=scheme)
    dialog = await new_event(look)
    await look.fits("new event")
    await dialog.get_by_label("When").select_option("at a time")
    await dialog.get_by_text("More: labels").click()
    await dialog.get_by_text("Copy as").click()
    await dialog.get_by_label("Id (optional)").fill("x" * 200)
    await look.fits("all of a new event")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(fault_of(dialog, "Due at")).to_be_visible()
    await look.fits("a new event that was refused")
    await look.page.keyboard.press("Escape")
    dialog = await new_schedule(look)
    await expect(dialog.locator("tbody tr")).to_have_count(10)
    await dialog.get_by_text("More: start").click()
    await look.fits("all of a new schedule")
    await look.page.keyboard.press("Escape")
    for event_id in ("bill-2", "patient"):
        await open_event(look, event_id)
        await look.fits(f"time-line of {event_id}")


# ---- the time-line


async def steps_of(dialog: Locator) -> list[str]:
    return [text.replace("\n", " ") for text in await dialog.locator(".timeline > li").all_inner_texts()]


async def test_the_time_line_tells_what_happened_to_a_dead_event_and_its_callback(look: Look) -> None:
    dialog = await open_event(look, "bill-2")
    await expect(dialog.locator(".timeline > li").filter(has_text="Callback")).to_contain_text("delivered")
    steps = await steps_of(dialog)
    # On a slow machine it is stored after it was due.
    names = ("Stored", "Due", "Attempt 1: 400 failed for good", "Dead: it is not tried again", "Callback")
    order = [next(number for number, step in enumerate(steps) if step.startswith(name)) for name in names]
    assert max(order[:2]) < order[2] < order[3]
    assert "took" in steps[order[2]] and "ago" in steps[order[2]]
    await dialog.locator(".timeline").get_by_role("button").click()
    await expect(look.page.get_by_role("dialog", name=re.compile("^q~")).get_by_role("button", name="bill-2")).to_be_visible()


async def test_the_time_line_is_in_the_chosen_zone(look: Look) -> None:
    dialog = await open_event(look, "patient")
    stored = dialog.locator(".timeline > li").first.locator("time")
    at = datetime.fromisoformat(await stored.get_attribute("datetime") or "")
    await expect(stored).to_have_text(at.astimezone(UTC).strftime("%a %Y-%m-%d %H:%M:%S.") + f"{at.microsecond // 1000:03d}")
    context = await look.page.context.browser.new_context(timezone_id="Asia/Kathmandu")  # type: ignore[union-attr]
    try:
        other = Look(await context.new_page(), look.url)
        dialog = await open_event(other, "patient")
        stored = dialog.locator(".timeline > li").first.locator("time")
        await expect(stored).to_contain_text(at.astimezone(ZoneInfo("Asia/Kathmandu")).strftime("%a %Y-%m-%d %H:%M:%S"))
        await dialog.get_by_label("Time zone of the times").select_option("UTC")
        await expect(stored).to_contain_text(at.astimezone(UTC).strftime("%a %Y-%m-%d %H:%M:%S"))
    finally:
        await context.close()


async def test_every_state_has_a_time_line_in_order_whose_texts_stay_text(look: Look) -> None:
    now = now_ms()
    attempts = [
        {"at": text_of(now - (30 - number) * MINUTE), "outcome": "retry", "status": 503, "error": EVIL, "took_ms": 1200}
        for number in range(20)
    ]
    base: dict[str, Any] = {"id": "told", "tenant": "demo", "created": text_of(now - 90 * MINUTE), "due": text_of(now - 60 * MINUTE)}
    base |= {"channel": EVIL, "payload": {"said": EVIL}}
    late = [{"reason": "paused", "ms": 61_000, "text": EVIL}, {"reason": "other", "ms": 1_000, "text": "more"}]
    held = {"reason": "paused", "detail": EVIL, "behind": EVIL, "until": text_of(now + MINUTE)}
    work = {"attempt": 1, "since": text_of(now - MINUTE), "deadline": text_of(now + MINUTE), "latest": text_of(now + 9 * MINUTE)}
    work |= {"within": "PT1M", "heartbeats": 3, "last_heartbeat": text_of(now - MINUTE // 2)}
    told: list[tuple[dict[str, Any], list[str]]] = [
        ({"state": "retrying", "attempts": attempts, "next_attempt": text_of(now + MINUTE)}, ["one of the last 20", "Next attempt"]),
        (
            {"state": "retrying", "attempts": attempts[:2], "held": held, "late_because": late},
            ["Waited 1 min 2 s", "Waits now", "Attempt 2"],
        ),
        ({"state": "working", "attempts": attempts[:1], "work": work}, ["The receiver works on it", "3 heartbeats"]),
        ({"state": "lapsed", "expires": "PT30M", "error": EVIL}, ["Lapsed"]),
        ({"state": "cancelled", "due": text_of(now + 60 * MINUTE)}, ["Would have been due", "Cancelled"]),
        ({"state": "scheduled", "due": text_of(now + 150 * MINUTE), "expires": "PT30M"}, ["Will be due", "in 2 h", "Lapses if"]),
        (
            {"state": "delivered", "created": text_of(now - MINUTE), "delivered_at": text_of(now), "late_ms": 60_000},
            ["after it was stored"],
        ),
        ({"state": "queued", "channel": None}, ["Accepted, waits to be stored"]),
        ({"state": "some-later-state", "attempts": [{**attempts[0], "outcome": "some-later-outcome"}]}, ["some-later-outcome"]),
    ]
    shown: dict[str, Any] = {}
    await look.page.route("**/api/v1/events/told", lambda route: route.fulfill(json={**base, **shown}))
    for each, wanted in told:
        shown = each
        dialog = await open_event(look, "told")
        for text in wanted:
            await expect(dialog.get_by_role("region", name="Time-line")).to_contain_text(text)
        times = [
            datetime.fromisoformat(time)
            for time in await dialog.locator(".timeline time").evaluate_all("(all) => all.map((each) => each.dateTime)")
        ]
        assert times == sorted(times) and "undefined" not in await dialog.inner_text() and "NaN" not in await dialog.inner_text()
        assert await look.reads("document.querySelectorAll('dialog img, dialog script').length") == 0
        await look.fits(str(each["state"]))
    assert await look.page.title() == "Tocsin"


async def test_a_callback_that_cannot_be_read_leaves_the_time_line_whole(look: Look) -> None:
    look.expected = "404"

    async def gone(route: Route) -> None:
        problem = {"type": "x/not-found", "title": "Not found", "status": 404, "detail": EVIL}
        await route.fulfill(status=404, content_type="application/problem+json", body=json.dumps(problem))

    await look.page.route("**/api/v1/events/q~*", gone)
    dialog = await open_event(look, "bill-2")
    await expect(dialog.locator(".timeline > li").last).to_contain_text("Callback")


async def test_a_retried_event_shows_each_attempt(look: Look, stage: Stage) -> None:
    stage.receiver.script("/flaky", status(503), status(204))
    stage.call("PUT", "tenants/demo/channels/flaky", {"type": "http", "url": stage.receiver.url("/flaky")}, ADMIN_KEY)
    stage.call("POST", "events", {"id": "flaky", "delay": "PT0.2S", "payload": 1, "channel": "flaky", "retry": {"first": "PT0.1S"}})
    stage.until(lambda: stage.call("GET", "events/flaky")["state"] == "delivered", "its delivery")
    dialog = await open_event(look, "flaky")
    steps = await steps_of(dialog)
    at = [
        next(number for number, step in enumerate(steps) if step.startswith(name))
        for name in ("Attempt 1: 503", "Attempt 2: 204", "Delivered")
    ]
    assert at == sorted(at)
