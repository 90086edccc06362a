"""One call end to end without a host: keys, scopes, tenants, bodies, failures and what the answers look like."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.core.errors import Problem, UnsafeSettings
from shared.tenants.model import Tenant
from shared.web import auth, problem
from shared.web.etag import check_if_match, etag_of
from shared.web.local_client import LocalClient, LocalReply
from tests.texts import assert_text

from .conftest import THING, World


async def test_a_good_call_reaches_the_handler_checked(world: World) -> None:
    answer = await world.demo.post("/api/v1/things", THING)
    assert answer.status == 201
    assert answer.json() == {"name": "a", "tenant": "demo", "payload": THING["payload"]}
    assert answer.headers["location"] == "/api/v1/things/a"
    assert answer.headers["content-type"] == "application/json"
    assert answer.headers["etag"].startswith('"')
    call = world.app.seen[0]
    assert (call.tenant, call.key.prefix, call.media, call.path) == ("demo", "local-demo", "application/json", "/api/v1/things")


async def test_a_call_is_numbered_before_anything_else_is_awaited(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = asyncio.Event()
    plain = auth.authenticate

    async def authenticate(directory: Any, headers: Any) -> Any:
        if headers.get("x-slow"):
            await slow.wait()
        return await plain(directory, headers)

    monkeypatch.setattr(auth, "authenticate", authenticate)
    first = asyncio.ensure_future(world.demo.post("/api/v1/things", THING, {"x-slow": "1"}))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert (await world.demo.post("/api/v1/things", THING)).status == 201
    slow.set()
    assert (await first).status == 201
    second, late = world.app.seen
    assert second.arrival.receipt().is_after(late.arrival.receipt())


async def test_a_call_that_waits_for_nothing_is_answered_in_the_turn_of_the_event_loop_in_which_it_came(world: World) -> None:
    assert (await world.demo.get("/api/v1/things")).status == 200  # Now the key and the tenant are known.
    turns: list[int] = []
    asyncio.get_running_loop().call_soon(turns.append, 1)
    assert (await world.demo.get("/api/v1/things")).status == 200
    assert not turns


async def test_no_cache_on_the_way_keeps_an_answer(world: World) -> None:
    made = await world.demo.post("/api/v1/things", THING)
    shown = await world.demo.get("/api/v1/things")
    assert {answer.headers["cache-control"] for answer in (made, shown, await world.nobody.get("/api/v1/things"))} == {"no-store"}


# -- who calls


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong-key-0001",
        "Bearer local-demo-key x",
        "Basic bG9jYWwtZGVtby1rZXk6",
        "local-demo-key",
        "Bearer local-demo-key\u00e9",
        "Bearer " + "x" * 5000,
        "Bearer \ud800",
    ],
)
async def test_without_a_valid_key_it_is_401_with_a_challenge(world: World, given: str | None) -> None:
    answer = await world.nobody.post("/api/v1/things", THING, {"authorization": given} if given is not None else {})
    assert (answer.status, answer.code) == (401, "unauthenticated")
    assert answer.headers["www-authenticate"].startswith('Bearer realm="tocsin"')
    assert ("error=" in answer.headers["www-authenticate"]) == (given is not None)


async def test_the_scheme_may_be_written_in_any_case(world: World) -> None:
    answer = await world.nobody.get("/api/v1/things", {"authorization": "bEaReR  local-demo-key "})
    assert answer.status == 200


async def test_nobody_learns_about_the_body_before_the_key_is_known(world: World) -> None:
    assert (await world.nobody.post("/api/v1/things", b"{{{")).status == 401
    assert (await world.nobody.get("/api/v1/things?nope=1")).status == 401


async def test_without_a_bootstrap_key_in_the_settings_there_is_no_admin(world: World) -> None:
    from shared.tenants.store import TenantDirectory

    from .conftest import make_settings

    world.app.directory = TenantDirectory(world.tables, world.clock, make_settings(admin_key=None))
    assert (await world.admin.get("/api/v1/metrics")).status == 401
    world.app.directory = TenantDirectory(world.tables, world.clock, make_settings(admin_key=""))
    assert (await world.nobody.get("/api/v1/metrics", {"authorization": "Bearer "})).status == 401


ROUTES = {
    "events": ("GET", "/api/v1/things"),
    "events or fleets": ("GET", "/api/v1/things/a"),
    "fleets": ("GET", "/api/v1/leases/5"),
    "fleets or agent": ("POST", "/api/v1/fleets/web/nodes/vm-1/beat"),
    "admin": ("GET", "/api/v1/metrics"),
}
KEYS: dict[str, dict[str, Any]] = {
    "events": {"scopes": ["events"]},
    "fleets": {"scopes": ["fleets"]},
    "agent": {"scopes": ["agent"], "fleet": "web", "node": "vm-1"},
    "other agent": {"scopes": ["agent"], "fleet": "web", "node": "vm-2"},
    "admin": {"scopes": ["admin"]},
}
ADMITTED = {
    ("events", "events"),
    ("events", "events or fleets"),
    ("fleets", "events or fleets"),
    ("fleets", "fleets"),
    ("fleets", "fleets or agent"),
    ("agent", "fleets or agent"),
    *(("admin", route) for route in ROUTES),
}


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("key", KEYS)
async def test_scopes_admit_exactly_whom_they_should(world: World, key: str, route: str) -> None:
    client = await world.client(**KEYS[key])
    answer = await client.call(*ROUTES[route])
    if (key, route) in ADMITTED:
        assert answer.status in (200, 204)
    else:
        assert (answer.status, answer.code) == (
            403,
            "not-your-node" if (key, route) == ("other agent", "fleets or agent") else "missing-scope",
        )


# -- for which tenant


async def test_an_admin_acts_for_the_tenant_it_names(world: World) -> None:
    await world.app.directory.put("acme", Tenant())
    answer = await world.admin.post("/api/v1/things?tenant=acme", THING)
    assert (answer.status, answer.json()["tenant"]) == (201, "acme")


async def test_the_bootstrap_key_has_to_name_a_tenant(world: World) -> None:
    answer = await world.admin.post("/api/v1/things", THING)
    assert (answer.status, answer.pointers) == (422, ["?tenant"])


async def test_a_stored_admin_key_acts_for_its_own_tenant_unless_the_request_says_otherwise(world: World) -> None:
    await world.app.directory.put("acme", Tenant())
    client = await world.client(scopes=["admin"])
    assert (await client.post("/api/v1/things", THING)).json()["tenant"] == "demo"
    assert (await client.post("/api/v1/things?tenant=acme", THING)).json()["tenant"] == "acme"


@pytest.mark.parametrize("name", ["nobody", "UPPER", "a/b", "%23", "x" * 500, ""])
async def test_a_tenant_that_does_not_exist_is_404(world: World, name: str) -> None:
    answer = await world.admin.get(f"/api/v1/things?tenant={name}")
    assert (answer.status, answer.code) == (404, "not-found")


async def test_only_admins_may_name_another_tenant(world: World) -> None:
    await world.app.directory.put("acme", Tenant())
    for tenant in ("acme", "nobody"):
        answer = await world.demo.get(f"/api/v1/things?tenant={tenant}")
        assert (answer.status, answer.code) == (403, "not-your-tenant")
    assert (await world.demo.get("/api/v1/things?tenant=demo")).status == 200


async def test_an_admins_own_routes_take_no_tenant(world: World) -> None:
    assert (await world.admin.get("/api/v1/metrics?tenant=demo")).pointers == ["?tenant"]


# -- the path


async def test_a_path_that_can_name_nothing_is_404_and_422_where_one_could_be_made(world: World) -> None:
    answer = await world.demo.get("/api/v1/things/Not_A_Name")
    assert answer.code == "not-found"
    assert_text("problem.not-found-name", answer.json()["detail"])
    answer = await world.demo.put("/api/v1/things/Not_A_Name", {"name": "a"})
    assert (answer.status, answer.pointers) == (422, ["{name}"])


# -- bodies


async def send(client: LocalClient, raw: bytes, **headers: str) -> LocalReply:
    return await client.post("/api/v1/things", raw, {name.replace("_", "-"): value for name, value in headers.items()})


async def test_bodies_are_judged_in_a_fixed_order(world: World) -> None:
    nothing = await world.demo.post("/api/v1/things", b"")
    assert nothing.code == "empty-body"
    assert_text("problem.empty-body", nothing.json()["detail"])
    assert (await send(world.demo, b"{}", content_type="text/plain")).status == 415
    assert (await send(world.demo, b"x" * 4097, content_type="text/plain")).status == 413
    assert (await send(world.demo, b"{")).code == "malformed-json"
    assert (await send(world.demo, b"{}")).code == "invalid-content"
    exact = b'{"name":"a"' + b" " * (4096 - 12) + b"}"
    assert (len(exact), (await send(world.demo, exact)).status) == (4096, 201)


async def test_a_chunked_body_is_411_since_the_platform_delivers_it_empty(world: World) -> None:
    answer = await world.demo.post("/api/v1/things", b"", {"transfer-encoding": "chunked", "content-type": "application/json"})
    assert (answer.status, answer.code) == (411, "length-required")


async def test_an_optional_body_may_be_left_out_but_not_be_wrong(world: World) -> None:
    assert (await world.demo.put("/api/v1/things/a")).json() == {"body": False}
    assert (await world.demo.put("/api/v1/things/a", {"name": "a"})).json() == {"body": True}
    assert (await world.demo.put("/api/v1/things/a", b"{")).status == 422


async def test_a_route_of_raw_bytes_gets_them_untouched(world: World) -> None:
    answer = await world.demo.post("/api/v1/lines", b'{"a":1}\n{', {"content-type": "application/x-ndjson; charset=utf-8"})
    assert answer.json() == {"bytes": 9, "media": "application/x-ndjson"}
    assert (await world.demo.post("/api/v1/lines", b"x", {"content-type": "text/csv"})).status == 415


async def test_an_unexpected_body_is_ignored(world: World) -> None:
    assert (await world.demo.call("GET", "/api/v1/things/a", b"{{{", {"content-type": "text/plain"})).status == 200


# -- failures


@pytest.mark.parametrize(
    ("how", "status", "code", "retry"),
    [
        ("unavailable", 503, "storage-unavailable", "1"),
        ("unknown", 503, "storage-unavailable", "1"),
        ("rejected", 500, "internal-error", None),
        ("surprise", 500, "internal-error", None),
        ("problem", 409, "id-conflict", None),
        ("limited", 429, "too-many-requests", "2"),
        ("missing", 500, "internal-error", None),
    ],
)
async def test_failures_become_problem_documents(
    world: World, how: str, status: int, code: str, retry: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = await world.demo.get(f"/api/v1/fails/{how}")
    assert (answer.status, answer.code) == (status, code)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.headers.get("retry-after") == retry
    body = answer.json()
    assert body["type"] == f"https://tocsin.dev/problems/{code}"
    assert (body["status"], body["instance"]) == (status, f"/api/v1/fails/{how}")
    assert body["title"]
    assert body["detail"]
    text = answer.body.decode()
    assert "secret" not in text
    assert "Traceback" not in text
    assert "local-demo-key" not in text + caplog.text


async def test_a_surprise_is_logged_with_its_traceback_under_the_incident_that_is_reported(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    body = (await world.demo.get("/api/v1/fails/surprise")).json()["detail"]
    record = next(record for record in caplog.records if record.levelno == logging.ERROR)
    assert record.__dict__["incident"] in body
    assert record.__dict__["operation"] == "fails"
    assert record.exc_info is not None


async def test_an_application_that_cannot_be_made_is_a_problem_too(world: World) -> None:
    async def broken() -> Any:
        raise RuntimeError("no such setting")

    client = LocalClient(world.routes, broken, key="local-demo-key")
    assert (await client.get("/api/v1/things")).code == "internal-error"
    assert (await client.get("/api/openapi.json")).status == 200


async def test_a_start_that_was_refused_is_reported_to_the_operator_in_the_log_and_to_callers_as_an_incident(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    async def refused() -> Any:
        raise UnsafeSettings("TOCSIN_ADMIN_KEY is a reference to a vault that was not resolved")

    answer = await LocalClient(world.routes, refused, key="local-demo-key").get("/api/v1/things")
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "start-refused", "30")
    (record,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert record.__dict__["action"] == "web.start-refused"
    assert "TOCSIN_ADMIN_KEY" in record.getMessage()
    assert record.__dict__["incident"] in answer.json()["detail"] and "TOCSIN_" not in answer.body.decode()


async def test_storage_that_is_away_makes_authentication_503_not_401(world: World) -> None:
    async def away(*_: Any, **__: Any) -> Any:
        from shared.core.errors import Unavailable

        raise Unavailable("throttled")

    world.tables.get = away  # type: ignore[method-assign]
    await world.clock.advance(60)
    answer = await world.demo.get("/api/v1/things")
    assert (answer.status, answer.code) == (503, "storage-unavailable")


# -- answers


async def test_answers_that_are_not_json_keep_their_type(world: World) -> None:
    answer = await world.admin.get("/api/v1/metrics")
    assert (answer.headers["content-type"], answer.body) == ("text/plain; version=0.0.4", b"up 1\n")


async def test_no_browser_takes_an_answer_for_another_type_than_it_says(world: World) -> None:
    for path in ("/api/v1/metrics", "/api/v1/things"):
        answer = await world.admin.get(path)
        assert answer.headers["x-content-type-options"] == "nosniff"


async def test_an_empty_answer_has_no_content_type(world: World) -> None:
    client = await world.client(scopes=["fleets"])
    answer = await client.post("/api/v1/fleets/web/nodes/vm-1/beat")
    assert (answer.status, answer.body, dict(answer.headers)) == (204, b"", {})


def test_pointers_name_what_is_wrong_in_the_detail() -> None:
    assert problem.invalid("/due", "not a time").detail == "/due: not a time"
    assert problem.invalid("", "not an object").detail == "the body: not an object"
    assert len(problem.invalid("/a", "x", ("/b", "y")).errors) == 2


@given(st.floats(min_value=0, max_value=1e6))
def test_retry_after_is_a_whole_number_that_is_late_enough(seconds: float) -> None:
    header = int(problem.too_many(seconds).headers["retry-after"])
    assert header >= 1
    assert header >= seconds
    assert header < seconds + 1 or header == 1


# -- entity tags


@pytest.mark.parametrize("wanted", ['"abc"', '"x", "abc"', ' "abc" ', "*", 'W/"x","abc"'])
def test_if_match_that_names_the_tag_passes(wanted: str) -> None:
    check_if_match({"if-match": wanted}, '"abc"')


@pytest.mark.parametrize("wanted", ['"ab"', 'W/"abc"', '"ABC"', '""'])
def test_if_match_that_names_another_is_412(wanted: str) -> None:
    with pytest.raises(Problem) as caught:
        check_if_match({"if-match": wanted}, '"abc"')
    assert (caught.value.status, caught.value.code) == (412, "precondition-failed")


@pytest.mark.parametrize("wanted", ["", "abc", '"abc', '"a"b"', '"a" "b"', "*,*", '"a",'])
def test_if_match_that_is_malformed_is_422(wanted: str) -> None:
    with pytest.raises(Problem) as caught:
        check_if_match({"if-match": wanted}, '"abc"')
    assert caught.value.errors[0]["pointer"] == "@if-match"


def test_if_match_on_what_is_not_there_is_412_and_its_absence_asks_nothing() -> None:
    check_if_match({}, None)
    for wanted in ("*", '"abc"'):
        with pytest.raises(Problem, match="412"):
            check_if_match({"if-match": wanted}, None)


@given(st.lists(st.text(), min_size=1, max_size=3), st.lists(st.text(), min_size=1, max_size=3))
def test_tags_differ_where_the_material_does(one: list[str], other: list[str]) -> None:
    one, other = [[part.encode("utf-8", "replace").decode() for part in parts] for parts in (one, other)]
    assert (etag_of(*one) == etag_of(*other)) == (one == other)
    check_if_match({"if-match": etag_of(*one)}, etag_of(*one))
