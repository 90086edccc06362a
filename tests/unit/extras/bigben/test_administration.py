"""BigBen's administration: every call of its server is answered here, or the page names the route that takes its place."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from shared.extras.parts import build_routes
from tests.unit.scheduler.harness import World

PAGE = Path(__file__).parents[4] / "docs/reference/bigben.md"
CALLS = {
    "GET /ping": "bigben_ping",
    "GET /events/cluster": "bigben_cluster",
    "POST /events/schedule": "bigben_schedule",
    "POST /events/tenant/register": "bigben_register",
    "GET /events/tenants": "bigben_tenants",
    "GET /events/find": "bigben_find",
    "POST /events/dryrun": "bigben_dryrun",
    "POST /cron": "bigben_cron",
    "GET /cron/describe": "bigben_cron_describe",
    "GET /cron/{tenant}/{id}": "bigben_cron_get",
    "DELETE /cron/{tenant}/{id}/{type}": "bigben_cron_delete",
    "POST /generation/random": "events_batch",
}
"""The routes that BigBen's server declares, and the operation here that answers or replaces each."""
CRON: dict[str, Any] = {"id": "x", "expression": "0 0/5 14 * * ?", "type": "QUARTZ", "tenant": "demo"}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


def test_each_call_of_bigben_has_an_operation_here_and_no_operation_is_forgotten() -> None:
    operations = {route.name for route in build_routes()}
    assert set(CALLS.values()) <= operations
    assert {name for name in operations if name.startswith("bigben_")} == set(CALLS.values()) - {"events_batch"}


def test_each_call_stands_on_the_page_and_so_do_the_routes_that_it_points_to() -> None:
    text = PAGE.read_text(encoding="utf-8")
    administration = text.partition("## Administration")[2].partition("\n## ")[0]
    for call in ("GET /ping", "GET /events/cluster", "POST /generation/random", "GET /cron/describe", "POST /events/dryrun"):
        assert f"`{call}`" in administration
    templates = {re.sub(r"\{[^}]*\}", "{}", f"/api/{route.template}") for route in build_routes()}
    named = {re.sub(r"\{[^}]*\}", "{}", path) for path in re.findall(r"(/api/[\w/{}-]+)", administration)} - {"/api/bigben"}
    assert named and named <= templates


async def test_ping_needs_no_key(world: World) -> None:
    answer = await world.nobody.get("/api/bigben/ping")
    assert (answer.status, answer.json()) == (200, {"status": "OK"})


async def test_the_instance_that_answers_is_the_only_member_and_a_master(world: World) -> None:
    found = (await world.admin.get("/api/bigben/events/cluster")).json()
    assert list(found.values()) == ["Master"] and all(found)
    assert (await world.demo.get("/api/bigben/events/cluster")).status == 403


async def test_a_tenant_sees_where_its_events_go_but_neither_path_nor_query(world: World) -> None:
    props = {"url": "https://hooks.example.com/T0/PATHSECRET42?sig=QUERYSECRET42", "headers": {"x-key": "HEADERSECRET42"}}
    made = await world.admin.post("/api/bigben/events/tenant/register", {"tenant": "demo", "type": "HTTP", "props": props})
    assert made.json()["demo"]["props"] == {**props, "headers": {"x-key": "***"}}
    [shown] = (await world.demo.get("/api/bigben/events/tenants")).json().values()
    assert shown["props"] == {"url": "https://hooks.example.com:443", "headers": {"x-key": "***"}}


async def test_a_cron_is_described_without_being_stored(world: World) -> None:
    # The first use of a key stores the day.
    assert (await world.demo.get("/api/bigben/events/tenants")).status == 200
    before = world.dump()
    answer = await world.demo.post("/api/bigben/cron/describe", CRON)
    assert answer.json() == {"cron": CRON, "description": "Every 5 minutes, minutes 0 through 59 past the hour, between 14:00 and 14:59"}
    for expression, kind in (("0 0 12 L-3 * ?", "QUARTZ"), ("0 1 30 2 *", "UNIX"), ("a b c d e", "UNIX")):
        refused = await world.demo.post("/api/bigben/cron/describe", CRON | {"expression": expression, "type": kind})
        assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "/expression")
    assert world.dump() == before
