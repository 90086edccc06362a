"""Answers that come late or never, pages that turn to another tenant, and second presses."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest
from playwright.async_api import Route

from tests.integration.scheduler.conftest import ADMIN_KEY
from tests.waiting import eventually

from .page import Look, expect
from .stage import DEMO_KEY, Stage
from .test_channels import channel, opened
from .test_forms import create_as_written, fault_of, new_event, new_schedule, open_event, visit

pytestmark = pytest.mark.asyncio(loop_scope="session")

SHOW_OTHER = "(select, name) => { select.value = name; select.dispatchEvent(new Event('change')); }"


class Late:
    """The answer to a call, which waits until it is let through. `stopped`: once the call has arrived."""

    def __init__(self) -> None:
        self.stopped, self.may_pass = asyncio.Event(), asyncio.Event()

    async def __call__(self, route: Route) -> None:
        self.stopped.set()
        await self.may_pass.wait()
        await route.continue_()


async def lose(route: Route) -> None:
    """Have the service carry out a call, and lose its answer."""
    await route.fetch()
    await route.abort()


async def schedule_row(look: Look, name: str, query: str = "?view=schedules", key: str = DEMO_KEY) -> Any:
    await visit(look, key, query)
    await look.shows("schedules")
    await look.row("schedules", name).get_by_role("button", name=name, exact=True).click()
    return look.page.get_by_role("dialog")


@pytest.mark.parametrize("verb", ["Edit", "Delete"])
async def test_a_late_answer_opens_nothing_once_a_person_has_turned_to_another_dialog(look: Look, stage: Stage, verb: str) -> None:
    stage.call("PUT", "schedules/slow", {"every": "P1D", "payload": 1})
    dialog = await schedule_row(look, "slow")
    await expect(dialog.locator("tbody tr")).to_have_count(10)
    late = Late()
    await look.page.route("**/v1/schedules/slow", late)
    await dialog.get_by_role("button", name=f"{verb} slow").click()
    await late.stopped.wait()
    await look.page.keyboard.press("Escape")
    await look.panel("schedules").get_by_role("button", name="New schedule").click()
    await dialog.get_by_label("Id", exact=True).fill("being-typed")
    async with look.page.expect_response("**/v1/schedules/slow"):
        late.may_pass.set()
    await look.page.wait_for_function("() => new Promise((done) => setTimeout(() => done(true), 50))")
    await expect(dialog.get_by_role("heading", name="New schedule")).to_be_visible()
    await expect(dialog.get_by_label("Id", exact=True)).to_have_value("being-typed")


async def test_the_last_button_that_was_pressed_counts(look: Look, stage: Stage) -> None:
    stage.call("PUT", "schedules/slow", {"every": "P1D", "payload": 1})
    dialog = await schedule_row(look, "slow")
    await expect(dialog.locator("tbody tr")).to_have_count(10)
    late = Late()
    await look.page.route("**/v1/schedules/slow", late)
    await dialog.get_by_role("button", name="Edit slow").click()
    await dialog.get_by_role("button", name="Delete slow").click()
    late.may_pass.set()
    await expect(dialog.get_by_role("heading", name="Delete slow")).to_be_visible()


async def test_a_form_that_was_closed_while_it_was_saved_opens_nothing_and_its_end_is_told(look: Look, stage: Stage) -> None:
    create_as_written(stage, '{"id": "closed", "due": "2031-01-01T00:00:00Z", "payload": 1}')
    dialog = await open_event(look, "closed")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Payload (JSON)").fill("2")
    late = Late()
    await look.page.route("**/v1/events/closed", late)
    await dialog.get_by_role("button", name="Save the changes").click()
    await late.stopped.wait()
    await look.page.keyboard.press("Escape")
    late.may_pass.set()
    await expect(look.page.locator("#toast")).to_have_text("closed is changed.")
    await expect(dialog).to_be_hidden()


async def test_a_saved_event_is_no_failure_when_it_cannot_be_read_afterwards(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    create_as_written(stage, '{"id": "unread", "due": "2031-01-01T00:00:00Z", "payload": 1}')
    dialog = await open_event(look, "unread")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Payload (JSON)").fill("2")

    async def only_patch(route: Route) -> None:
        await (route.continue_() if route.request.method == "PATCH" else route.abort())

    await look.page.route("**/v1/events/unread", only_patch)
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(look.page.locator("#toast")).to_have_text("unread is changed.")
    await expect(dialog.get_by_role("status")).to_contain_text("does not answer")
    assert stage.call("GET", "events/unread")["payload"] == 2


async def test_an_event_that_changed_meanwhile_is_not_moved_unseen_and_the_chosen_time_stays(look: Look, stage: Stage) -> None:
    look.expected = "412"
    create_as_written(stage, '{"id": "moving", "due": "2031-01-01T00:00:00Z", "payload": 1}')
    dialog = await open_event(look, "moving")
    await dialog.get_by_role("button", name="Move").click()
    await dialog.get_by_label("New due time").fill("2031-03-01T00:00")
    stage.call("PATCH", "events/moving", {"due": "2031-02-01T00:00:00Z"})
    await dialog.get_by_role("button", name="Move the event").click()
    conflict = dialog.get_by_role("alert").filter(has_text="Nothing is saved yet")
    await expect(conflict.get_by_role("row").filter(has_text="due")).to_contain_text("2031-02-01")
    assert stage.call("GET", "events/moving")["due"].startswith("2031-02-01")
    await conflict.get_by_role("button", name="Go on").click()
    await expect(dialog.get_by_label("New due time")).to_have_value(re.compile("^2031-03-01T00:00"))
    await dialog.get_by_role("button", name="Move the event").click()
    await expect(dialog.get_by_role("status").first).to_contain_text("moving is moved.")
    assert stage.call("GET", "events/moving")["due"].startswith("2031-03-01")


async def test_forms_and_dialogs_act_on_the_tenant_for_which_they_were_opened(look: Look, stage: Stage) -> None:
    for name in ("one-tenant", "two-tenant"):
        stage.tenant(name)
        stage.call("PUT", f"schedules/daily?tenant={name}", {"every": "P1D", "payload": name}, ADMIN_KEY)
        stage.call("POST", f"events?tenant={name}", {"id": "mine", "delay": "PT3H", "payload": name}, ADMIN_KEY)
    here, there = ("?tenant=one-tenant", "?tenant=two-tenant")

    def of(path: str, tenant: str) -> Any:
        return stage.call("GET", f"{path}{tenant}", key=ADMIN_KEY)

    turn = look.page.locator("#tenant")
    dialog = await new_event(look, ADMIN_KEY, f"{here}&view=events")
    await dialog.get_by_label("Id (optional)").fill("pinned")
    await dialog.get_by_label("Delay").fill("3h")
    await turn.evaluate(SHOW_OTHER, "two-tenant")
    await dialog.get_by_role("button", name="Create the event").click()
    await expect(dialog.get_by_role("status")).to_contain_text("pinned is scheduled")
    assert [len(of("events", each)["items"]) for each in (here, there)] == [2, 1]
    await dialog.get_by_role("button", name="Open the event").click()
    await expect(look.page.get_by_role("dialog", name="pinned").get_by_role("region", name="Time-line")).to_be_visible()

    await visit(look, ADMIN_KEY, f"{here}&view=events&event=mine")
    await dialog.get_by_role("button", name="Edit").click()
    await dialog.get_by_label("Payload (JSON)").fill('"changed"')
    await turn.evaluate(SHOW_OTHER, "two-tenant")
    await dialog.get_by_role("button", name="Save the changes").click()
    await expect(look.page.locator("#toast")).to_have_text("mine is changed.")
    assert [of("events/mine", each)["payload"] for each in (here, there)] == ["changed", "two-tenant"]

    dialog = await schedule_row(look, "daily", f"{here}&view=schedules", ADMIN_KEY)
    await turn.evaluate(SHOW_OTHER, "two-tenant")
    await dialog.get_by_role("button", name="Edit daily").click()
    await dialog.get_by_label("Payload (JSON)").fill('"changed"')
    await dialog.get_by_role("button", name="Save the schedule").click()
    await expect(look.page.locator("#toast")).to_have_text("daily is stored.")
    assert [of("schedules/daily", each)["payload"] for each in (here, there)] == ["changed", "two-tenant"]
    await expect(dialog).to_contain_text('"changed"')
    await dialog.get_by_role("button", name="Pause daily").click()
    await dialog.get_by_role("button", name="Pause", exact=True).click()
    await expect(look.page.locator("#toast")).to_have_text("daily is paused.")
    assert [of("schedules/daily", each)["paused"] for each in (here, there)] == [True, False]


async def test_a_trigger_whose_answer_was_lost_makes_one_event(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    stage.call("PUT", "schedules/once", {"every": "P1D", "payload": 1})
    dialog = await schedule_row(look, "once")
    await dialog.get_by_role("button", name="Trigger once").click()
    made: list[str] = []

    async def lose_the_id(route: Route) -> None:
        made.append((await (await route.fetch()).json())["id"])
        await route.abort()

    await look.page.route("**/once/trigger", lose_the_id)
    button = dialog.get_by_role("button", name="Deliver one event now")
    await button.click()
    await expect(dialog.get_by_role("alert")).to_contain_text("It may have been done nevertheless. Press again: it is not done twice.")
    await look.fits("a lost answer")
    await look.page.unroute("**/once/trigger")
    async with look.page.expect_response("**/once/trigger") as answered:
        await button.click()
    await expect(look.page.locator("#toast")).to_contain_text("is due now.")
    assert [(await (await answered.value).json())["id"]] == made


async def test_a_backfill_whose_answer_was_lost_doubles_no_event(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    stage.call("PUT", "schedules/filled", {"every": "P1D", "start": "2026-01-01T00:00:00Z", "payload": 1})
    dialog = await schedule_row(look, "filled")
    await dialog.get_by_role("button", name="Backfill filled").click()
    await dialog.get_by_label("From").fill("2026-02-01T00:00")
    await dialog.get_by_label("Before").fill("2026-02-04T00:00")
    await dialog.get_by_label("Spread over").fill("20h")
    await look.page.route("**/filled/backfill", lose)
    button = dialog.get_by_role("button", name="Create the events")
    await button.click()
    await expect(dialog.get_by_role("alert")).to_contain_text("it is not done twice")
    await look.page.unroute("**/filled/backfill")
    await button.click()
    await expect(look.page.locator("#toast")).to_have_text("0 events created; 3 there already.")
    # The first of them may be delivered by now, and is then in no list.
    names = [each["id"] for each in stage.listed("events?id_prefix=filled:202602")]
    assert {name.partition("~")[0] for name in names} >= {"filled:20260202T000000Z", "filled:20260203T000000Z"}
    assert len({name.partition("~")[2] for name in names}) == 1


async def test_a_rotation_whose_answer_was_lost_keeps_the_secret_that_the_receiver_has(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    where = channel(stage, "losing")
    await opened(look, "losing")
    await look.panel("channels").get_by_role("button", name="default", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Rotate secret default").click()
    await look.page.route("**/secret/rotate", lose)
    await dialog.get_by_role("button", name="Create a new secret").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("it is not done twice")
    rotated = stage.call("GET", where, key=ADMIN_KEY)["rotated_at"]
    # Also in a dialog that is opened anew.
    await look.page.keyboard.press("Escape")
    await look.page.unroute("**/secret/rotate")
    await look.panel("channels").get_by_role("button", name="default", exact=True).click()
    await dialog.get_by_role("button", name="Rotate secret default").click()
    await expect(dialog).to_contain_text("The answer to the last attempt was lost.")
    await dialog.get_by_role("button", name="Show the new secret").click()
    await expect(dialog).to_contain_text("It is shown only here")
    assert stage.call("GET", where, key=ADMIN_KEY)["rotated_at"] == rotated
    # The next rotation is another one, and says what it ends.
    await look.page.keyboard.press("Escape")
    await look.panel("channels").get_by_role("button", name="default", exact=True).click()
    await dialog.get_by_role("button", name="Rotate secret default").click()
    await expect(dialog).to_contain_text("this rotation ends it at once")
    await dialog.get_by_role("button", name="Create a new secret").click()
    await expect(dialog).to_contain_text("It is shown only here")
    assert stage.call("GET", where, key=ADMIN_KEY)["rotated_at"] != rotated


async def test_a_late_secret_waits_for_the_dialog_that_is_open_by_then(look: Look, stage: Stage) -> None:
    channel(stage, "secretly-late")
    await opened(look, "secretly-late")
    await look.panel("channels").get_by_role("button", name="default", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await dialog.get_by_role("button", name="Rotate secret default").click()
    late = Late()
    await look.page.route("**/secret/rotate", late)
    await dialog.get_by_role("button", name="Create a new secret").click()
    await late.stopped.wait()
    await look.page.keyboard.press("Escape")
    await look.panel("channels").get_by_role("button", name="Pause default").click()
    await dialog.get_by_label("Reason").fill("being typed")
    async with look.page.expect_response("**/secret/rotate"):
        late.may_pass.set()
    await expect(dialog.get_by_label("Reason")).to_have_value("being typed")
    await look.page.keyboard.press("Escape")
    await expect(dialog).to_contain_text("It is shown only here")
    # With the key, what it has asked for is forgotten.
    late.stopped.clear()
    late.may_pass.clear()
    await look.page.keyboard.press("Escape")
    await look.panel("channels").get_by_role("button", name="default", exact=True).click()
    await dialog.get_by_role("button", name="Rotate secret default").click()
    await dialog.get_by_role("button", name="Create a new secret").click()
    await late.stopped.wait()
    await look.page.keyboard.press("Escape")
    await look.page.get_by_role("button", name="Forget key").click()
    async with look.page.expect_response("**/secret/rotate"):
        late.may_pass.set()
    await expect(look.page.locator("#gate")).to_be_visible()
    await expect(dialog).to_be_hidden()


async def test_a_test_whose_answer_was_lost_is_delivered_once(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED"
    channel(stage, "tested-once")
    await opened(look, "tested-once")
    await look.page.get_by_role("button", name="Send test default").click()
    dialog = look.page.get_by_role("dialog")
    await look.page.route("**/v1/events?*", lose)
    await dialog.get_by_role("button", name="Send the test").click()
    await expect(dialog.get_by_role("status")).to_contain_text("it is not done twice")
    await look.page.unroute("**/v1/events?*")
    await dialog.get_by_role("button", name="Send another").click()
    await expect(dialog.get_by_role("status")).to_contain_text("the receiver answered 204.")
    assert len([hit for hit in stage.receiver.hits if hit.path == "/tested-once"]) == 1
    await dialog.get_by_role("button", name="Send another").click()
    await eventually(lambda: len([hit for hit in stage.receiver.hits if hit.path == "/tested-once"]) == 2, "the second test")


async def test_of_two_pages_that_create_a_schedule_the_second_replaces_nothing(look: Look, stage: Stage) -> None:
    look.expected = "412"
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("both-pages")
    late = Late()
    await look.page.route("**/v1/schedules/both-pages*", late)
    await dialog.get_by_role("button", name="Create the schedule").click()
    await late.stopped.wait()
    # The other page is faster.
    stage.call("PUT", "schedules/both-pages", {"every": "P1D", "payload": "the other page's"})
    late.may_pass.set()
    await expect(fault_of(dialog, "Id")).to_contain_text("There is a schedule with this id already")
    assert stage.call("GET", "schedules/both-pages")["payload"] == "the other page's"
    await look.fits("a taken id")
    await dialog.get_by_role("button", name="Show that schedule").click()
    await expect(dialog).to_contain_text("the other page's")


async def test_a_new_schedule_whose_answer_was_lost_is_named_as_such(look: Look, stage: Stage) -> None:
    look.expected = "net::ERR_FAILED|412"
    dialog = await new_schedule(look)
    await dialog.get_by_label("Id", exact=True).fill("half-known")
    await look.page.route("**/v1/schedules/half-known*", lose)
    await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("does not answer")
    await look.page.unroute("**/v1/schedules/half-known*")
    await dialog.get_by_role("button", name="Create the schedule").click()
    await expect(fault_of(dialog, "Id")).to_contain_text("whose answer was lost, may have stored it")
    await dialog.get_by_role("button", name="Show that schedule").click()
    await expect(dialog.get_by_role("button", name="Edit half-known")).to_be_visible()
