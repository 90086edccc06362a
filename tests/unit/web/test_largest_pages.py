"""Every list answers the largest page that it offers."""

from __future__ import annotations

import pytest

from shared.extras.parts import build_routes
from shared.web.routes import Route
from tests.unit.scheduler.harness import World

LISTS = [route for route in build_routes() if route.method == "GET" and "limit" in route.query.model_fields]


@pytest.mark.parametrize("route", LISTS, ids=lambda route: route.name)
async def test_largest_page(route: Route) -> None:
    world = await World().open()
    try:
        assert (await world.admin.put("/api/v1/fleets/web?tenant=demo", {"partitions": 1})).status == 201
        path = route.template.format(tenant="demo", fleet="web", event_id="none")
        tenant = "" if "{tenant}" in path or route.scopes == {"admin"} else "&tenant=demo"
        answer = await world.admin.get(f"/api/{path}?limit=1000{tenant}")
        assert answer.status == 200 or (answer.status == 404 and "event_id" in route.template), answer.text
        assert (await world.admin.get(f"/api/{path}?limit=1001{tenant}")).status in (200, 422)
    finally:
        await world.close()
