"""The panels of the dashboard: the data that they show, and the actions of their buttons."""

from __future__ import annotations

import json
import math
import re
from typing import Any
from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

import pytest
from playwright.async_api import Route

from tests.integration.scheduler.conftest import ADMIN_KEY, now_ms, text_of
from tests.waiting import eventually

from .page import PANELS, Look, chart_label, expect
from .stage import DEMO_KEY, EVIL, FLEET, FREEZE, NODES, PARTITIONS, REBOOT, Stage

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_every_panel_shows_what_the_api_holds(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY)
    for panel in PANELS:
        await look.shows(panel)
    stats = stage.call("GET", "stats")
    for name, count in (("open", stats["open"]), ("retrying", 1), ("delivered, 24 h", stats["delivered"]), ("unaccounted events, 1 h", 0)):
        await expect(look.panel("now").locator(f'.tile[data-name="{name}"] b')).to_have_text(f"{count:,}")
    planned = sum(each["scheduled"] for each in stage.call("GET", "load")["items"])
    assert planned >= 300
    assert int((await chart_label(look.page, "due")).split(", ")[-1].removesuffix(" planned")) >= 300
    delivered = sum(each["delivered"] for each in stage.call("GET", "history")["items"])
    assert (await chart_label(look.page, "due")).startswith(f"Events per minute: {delivered} delivered, ")
    assert "Lateness over " in await chart_label(look.page, "late")
    await expect(look.row("dead", "bill-1")).to_contain_text("400")
    await expect(look.row("dead", "patient")).to_contain_text("503")


async def test_partitions_are_shown_with_their_servers_and_looked_up(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY)
    panel = await look.shows("leases")
    await expect(panel.locator(".cell")).to_have_count(PARTITIONS)
    for node in stage.call("GET", f"fleets/{FLEET}/leases?by=server")["items"]:
        server = panel.locator(f'[data-server="{node["server"]}"]')
        await expect(server.locator(".cell")).to_have_count(len(node["partitions"]))
        await expect(server.get_by_text("load")).to_have_count(0 if node["load"] is None else 1)
        if node["load"] is not None:
            await expect(server).to_contain_text(f"load {math.floor(node['load'])}.")
    await expect(panel.locator('[data-partition="4"]')).to_have_attribute("title", re.compile("load 12.17"))
    await expect(panel).to_contain_text("2 without an owner")
    await expect(panel.locator('[data-server="n3"]')).to_contain_text("drain")
    await panel.get_by_label("Partition", exact=True).fill("4")
    await panel.get_by_role("button", name="Look up").click()
    dialog = look.page.get_by_role("dialog", name="Partition 4")
    await expect(dialog).to_contain_text(NODES[4 % 3])
    await expect(dialog).to_contain_text("12.17")
    await look.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()


async def test_turns_and_their_replicas_are_shown(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY)
    panel = await look.shows("turns")
    await expect(panel.locator(".sum")).to_contain_text("Latest checkpoint: sequence 81,231")
    turns = stage.call("GET", f"fleets/{FLEET}/turns")["items"]
    assert (await chart_label(look.page, "turns")).startswith("Turns of 3 replicas: ")
    await expect(look.row("turns", "81,231").filter(has_text="done")).to_contain_text(turns[-1]["holder"])
    await expect(look.row("turns", "primary").first).to_contain_text("n1")


async def test_locks_are_shown_where_there_are_some(look: Look, stage: Stage) -> None:
    stage.call("PUT", "tenants/lockless", {}, ADMIN_KEY)
    await look.open(ADMIN_KEY, "?tenant=lockless")
    await look.shows("locks", "empty")
    await expect(look.panel("locks")).to_be_hidden()
    await look.page.locator("#tenant").select_option("demo")
    panel = await look.shows("locks")
    await expect(panel.locator(".sum")).to_have_text("2 locks, 2 held.")
    for name, state in (("nightly", "held"), ("report", "revoked")):
        row = look.row("locks", name)
        token = str(stage.call("GET", f"locks/{name}")["token"])
        for text in (state, "web-1", token):
            await expect(row).to_contain_text(text)
    await expect(look.row("locks", "report")).to_contain_text(EVIL)


async def test_redrive_brings_a_dead_letter_back(look: Look, stage: Stage) -> None:
    stage.die("one-more")
    await look.open(DEMO_KEY)
    row = look.row("dead", "one-more")
    await row.get_by_role("button", name="Redrive one-more").click()
    await expect(row).to_have_count(0)
    assert stage.until(lambda: stage.call("GET", "events/one-more")["state"] == "delivered", "its delivery")


async def test_redrive_of_all_asks_first(look: Look, stage: Stage) -> None:
    stage.tenant("many", "a", "b")
    await look.open(ADMIN_KEY, "?tenant=many")
    panel = await look.shows("dead")
    await expect(panel.locator("tbody tr")).to_have_count(2)
    await panel.get_by_role("button", name="Redrive all").dblclick()
    dialog = look.page.get_by_role("dialog", name="Redrive all")
    await expect(dialog).to_contain_text("2 dead events")
    await look.page.keyboard.press("Escape")
    await expect(dialog).to_be_hidden()
    assert len(stage.call("GET", "dead-letters?tenant=many", key=ADMIN_KEY)["items"]) == 2
    await panel.get_by_role("button", name="Redrive all").click()
    await dialog.get_by_role("button", name="Redrive all of them").click()
    await look.shows("dead", "empty")
    stage.until(lambda: stage.call("GET", "stats?tenant=many", key=ADMIN_KEY)["delivered"] == 2, "their delivery")


async def test_approve_and_hold_are_sent_to_the_service(look: Look, stage: Stage) -> None:
    await look.page.set_viewport_size({"width": 1700, "height": 900})
    await look.open(DEMO_KEY)
    panel = await look.shows("maintenance")
    assert (await chart_label(look.page, "maintenance")).startswith("Maintenance of 3 nodes: 2 open events")
    for event_id, verb, state, act in ((FREEZE, "Approve", "granted", "approve"), (REBOOT, "Hold", "held", "hold")):
        await panel.get_by_role("button", name=f"{verb} {event_id}").click()
        dialog = look.page.get_by_role("dialog")
        # A mark that turns the direction of what follows it.
        await dialog.get_by_label("Reason").fill(f"\u202e{act}d by hand")
        await dialog.get_by_role("button", name=verb, exact=True).click()
        card = panel.locator(f'[data-event="{event_id}"]')
        await expect(look.page.locator("#toast")).to_have_text(f"{event_id} is {state}.")
        await expect(card).to_contain_text(f"{state} by")
        reason, code = [await card.locator(each).last.bounding_box() for each in ("bdi", "code")]
        assert reason and code and reason["x"] + reason["width"] <= code["x"] + 1
        approval = stage.call("GET", f"fleets/{FLEET}/maintenance/events/{event_id}")["approval"]
        assert (approval["state"], approval["reason"]) == (state, f"\u202e{act}d by hand")


async def test_the_story_of_an_event_lists_the_steps_of_all_nodes_in_order_of_time(look: Look, stage: Stage) -> None:
    await look.open(DEMO_KEY)
    panel = await look.shows("maintenance")
    await panel.get_by_role("button", name=f"Story of {FREEZE}").click()
    dialog = look.page.get_by_role("dialog")
    rows = dialog.locator("tbody tr")
    steps = stage.call("GET", f"fleets/{FLEET}/maintenance/events/{FREEZE}/story")["items"]
    await expect(rows).to_have_count(len(steps))
    assert len(steps) >= 2
    for number, step in enumerate(steps):
        await expect(rows.nth(number)).to_contain_text(step["text"])
        await expect(rows.nth(number)).to_contain_text(step["node"] or "all")
    await look.page.keyboard.press("Escape")
    await expect(panel.get_by_role("button", name=f"Story of {FREEZE}")).to_be_focused()


async def test_a_refusal_of_the_service_is_shown_where_it_was_asked(look: Look) -> None:
    look.expected = "409"
    await look.open(DEMO_KEY)
    panel = await look.shows("dead")

    async def refuse(route: Route) -> None:
        problem = {"type": "x/not-dead", "title": "Not dead", "status": 409, "detail": f"no {EVIL}"}
        await route.fulfill(status=409, content_type="application/problem+json", body=json.dumps(problem))

    await look.page.route("**/redrive*", refuse)
    button = panel.get_by_role("button", name="Redrive bill-0")
    await button.focus()
    await look.page.keyboard.press("Enter")
    await expect(panel.get_by_role("alert")).to_have_text(f"bill-0: Not dead: no {EVIL}")
    await expect(button).to_be_focused()


async def test_the_focus_goes_back_to_what_was_recreated_behind_a_dialog(look: Look) -> None:
    event_id = str(uuid4())
    await look.page.route("**/maintenance/events?*", lambda route: scheduled(route, event_id))
    await look.open(DEMO_KEY)
    button = look.page.get_by_role("button", name=f"Hold {event_id}")
    await button.focus()
    await look.page.keyboard.press("Enter")
    await expect(look.page.get_by_role("dialog")).to_be_visible()
    before = await look.page.locator(f'[data-event="{event_id}"]').element_handle()
    assert before
    await look.page.wait_for_function("(card) => !card.isConnected", arg=before)
    await look.page.keyboard.press("Escape")
    await expect(button).to_be_focused()


async def test_what_was_refused_in_a_dialog_is_reported_there_and_may_be_tried_again(look: Look) -> None:
    look.expected = "409"
    sent = 0

    async def refuse(route: Route) -> None:
        nonlocal sent
        sent += 1
        problem = {"type": "x/already-started", "title": "Already started", "status": 409, "detail": f"no {EVIL}"}
        await route.fulfill(status=409, content_type="application/problem+json", body=json.dumps(problem))

    event_id = str(uuid4())
    await look.page.route("**/approve*", refuse)
    await look.page.route("**/maintenance/events?*", lambda route: scheduled(route, event_id))
    await look.open(DEMO_KEY)
    await look.page.get_by_role("button", name=f"Approve {event_id}").click()
    dialog = look.page.get_by_role("dialog")
    button = dialog.get_by_role("button", name="Approve", exact=True)
    await button.dblclick()
    await expect(dialog.get_by_role("alert")).to_have_text(f"Already started: no {EVIL}")
    await expect(button).to_be_enabled()
    assert sent == 1


async def scheduled(route: Route, event_id: str) -> None:
    """One scheduled event in place of the service's."""
    event = {"event_id": event_id, "type": "Freeze", "status": "scheduled", "scope": "set", "source": "Platform", "duration_s": 9}
    event |= {"not_before": text_of(now_ms() + 600_000), "resources": [], "first_seen": text_of(now_ms()), "rehearsal": False}
    event |= {"nodes": {"n1": {"phase": "PREPARED"}}, "approval": None, "alarms": [], "impact": {"lasted_ms": None}}
    await route.fulfill(json={"items": [event], "next": None})


MEASURED: dict[str, Any] = {
    "verdict": "passed",
    "passed": ["while a fault domain catches up: p99 is 410 ms, and the bound 250 ms"],
    "bound": {"p99_ms": 250, "failures": 0.01},
    "phases": {
        "before": {"probes": 600, "failures": 0, "p50_ms": 3.2, "p99_ms": 21.53},
        "out": {"probes": 120, "failures": 1, "p50_ms": 6.4, "p99_ms": 43.05},
        "one_node": {"probes": 840, "failures": 0, "p50_ms": 25.6, "p99_ms": 121.77},
        "domain": {"probes": 300, "failures": 2, "p50_ms": 86.11, "p99_ms": 409.6},
        "some_later_phase": {"probes": 1, "failures": 0, "p50_ms": 1.0, "p99_ms": 1.0},
    },
    "nodes": ["n2", "n3"],
}


async def measured(route: Route) -> None:
    """The service's events, and one that is over and for which agents probed as callers."""
    items = (await (await route.fetch()).json())["items"]
    event = {"event_id": str(uuid4()), "type": "Freeze", "status": "completed", "scope": "set", "source": "Platform", "duration_s": 9}
    event |= {"not_before": text_of(now_ms() - 300_000), "resources": ["vm_n1"], "first_seen": text_of(now_ms() - 600_000)}
    event |= {"started": text_of(now_ms() - 290_000), "ended": text_of(now_ms() - 280_000), "rehearsal": True}
    event |= {"nodes": {"n1": {"phase": "DONE"}, "n4": {"phase": "DONE"}}, "approval": None, "alarms": ["callers-affected"]}
    event |= {"impact": {"lasted_ms": 10_000}, "catch_up_ms": {"n1": 42_000, "n4": 65_000}, "probe": MEASURED}
    await route.fulfill(json={"items": [*items, event], "next": None})


async def test_callers_latency_of_an_event_is_shown_by_phase_beside_its_bound(look: Look) -> None:
    await look.page.route("**/maintenance/events?*", measured)
    await look.open(DEMO_KEY)
    panel = await look.shows("maintenance")
    callers = panel.locator(".callers")
    await expect(callers).to_contain_text(
        "a bound is passed p99 of at most 250 ms, at most 1 % failures; caught up: n1 42.0 s, n4 1 min 5 s"
    )
    await expect(callers.locator("tbody tr")).to_have_count(4)
    await expect(callers.locator("tbody tr").last).to_contain_text("a fault domain catches up")
    widths = [(await part.bounding_box() or {"width": 0})["width"] for part in await callers.locator(".p99").all()]
    assert widths == sorted(widths) and widths[0] < widths[-1] / 10


async def test_redrive_of_all_goes_on_until_none_is_left_and_shows_how_far_it_came(look: Look) -> None:
    look.expected = "503"
    asked: list[Any] = []

    async def redrive(route: Route) -> None:
        asked.append(route.request.post_data_json)
        if len(asked) <= 2:
            return await route.fulfill(status=202, json={"redriven": 400})
        problem = {"type": "x/unavailable", "title": "Unavailable", "status": 503, "detail": "storage does not answer"}
        await route.fulfill(status=503, content_type="application/problem+json", body=json.dumps(problem))

    await look.page.route("**/dead-letters/redrive*", redrive)
    await look.open(DEMO_KEY)
    await (await look.shows("dead")).get_by_role("button", name="Redrive all").click()
    dialog = look.page.get_by_role("dialog", name="Redrive all")
    await dialog.get_by_role("button", name="Redrive all of them").click()
    await expect(dialog.get_by_role("alert")).to_have_text("800 events redriven. Unavailable: storage does not answer")
    # One range for all calls: what dies again meanwhile is not in it.
    assert len(asked) == 3 and asked[0] == asked[1] == asked[2] and set(asked[0]) == {"from", "to"}


async def test_more_dead_letters_are_shown_when_asked_for(look: Look) -> None:
    async def letters(route: Route) -> None:
        limit = int(parse_qs(urlsplit(route.request.url).query)["limit"][0])
        event = {"tenant": "demo", "state": "dead", "created": text_of(now_ms()), "payload": None, "channel": "default", "error": "expired"}
        items = [{**event, "id": f"{number}{'x' * 190}", "due": text_of(now_ms())} for number in range(100, 100 + min(150, limit))]
        await route.fulfill(json={"items": items, "next": "on" if limit < 150 else None})

    await look.page.route("**/api/v1/dead-letters*", letters)
    await look.open(DEMO_KEY)
    panel = await look.shows("dead")
    rows = look.row("dead", "expired")
    await expect(rows).to_have_count(100)
    await expect(panel.get_by_role("heading", name="100+ dead")).to_be_visible()
    await panel.get_by_role("button", name="Show 100 more").click()
    await expect(rows).to_have_count(150)
    await expect(panel.get_by_role("heading", name="150 dead")).to_be_visible()
    await expect(panel.get_by_role("button", name="Show 100 more")).to_have_count(0)


async def test_of_300_fleets_those_that_need_a_person_come_first_and_are_opened_by_a_click(look: Look) -> None:
    urgent = {
        "source": "leases",
        "what": "unserved",
        "count": 1200,
        "text": "1,200 partitions without an owner",
        "subjects": [EVIL[:60], "5", "6", "7"],
        "since": text_of(now_ms()),
    }
    waiting = {"source": "approvals", "what": "waiting", "count": 2, "text": "2 approvals waiting", "subjects": [], "since": None}
    fleets = [{"fleet": f"cluster-{number:03d}", "agents": 150, "open_events": 51} for number in range(60)]
    items = [{**each, "urgency": "soon", "needs": [waiting]} for each in fleets]
    items[0] |= {"urgency": "urgent", "needs": [urgent]}
    items[3]["fleet"] = FLEET
    asked: list[int] = []

    async def overview(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        if "names" in query:
            await route.continue_()
            return
        limit = int(query["limit"][0])
        asked.append(limit)
        more = "more" if limit < len(items) else None
        await route.fulfill(json={"items": items[:limit], "next": more, "fleets": 300, "quiet": 240, "in_maintenance": 60})

    await look.page.route("**/api/v1/fleet-overview*", overview)
    await look.open(DEMO_KEY)
    panel = await look.shows("fleets")
    await expect(panel.locator(".sum")).to_have_text("300 fleets. 60 need attention 240 quiet 60 with open Scheduled Events")
    rows = panel.locator("tbody tr")
    await expect(rows).to_have_count(50)
    await expect(rows.first).to_contain_text("1,200 partitions without an owner")
    await expect(rows.nth(1)).to_contain_text("2 approvals waiting")
    await panel.get_by_role("button", name="Show 10 more").click()
    await expect(rows).to_have_count(60)
    await panel.get_by_role("button", name=FLEET, exact=True).click()
    await expect(look.page.locator("#fleet")).to_have_value(FLEET)
    await expect(panel.get_by_role("button", name=FLEET, exact=True)).to_have_attribute("aria-pressed", "true")
    assert set(asked) == {50, 100}, "one request for a page, whatever the number of fleets"


async def test_administrative_calls_are_shown_to_administrators_alone(look: Look, stage: Stage) -> None:
    channel = "tenants/demo/channels/audited"
    for timeout in ("PT5S", "PT7S"):
        stage.call("PUT", channel, {"type": "http", "url": stage.receiver.url("/audited"), "timeout": timeout}, ADMIN_KEY)
    await look.open(DEMO_KEY)
    await look.shows("health")
    await expect(look.panel("audit")).to_have_count(0)
    await look.page.get_by_role("button", name="Forget key").click()
    await look.open(ADMIN_KEY, "?tenant=demo&view=audit")
    await look.shows("audit")
    row = look.row("audit", "timeout: ").filter(has_text="PT7S").first
    await expect(row).to_contain_text("bootstrap")
    await row.get_by_role("button", name="channels_put").click()
    dialog = look.page.get_by_role("dialog", name="channels_put")
    await expect(dialog.get_by_role("row").filter(has_text="timeout")).to_contain_text('"PT5S"')
    await look.page.keyboard.press("Escape")
    await expect(row.get_by_role("button")).to_be_focused()


async def test_an_event_is_found_and_cancelled_moved_or_fired(look: Look, stage: Stage) -> None:
    events = [{"id": f"found-{number}", "delay": "PT3H", "payload": None, "labels": {"team": "search"}} for number in range(3)]
    stage.call("POST", "events/batch", events)
    await look.open(DEMO_KEY, "?view=events")
    panel = await look.shows("search")
    await panel.get_by_label("Labels").fill("team=search")
    await panel.get_by_role("button", name="Search").click()
    await expect(panel.locator(".sum")).to_have_text("3 events, sorted by due time. That is all.")
    dialog = look.page.get_by_role("dialog")

    async def act(event_id: str, verb: str, confirm: str) -> None:
        await look.row("search", event_id).get_by_role("button").click()
        await dialog.get_by_role("button", name=verb).click()
        if verb == "Move":
            await dialog.get_by_label("New due time").fill("2031-01-01T12:30:15")
        await dialog.get_by_role("button", name=confirm).click()
        await expect(dialog.get_by_role("status")).to_contain_text(event_id)
        # The page gives the focus back once it has drawn the event anew.
        await eventually(lambda: dialog.evaluate("(dialog) => dialog.contains(document.activeElement)"), "the focus inside the dialog")
        await look.page.keyboard.press("Escape")
        await expect(look.row("search", event_id).get_by_role("button")).to_be_focused()

    await act("found-0", "Cancel", "Cancel the event")
    await expect(look.row("search", "found-0")).to_contain_text("cancelled")
    await act("found-1", "Move", "Move the event")
    assert stage.call("GET", "events/found-1")["due"] == "2031-01-01T12:30:15.000Z"
    await act("found-2", "Fire now", "Deliver it now")
    stage.until(lambda: stage.call("GET", "events/found-2")["state"] == "delivered", "its delivery")


async def test_a_search_says_how_much_it_shows_and_whether_it_is_complete(look: Look) -> None:
    async def events(route: Route) -> None:
        query = parse_qs(urlsplit(route.request.url).query)
        now = text_of(now_ms())
        event = {"tenant": "demo", "state": "retrying", "due": now, "created": now, "error": EVIL, "channel": EVIL}
        if "cursor" not in query:
            items = [{**event, "id": f"{number:03}{EVIL}"} for number in range(int(query["limit"][0]))]
            await route.fulfill(json={"items": items, "next": "one"})
        else:
            items = [{**event, "id": "last"}] if query["cursor"] == ["one"] else []
            await route.fulfill(json={"items": items, "next": "more", "incomplete": True})

    async def stats(route: Route) -> None:
        answer = await route.fetch()
        await route.fulfill(response=answer, json={**await answer.json(), "retrying": 27_000})

    await look.page.route("**/api/v1/events?*", events)
    await look.page.route("**/api/v1/stats*", stats)
    await look.open(DEMO_KEY, "?view=events")
    panel = await look.shows("search")
    await panel.get_by_label("State").select_option("retrying")
    await panel.get_by_role("button", name="Search").click()
    await expect(panel.locator(".sum")).to_have_text("Showing 100 of 27,000 events, sorted by due time among those shown. There are more.")
    await panel.get_by_role("button", name="Show 100 more").click()
    await expect(panel.locator(".sum")).to_contain_text("Showing 101 events so far. The search is not complete")
    await expect(panel.get_by_role("button", name="Search on")).to_be_focused()
    await expect(panel.locator("img, script")).to_have_count(0)


async def test_a_schedule_shows_its_next_occurrences_and_is_paused_and_resumed(look: Look, stage: Stage) -> None:
    look.expected = "422"

    async def more(route: Route) -> None:
        answer = await (await route.fetch()).json()
        over = {**answer["items"][0], "id": "over", "paused": False, "next": None}
        late = {**over, "id": "late", "next": text_of(now_ms()), "missed": text_of(now_ms() - 120_000)}
        await route.fulfill(json={**answer, "items": [*answer["items"], over, late]})

    async def skipped(route: Route) -> None:
        answer = await (await route.fetch()).json()
        await route.fulfill(json={**answer, "skipped": {"count": 1200, "last": text_of(now_ms() - 120_000)}})

    await look.page.route("**/api/v1/schedules?*", more)
    await look.page.route("**/api/v1/schedules/prices", skipped)
    await look.open(DEMO_KEY, "?view=schedules")
    await look.shows("schedules")
    for schedule, state in (("over", "ended"), ("late", "missed since"), ("prices", "paused"), ("new-year", "active")):
        await expect(look.row("schedules", schedule)).to_contain_text(state)
    await look.row("schedules", "new-year").get_by_role("button", name="new-year", exact=True).click()
    dialog = look.page.get_by_role("dialog")
    await expect(dialog.locator("tbody tr")).to_have_count(10)
    await expect(dialog.locator("tbody tr").first).to_contain_text("-01-01 00:00:00 UTC+01:00")
    await expect(dialog.get_by_label("Payload")).to_contain_text(json.dumps(EVIL))
    await dialog.get_by_role("button", name="Pause").click()
    await dialog.get_by_role("button", name="Pause").click()
    await expect(look.row("schedules", "new-year")).to_contain_text("paused")
    assert stage.call("GET", "schedules/new-year")["paused"] is True
    await look.row("schedules", "new-year").get_by_role("button", name="Resume").click()
    await dialog.get_by_role("button", name="Resume").click()
    await expect(look.page.locator("#toast")).to_have_text("new-year is resumed.")
    await expect(look.row("schedules", "new-year").get_by_role("button", name="Pause")).to_be_focused()
    await look.row("schedules", "prices").get_by_role("button", name="prices", exact=True).click()
    await expect(dialog).to_contain_text("skip, 1,200 occurrences skipped, the last due ")
    await expect(dialog).to_contain_text("dead: default")
    await look.fits("a schedule that skips")
    await dialog.get_by_role("button", name="Backfill").click()
    await dialog.get_by_label("From").fill("2031-01-01T00:00:00")
    await dialog.get_by_role("button", name="Create the events").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("must be later than from")


async def test_heartbeat_monitors_are_found_from_the_schedules(look: Look, stage: Stage) -> None:
    stage.call("POST", "heartbeats/backup", {"within": "P1D"})
    await look.open(DEMO_KEY, "?view=schedules")
    await look.page.get_by_role("button", name="Show heartbeat monitors").click()
    await expect(look.row("search", "heartbeat:backup")).to_be_visible()
    await expect(look.panel("search").get_by_label("Id begins with")).to_have_value("heartbeat:")
    await expect(look.page.get_by_role("link", name="Events")).to_be_focused()
    await look.page.go_back()
    await look.shows("schedules")
    await expect(look.panel("schedules")).to_be_visible()
