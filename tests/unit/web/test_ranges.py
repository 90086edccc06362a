"""Ranges of time: a `to` before `from` is refused by every call that takes both."""

from __future__ import annotations

import pytest

from shared.extras.parts import build_routes
from shared.web.routes import Route
from tests.unit.scheduler.harness import World

RANGES = [route for route in build_routes() if {"from_", "to"} <= route.query.model_fields.keys()]
FIRST, LAST = "2026-11-21T12:00:00Z", "2026-11-21T10:00:00Z"
BODIES = {
    "dead-letters/redrive": ({"from": FIRST, "to": LAST}, "/to"),
    "jobs": ({"action": "cancel", "filter": {"from": FIRST, "to": LAST}}, "/filter/to"),
    "schedules/tick/backfill": ({"from": FIRST, "to": LAST}, ""),
}


def test_all_lists_with_a_range_are_looked_at() -> None:
    assert {route.name for route in RANGES} >= {"events_list", "dead_letters_list", "rejects_list", "load", "history", "audit_list"}


@pytest.mark.parametrize("route", RANGES, ids=lambda route: route.name)
async def test_query_with_an_end_before_its_beginning_is_refused(route: Route) -> None:
    world = await World().open()
    try:
        tenant = "" if route.scopes == {"admin"} else "&tenant=demo"
        answer = await world.admin.get(f"/api/{route.template}?from={FIRST}&to={LAST}{tenant}")
        assert (answer.status, [each["pointer"] for each in answer.json()["errors"]]) == (422, ["?to"])
        assert (await world.admin.get(f"/api/{route.template}?from={LAST}&to={FIRST}{tenant}")).status == 200
    finally:
        await world.close()


@pytest.mark.parametrize("path", BODIES)
async def test_body_with_an_end_before_its_beginning_is_refused(path: str) -> None:
    world = await World().open()
    try:
        await world.demo.put("/api/v1/schedules/tick", {"cron": "* * * * *", "payload": 1})
        body, pointer = BODIES[path]
        answer = await world.demo.post(f"/api/v1/{path}", body)
        assert (answer.status, [each["pointer"] for each in answer.json()["errors"]]) == (422, [pointer])
    finally:
        await world.close()
