"""Event Grid as a source of maintenance events: its deliveries, odd ones, and its subscription."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.harness import World

from ..calls import changes_nothing
from .agents import DB, OTHER, Agent, agents, all_report, delivery, event, tick


async def test_event_grid_is_a_source_beside_the_agents_and_knows_how_events_end(db: World) -> None:
    url = f"{DB}/maintenance/eventgrid"
    (a,) = agents(db, "a")
    await a.reports()
    assert (await db.demo.post(url, [delivery("Scheduled")])).status == 200
    found = await event(db.demo)
    assert (found["status"], found["resources"], found["scope"], found["not_before"]) == (
        "scheduled",
        ["vm_a"],
        "set",
        "2033-09-19T18:29:47.000Z",
    )
    a.sees("WAITING")
    await a.reports()
    assert (await db.demo.post(url, [delivery("Canceled")])).status == 200
    await tick(db)
    assert (await event(db.demo))["status"] == "scheduled", "an agent still lists it"
    a.sees_no_more()
    await a.reports()
    assert (await event(db.demo))["status"] == "cancelled"


async def test_one_object_of_event_grid_is_taken_like_an_array_of_one(db: World) -> None:
    await all_report(*agents(db, "a"))
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", delivery("Scheduled", Resources=["VM_A"]))).status == 200
    found = await event(db.demo)
    assert (found["status"], found["scope"]) == ("scheduled", "set")


async def test_event_grid_alone_can_bring_an_event_to_its_end(db: World) -> None:
    url = f"{DB}/maintenance/eventgrid"
    a, b = agents(db, "a", "b")
    await all_report(a, b)
    for status in ("Scheduled", "Started", "Completed"):
        assert (await db.demo.post(url, [delivery(status)])).status == 200
    await tick(db)
    assert (await event(db.demo))["status"] == "completed"


@pytest.mark.parametrize(
    "other",
    [
        delivery("Scheduled", Resources=["elsewhere"]),
        delivery("Scheduled", ResourceType="ManagedCluster"),
        delivery("Started", EventId=17),
        delivery("Paused"),
        delivery("Scheduled", Resources="vm_a"),
        {"eventType": "Microsoft.Storage.BlobCreated", "data": {}},
        {"eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted", "data": None},
        {"eventType": "Microsoft.ResourceNotifications.MaintenanceResources.ScheduledEventEmitted", "data": {"resourceInfo": []}},
        "text",
        None,
        [],
    ],
)
async def test_other_shapes_of_deliveries_are_taken_and_ignored(db: World, other: Any) -> None:
    await Agent(db.demo, "a").reports()
    answer = await changes_nothing(db.demo, "POST", f"{DB}/maintenance/eventgrid", [other])
    assert answer.status == 200


async def test_a_subscription_of_event_grid_is_validated(db: World) -> None:
    asked = {"id": "1", "eventType": "Microsoft.EventGrid.SubscriptionValidationEvent", "data": {"validationCode": "512d38b6"}}
    answer = await db.demo.post(f"{DB}/maintenance/eventgrid", [asked])
    assert (answer.status, answer.json()) == (200, {"validationResponse": "512d38b6"})
    alone = await db.demo.post(f"{DB}/maintenance/eventgrid", asked)
    assert (alone.status, alone.json()) == (200, {"validationResponse": "512d38b6"})
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", "text")).status == 422
    assert (await db.nobody.post(f"{DB}/maintenance/eventgrid", [asked])).status == 401


@pytest.mark.parametrize(
    "odd",
    [
        delivery([]),
        delivery({}),
        delivery("Scheduled", "a/b"),
        delivery("Scheduled", "a\u0001b"),
        delivery("Scheduled", "a b#?"),
        delivery("Scheduled", Resources=["vm_a", "x" * 129]),
        delivery("Scheduled", Resources=["vm_a", ""]),
    ],
)
async def test_odd_deliveries_are_taken_and_ignored(db: World, odd: Any) -> None:
    (a,) = agents(db, "a")
    await a.reports()
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", [odd, delivery("Scheduled", OTHER)])).status == 200
    assert [each["event_id"] for each in await db.demo.all(f"{DB}/maintenance/events")] == [OTHER]


async def test_every_delivery_of_a_large_call_is_kept(db: World) -> None:
    (a,) = agents(db, "a")
    await a.reports()
    many = [delivery("Scheduled", f"e{number}") for number in range(250)]
    assert (await db.demo.post(f"{DB}/maintenance/eventgrid", many)).status == 200
    assert len(await db.demo.all(f"{DB}/maintenance/events?limit=1000")) == 250


async def test_event_grid_alone_may_put_an_event_off(db: World) -> None:
    (a,) = agents(db, "a")
    await a.reports()
    await db.demo.post(f"{DB}/maintenance/eventgrid", [delivery("Scheduled")])
    await db.demo.post(f"{DB}/maintenance/eventgrid", [delivery("Scheduled", NotBefore="Tue, 20 Sep 2033 18:29:47 GMT")])
    assert (await event(db.demo))["not_before"] == "2033-09-20T18:29:47.000Z"


async def test_the_validation_of_cloudevents_is_answered_with_a_valid_key_only(db: World) -> None:
    url, asks = f"{DB}/maintenance/eventgrid", {"webhook-request-origin": "eventgrid.azure.net"}
    allowed = await db.demo.call("OPTIONS", url, headers=asks)
    assert (allowed.status, allowed.headers["webhook-allowed-origin"]) == (200, "eventgrid.azure.net")
    assert (await db.demo.call("OPTIONS", url)).status == 422, "it names no sender"
    assert (await db.demo.call("OPTIONS", url, headers={"webhook-request-origin": "a\r\nb"})).status == 422
    assert (await db.demo.call("OPTIONS", url.replace("db", "nope"), headers=asks)).status == 404
    assert (await db.demo.with_key(None).call("OPTIONS", url, headers=asks)).status == 401
