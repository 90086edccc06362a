"""The document lists every route, and describes it truly. tests/unit/web/test_openapi.py checks that it is valid."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from shared.web import templates
from tests.unit.scheduler.harness import ROUTES, World

from .conftest import DOCUMENT

CONTRACT = """
POST /events
POST /events/batch
GET /events/{id}
GET /events
PATCH /events/{id}
DELETE /events/{id}
POST /events/{id}/fire
POST /events/{id}/redrive
POST /work/{tenant}/{place}/{attempt}/complete
POST /work/{tenant}/{place}/{attempt}/fail
POST /work/{tenant}/{place}/{attempt}/heartbeat
GET /dead-letters
POST /dead-letters/redrive
GET /stats
PUT /schedules/{id}
GET /schedules/{id}
DELETE /schedules/{id}
GET /schedules
POST /schedules/{id}/pause
POST /schedules/{id}/resume
POST /schedules/{id}/trigger
POST /schedules/{id}/backfill
PUT /calendars/{name}
GET /calendars/{name}
DELETE /calendars/{name}
GET /calendars
POST /heartbeats/{name}
GET /heartbeats/{name}
DELETE /heartbeats/{name}
GET /schedules/{id}/preview
POST /schedules/preview
GET /load
GET /history
GET /storage
GET /audit
GET /fleet-overview
GET /tenant-overview
POST /storage/failover
POST /storage/failback
POST /jobs
GET /jobs
GET /jobs/{id}
POST /jobs/{id}/confirm
POST /jobs/{id}/cancel
GET /rejects
DELETE /rejects/{id}
PUT /tenants/{tenant}
GET /tenants/{tenant}
DELETE /tenants/{tenant}
GET /tenants
POST /tenants/{tenant}/keys
GET /tenants/{tenant}/keys
DELETE /tenants/{tenant}/keys/{prefix}
GET /key
PUT /tenants/{tenant}/channels/{name}
GET /tenants/{tenant}/channels/{name}
DELETE /tenants/{tenant}/channels/{name}
POST /tenants/{tenant}/channels/{name}/secret/rotate
POST /tenants/{tenant}/channels/{name}/pause
POST /tenants/{tenant}/channels/{name}/resume
PUT /locks/{lock}
GET /locks/{lock}
DELETE /locks/{lock}
GET /locks
POST /locks/{lock}/revoke
PUT /fleets/{fleet}
GET /fleets/{fleet}
DELETE /fleets/{fleet}
GET /fleets
GET /fleets/{fleet}/nodes
GET /fleets/{fleet}/nodes/{node}
POST /fleets/{fleet}/nodes/{node}/beat
POST /fleets/{fleet}/leases/claim
POST /fleets/{fleet}/leases/{partition}/release
GET /fleets/{fleet}/leases
GET /fleets/{fleet}/leases/{partition}
GET /fleets/{fleet}/routes
POST /fleets/{fleet}/leases/{partition}/bump
POST /fleets/{fleet}/leases/{partition}/offline
POST /fleets/{fleet}/leases/{partition}/online
POST /fleets/{fleet}/leases/{partition}/prohibit
POST /fleets/{fleet}/leases/{partition}/permit
POST /fleets/{fleet}/leases/{partition}/pin
POST /fleets/{fleet}/nodes/{node}/drain
POST /fleets/{fleet}/nodes/{node}/undrain
POST /fleets/{fleet}/nodes/{node}/prohibit
POST /fleets/{fleet}/nodes/{node}/permit
GET /fleets/{fleet}/leases/stale
POST /fleets/{fleet}/leases/plan
"""
BIGBEN = """
POST /events/schedule
GET /events/find
POST /events/dryrun
POST /events/tenant/register
GET /events/tenants
POST /cron
GET /cron/{tenant}/{id}
DELETE /cron/{tenant}/{id}/{type}
POST /cron/describe
GET /events/cluster
GET /ping
"""
OPERATIONS = [(method.upper(), path, operation) for path, methods in DOCUMENT["paths"].items() for method, operation in methods.items()]
each = pytest.mark.parametrize(("method", "path", "operation"), OPERATIONS, ids=[operation["operationId"] for *_, operation in OPERATIONS])


def test_document_lists_every_route_and_no_other() -> None:
    routes = {(route.method, "/api" + templates.plain(route.template)) for route in ROUTES}
    assert {(method, path) for method, path, _ in OPERATIONS} == routes


def test_every_route_of_the_contract_is_there() -> None:
    found = {f"{method} {path.removeprefix('/api/v1')}" for method, path, _ in OPERATIONS if path.startswith("/api/v1")}
    assert set(CONTRACT.split("\n")) - {""} <= found
    assert {"/api/healthz", "/api/readyz", "/api/openapi.json", "/api/metrics"} <= set(DOCUMENT["paths"])
    bigben = {f"{method} {path.removeprefix('/api/bigben')}" for method, path, _ in OPERATIONS if path.startswith("/api/bigben")}
    assert bigben == set(BIGBEN.split("\n")) - {""}


@each
def test_operation_shows_all_its_statuses(method: str, path: str, operation: dict[str, Any]) -> None:
    statuses = set(operation["responses"])
    if path.startswith("/api/v1"):
        # A call about long work has a token of its own, which permits it.
        assert {"401", "422", "503"} | (set() if path.startswith("/api/v1/work/") else {"403"}) <= statuses
        assert operation["security"]
    if "requestBody" in operation:
        assert {"411", "413", "415"} <= statuses
    # BigBen's API is as it was: without If-Match, and with a 400 of its own.
    if method in ("PATCH", "DELETE") and not path.startswith("/api/bigben"):
        assert "412" in statuses
        assert any(parameter["name"] == "If-Match" for parameter in operation["parameters"])
    assert "400" not in statuses or path == "/api/bigben/events/schedule"
    for status in ("429", "503"):
        if status in statuses and path != "/api/readyz":
            assert "Retry-After" in operation["responses"][status]["headers"]


@each
def test_operation_has_its_examples_right(method: str, path: str, operation: dict[str, Any]) -> None:
    for media, content in operation.get("requestBody", {}).get("content", {}).items():
        assert media != "application/json" or content["examples"]
        schema = Draft202012Validator({**content["schema"], "components": DOCUMENT["components"]})
        for example in content.get("examples", {}).values():
            schema.validate(example["value"])


def test_representations_have_an_etag() -> None:
    paths = DOCUMENT["paths"]
    for method in ("get", "patch"):
        assert "ETag" in paths["/api/v1/events/{id}"][method]["responses"]["200"]["headers"]
    assert {"ETag", "Location"} <= set(paths["/api/v1/events"]["post"]["responses"]["201"]["headers"])


async def test_document_is_served_to_anyone(world: World) -> None:
    answer = await world.nobody.get("/api/openapi.json")
    assert (answer.status, answer.json()) == (200, DOCUMENT)


async def test_probes_are_open_to_anyone(world: World) -> None:
    assert (await world.nobody.get("/api/healthz")).json() == {"status": "alive"}
    assert (await world.nobody.get("/api/readyz")).status == 200
