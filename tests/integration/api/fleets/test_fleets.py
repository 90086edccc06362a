"""Fleets, from outside: made, changed, listed, ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from shared.core.errors import Problem
from shared.fleets import directory
from shared.fleets.model import FleetIn
from shared.leases.protocol import membership, resizing
from shared.leases.protocol.membership import Registered, ServerReport
from shared.leases.rows import FLEET, INDEX, fleet_key, partition_key, server_key
from shared.leases.rules import ServerSession
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Applied, Delete, Merge, RowQuery
from tests.texts import assert_text
from tests.unit.scheduler.harness import World

ALL = "/api/v1/fleets"
WEB = f"{ALL}/web"
KEY = fleet_key("demo", "web")
WHOLE = {
    "partitions": 1024,
    "profile": "default",
    "limits": {"max_per_server": None, "claims_per_cycle": 8, "moves_per_minute": 32, "drain": "PT10S"},
    "servers": {"minimum": 1, "spare": 0},
    "checkpoints": {
        "timeout": {"initial": "PT10M", "min": "PT1M", "max": "PT1H"},
        "drift": 0.3,
        "silence": "PT60S",
        "max_lag": None,
    },
    "maintenance": {
        "lead": "PT30S",
        "leads": {"Preempt": "PT0S"},
        "require_central": False,
        "transport": "relay",
        "catch_up": "PT10M",
        "quorum": {"per": "location", "domains_down": 1},
        "strangers": "hold",
        "rules": [{"type": "Freeze", "source": "Platform", "max_seconds": 0, "action": "approve"}],
    },
    "notify": {"channel": "ops", "kinds": ["stale", "dead", "maintenance"]},
}
"""The fleet object with every part, as the contract shows it."""


async def join(world: World, name: str, key: str = KEY) -> ServerSession:
    session = ServerSession(key, name, f"{name}1")
    assert await world.app.runner.run(membership.register(session, ServerReport(), None, (), 18.0)) == Registered()
    return session


async def leave(world: World, session: ServerSession) -> None:
    assert await world.app.runner.run(membership.leave(session)) == "left"


async def test_a_fleet_comes_back_whole_with_its_defaults(world: World) -> None:
    made = await world.demo.put(WEB, {"partitions": 16})
    assert (made.status, made.headers["location"]) == (201, WEB)
    body = made.json()
    assert body == {
        **WHOLE,
        "partitions": 16,
        "checkpoints": {**WHOLE["checkpoints"], "silence": "PT1M"},  # type: ignore[dict-item]
        "maintenance": {**WHOLE["maintenance"], "leads": {}, "rules": [], "guard": "prepare"},  # type: ignore[dict-item]
        "notify": None,
        "name": "web",
        "generation": 1,
        "created": body["created"],
    }
    found = await world.demo.get(WEB)
    assert (found.status, found.body, found.headers["etag"]) == (200, made.body, made.headers["etag"])
    assert len([row for row in world.rows(FLEETS, KEY) if row.rk.startswith("p:")]) == 16


async def test_a_fleet_with_every_part_comes_back_as_it_was_sent(world: World) -> None:
    body = (await world.demo.put(WEB, WHOLE)).json()
    shown = {**WHOLE["checkpoints"], "silence": "PT1M"}, {**WHOLE["maintenance"], "guard": "prepare"}  # type: ignore[dict-item]
    assert {name: body[name] for name in WHOLE} == {**WHOLE, "checkpoints": shown[0], "maintenance": shown[1]}
    again = await world.demo.put(WEB, WHOLE)
    assert (again.status, again.json()) == (200, body)


@pytest.mark.parametrize(
    ("profile", "shown", "drain"),
    [
        ("fast", "fast", "PT4S"),
        ("seed", "seed", "PT10S"),
        ({"beat": "PT1S", "validity": "PT3S", "takeover": "PT4.5S"}, {"beat": "PT1S", "validity": "PT3S", "takeover": "PT4.5S"}, "PT2S"),
        ({"beat": "PT5S", "validity": "PT15S", "takeover": "PT18S"}, "default", "PT10S"),
    ],
)
async def test_a_profile_is_a_name_or_durations_and_the_drain_follows_it(world: World, profile: Any, shown: Any, drain: str) -> None:
    body = (await world.demo.put(WEB, {"partitions": 1, "profile": profile})).json()
    assert (body["profile"], body["limits"]["drain"]) == (shown, drain)


BAD: list[tuple[dict[str, Any], str, str]] = [
    ({}, "/partitions", "is required"),
    ({"partitions": 0}, "/partitions", "must be at least 1"),
    ({"partitions": 10_001}, "/partitions", "must be at most 10,000"),
    ({"partitions": "16"}, "/partitions", "must be a whole number"),
    ({"partitions": 4, "partition": 4}, "/partition", "is not a known field"),
    ({"partitions": 4, "profile": "slow"}, "/profile", "'economy', 'default', 'fast' or 'seed'"),
    ({"partitions": 4, "profile": {"beat": "PT1S"}}, "/profile/validity", "is required"),
    (
        {"partitions": 4, "profile": {"beat": "PT5S", "validity": "PT15S", "takeover": "PT15S"}},
        "/profile",
        "takeover >= validity * 1.01/0.99 + 1 does not hold: 15 < 16.3",
    ),
    (
        {"partitions": 4, "profile": {"beat": "PT5S", "validity": "PT12S", "takeover": "PT18S"}},
        "/profile",
        "validity >= 3 * beat does not hold: 12 < 15",
    ),
    ({"partitions": 4, "limits": {"drain": "PT15S"}}, "/limits/drain", "drain < validity does not hold: 15 >= 15"),
    ({"partitions": 4, "limits": {"max_per_server": 0}}, "/limits/max_per_server", "must be at least 1"),
    ({"partitions": 4, "servers": {"minimum": 0}}, "/servers/minimum", "must be at least 1"),
    ({"partitions": 4, "servers": {"spare": -1}}, "/servers/spare", "must be at least 0"),
    ({"partitions": 4, "checkpoints": {"timeout": {"initial": "PT2H"}}}, "/checkpoints/timeout", "min <= initial <= max does not hold"),
    ({"partitions": 4, "checkpoints": {"drift": 1.0}}, "/checkpoints/drift", "must be at most 0.9"),
    ({"partitions": 4, "maintenance": {"lead": "30 s"}}, "/maintenance/lead", "not an ISO 8601 duration"),
    ({"partitions": 4, "maintenance": {"rules": [{"type": "Freeze"}]}}, "/maintenance/rules/0/action", "is required"),
    ({"partitions": 4, "notify": {"channel": "Ops"}}, "/notify/channel", "1 to 40 of a-z, 0-9"),
    ({"partitions": 4, "notify": {"channel": "ops", "kinds": ["dead", "dead"]}}, "/notify", "a kind is repeated"),
]


@pytest.mark.parametrize(("body", "pointer", "detail"), BAD, ids=[str(number) for number in range(len(BAD))])
async def test_a_wrong_fleet_is_refused_where_it_is_wrong_and_changes_nothing(
    world: World, body: dict[str, Any], pointer: str, detail: str
) -> None:
    before = world.dump()
    answer = await world.demo.put(WEB, body)
    errors = {error["pointer"]: error["detail"] for error in answer.json()["errors"]}
    assert answer.status == 422 and pointer in errors and detail in errors[pointer], answer
    assert world.without_caches(world.dump()) == world.without_caches(before)


async def test_names_that_cannot_be_are_422_to_make_and_404_to_find(world: World) -> None:
    assert (await world.demo.put(f"{ALL}/Web", {"partitions": 1})).pointers == ["{fleet}"]
    for method in ("GET", "DELETE"):
        assert (await world.demo.call(method, f"{ALL}/Web")).code == "not-found"
        assert (await world.demo.call(method, f"{ALL}/nothing")).code == "not-found"


async def test_limits_and_servers_change_while_servers_live(world: World) -> None:
    made = await world.demo.put(WEB, {"partitions": 4})
    await join(world, "a")
    changed = await world.demo.put(
        WEB, {"partitions": 4, "limits": {"moves_per_minute": 5}, "servers": {"spare": 2}}, {"if-match": made.headers["etag"]}
    )
    assert (changed.status, changed.json()["limits"]["moves_per_minute"], changed.json()["servers"]["spare"]) == (200, 5, 2)
    assert changed.json()["created"] == made.json()["created"]
    assert (await world.demo.put(WEB, {"partitions": 4}, {"if-match": made.headers["etag"]})).status == 412
    fleet, _ = await world.app.fleets.read("demo", "web")
    assert fleet.changes == 1, "servers see that something changed"


async def test_an_operators_verb_leaves_the_entity_tag_as_it_is(world: World) -> None:
    made = await world.demo.put(WEB, {"partitions": 4})
    assert (await world.demo.post(f"{WEB}/leases/1/offline", {"note": "x"})).status == 200
    assert (await world.demo.put(WEB, {"partitions": 4, "servers": {"spare": 1}}, {"if-match": made.headers["etag"]})).status == 200


async def test_another_partition_count_is_for_resize(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    answer = await world.demo.put(WEB, {"partitions": 8})
    assert (answer.status, answer.pointers) == (422, ["/partitions"]) and "resize" in answer.json()["detail"]


async def test_the_profile_changes_only_while_no_server_lives(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    a = await join(world, "a")
    refused = await world.demo.put(WEB, {"partitions": 4, "profile": "fast"})
    assert (refused.status, refused.code) == (409, "servers-live") and ": a;" in refused.json()["detail"]
    await leave(world, a)
    assert (await world.demo.put(WEB, {"partitions": 4, "profile": "fast"})).json()["profile"] == "fast"


async def test_a_server_that_comes_in_while_the_fleet_closes_is_seen(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    fleet, etag = await world.app.fleets.read("demo", "web")
    steps = resizing.close(KEY, fleet, etag)
    rows = await world.tables.query(RowQuery(FLEETS, KEY, first="s:", end="s;"))
    next(steps)
    write = steps.send(rows.rows)
    closed = await world.tables.write(FLEETS, KEY, write.ops)  # type: ignore[union-attr]
    await join(world, "a")
    steps.send(closed)
    rows = await world.tables.query(RowQuery(FLEETS, KEY, first="s:", end="s;"))
    back = steps.send(rows.rows)
    assert isinstance(await world.tables.write(FLEETS, KEY, back.ops), Applied)  # type: ignore[union-attr]
    with pytest.raises(StopIteration) as stop:
        steps.send(Applied(["x"]))
    assert stop.value.value == resizing.ServersLive(["a"])
    assert not (await world.app.fleets.read("demo", "web"))[0].closed, "it is open again"


async def test_a_fleet_left_closed_is_opened_by_the_next_put(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    await world.tables.write(FLEETS, KEY, [Merge(FLEET, {"closed": True}, ANY)])
    assert (await world.demo.put(WEB, {"partitions": 4})).status == 200
    assert not (await world.app.fleets.read("demo", "web"))[0].closed


async def test_rows_that_are_missing_come_back_with_higher_epochs(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    await world.tables.write(FLEETS, KEY, [Delete(partition_key(2), ANY)])
    assert (await world.demo.get(f"{WEB}/leases/2")).status == 404
    assert (await world.demo.put(WEB, {"partitions": 4})).status == 200
    lease = (await world.demo.get(f"{WEB}/leases/2")).json()
    assert (lease["state"], lease["epoch"]) == ("released", world.now // 1000)


async def test_a_row_that_is_missing_under_a_server_of_the_library_is_not_given_to_another(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    session = await join(world, "k")
    await world.tables.write(FLEETS, KEY, [Delete(partition_key(2), ANY)])
    refused = await world.demo.put(WEB, {"partitions": 4, "limits": {"moves_per_minute": 1}})
    assert (refused.status, refused.code) == (409, "servers-live") and "2 are missing" in refused.json()["detail"]
    assert (await world.app.fleets.read("demo", "web"))[0].limits.moves_per_minute == 32
    await leave(world, session)
    assert (await world.demo.put(WEB, {"partitions": 4})).status == 200
    assert (await world.demo.get(f"{WEB}/leases/2")).json()["state"] == "released"


async def test_a_fleet_ends_without_a_trace_and_counts_on_when_it_is_recreated(world: World) -> None:
    made = await world.demo.put(WEB, {"partitions": 4})
    await world.tables.write(FLEETS, KEY, [Merge(partition_key(3), {"epoch": 41}, ANY)])
    await world.demo.post(f"{WEB}/leases/1/offline", {"note": "x"})
    a = await join(world, "a")
    refused = await world.demo.delete(WEB)
    assert (refused.status, refused.code) == (409, "servers-live")
    await leave(world, a)
    assert (await world.demo.delete(WEB, {"if-match": '"other"'})).status == 412
    assert (await world.demo.delete(WEB, {"if-match": made.headers["etag"]})).status == 204
    assert world.rows(FLEETS, KEY) == [] == world.rows(FLEETS, INDEX)
    for method, path in [("GET", WEB), ("DELETE", WEB), ("GET", f"{WEB}/routes"), ("GET", f"{WEB}/nodes")]:
        assert (await world.demo.call(method, path)).code == "not-found"
    await world.demo.put(WEB, {"partitions": 2})
    assert [lease["epoch"] for lease in await world.demo.all(f"{WEB}/leases")] == [41, 41]


async def test_an_ending_that_was_cut_short_goes_on(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    await world.tables.write(FLEETS, INDEX, [Merge(KEY, {"ending": True}, ANY)])
    await world.tables.write(FLEETS, KEY, [Delete(FLEET, ANY)])
    assert [row.props["ending"] for row in world.rows(FLEETS, INDEX)] == [True]
    assert (await world.demo.put(WEB, {"partitions": 2})).status == 201
    assert len([row for row in world.rows(FLEETS, KEY) if row.rk.startswith("p:")]) == 2
    await world.tables.write(FLEETS, INDEX, [Merge(KEY, {"ending": True}, ANY)])
    await world.tables.write(FLEETS, KEY, [Delete(FLEET, ANY)])
    assert (await world.demo.delete(WEB)).status == 204
    assert world.rows(FLEETS, KEY) == []


async def test_a_late_server_holds_the_ending_up_until_it_is_dead(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 4})
    await world.tables.write(FLEETS, INDEX, [Merge(KEY, {"ending": True}, ANY)])
    await world.tables.write(FLEETS, KEY, [Delete(FLEET, ANY)])
    await join(world, "a")
    for again in (world.demo.delete(WEB), world.demo.put(WEB, {"partitions": 4})):
        assert (await again).code == "servers-live"
    await world.tables.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)])
    assert (await world.demo.delete(WEB)).status == 204


async def test_two_concurrent_creations_make_one_fleet(world: World) -> None:
    made = await asyncio.gather(*(world.app.fleets.put("demo", "web", FleetIn(partitions=150)) for _ in range(3)))
    assert [new for _, _, new in made].count(True) == 1
    assert len([row for row in world.rows(FLEETS, KEY) if row.rk.startswith("p:")]) == 150
    assert len(world.rows(FLEETS, INDEX)) == 1


async def test_fleets_are_listed_by_name_and_by_page_and_each_tenant_sees_its_own(world: World) -> None:
    other = await world.tenant("acme", ["fleets"])
    for name in ("c", "a", "b"):
        assert (await world.demo.put(f"{ALL}/{name}", {"partitions": 1})).status == 201
    assert (await other.put(WEB, {"partitions": 2})).status == 201
    assert [[fleet["name"] for fleet in page] for page in await world.demo.pages(f"{ALL}?limit=2")] == [["a", "b"], ["c"]]
    assert [fleet["name"] for fleet in await other.all(ALL)] == ["web"]
    assert (await world.demo.get(WEB)).code == "not-found"
    assert (await world.admin.get(f"{WEB}?tenant=acme")).json()["partitions"] == 2
    assert sorted(row.rk for row in world.rows(FLEETS, INDEX)) == ["acme:web", "demo:a", "demo:b", "demo:c"]


async def test_a_tenant_has_so_many_fleets_at_most_and_an_operator_can_raise_the_limit(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"fleets": 2}})).status == 200
    for name in ("a", "b"):
        assert (await world.demo.put(f"{ALL}/{name}", {"partitions": 1})).status == 201
    refused = await world.demo.put(WEB, {"partitions": 1})
    assert (refused.status, refused.code) == (409, "too-many-fleets")
    assert_text("problem.too-many-fleets", refused.json()["detail"], found=2, limit=2)
    assert (await world.demo.put(f"{ALL}/b", {"partitions": 1})).status == 200
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"fleets": 3}})).status == 200
    assert (await world.demo.put(WEB, {"partitions": 1})).status == 201
    # A lower limit takes nothing away.
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"fleets": 0}})).status == 200
    assert (await world.demo.put(WEB, {"partitions": 1})).status == 200
    assert (await world.demo.put(f"{ALL}/d", {"partitions": 1})).code == "too-many-fleets"
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"fleets": 1001}})).status == 422


async def test_a_tenant_without_a_limit_of_fleets_has_the_default(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "MOST_FLEETS", 1)
    assert (await world.demo.put(WEB, {"partitions": 1})).status == 201
    assert (await world.demo.put(f"{ALL}/b", {"partitions": 1})).code == "too-many-fleets"


async def test_partitions_of_a_tenant_are_limited_together_in_calls_at_the_same_time(world: World) -> None:
    calls = [world.app.fleets.put("demo", f"f{number}", FleetIn(partitions=10_000)) for number in range(6)]
    made = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(each, Problem) and each.code for each in made].count("too-many-partitions") == 4
    assert len(await world.demo.all(ALL)) == 2


async def test_partitions_of_a_tenant_are_limited_together_and_an_operator_can_raise_the_limit(world: World) -> None:
    for name in ("a", "b"):
        assert (await world.demo.put(f"{ALL}/{name}", {"partitions": 10_000})).status == 201
    refused = await world.demo.put(WEB, {"partitions": 1})
    assert (refused.status, refused.code) == (409, "too-many-partitions") and "20,000" in refused.json()["detail"]
    assert (await world.demo.get(WEB)).code == "not-found"
    assert (await world.demo.put(f"{ALL}/b", {"partitions": 10_000})).status == 200
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"partitions": 20_001}})).status == 200
    assert (await world.demo.put(WEB, {"partitions": 1})).status == 201
    assert (await world.demo.post(f"{WEB}/leases/resize", {"partitions": 2})).code == "too-many-partitions"
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"partitions": 20_002}})).status == 200
    assert (await world.demo.post(f"{WEB}/leases/resize", {"partitions": 2})).status in (200, 202)
    # A lower limit takes nothing away.
    assert (await world.admin.put("/api/v1/tenants/demo", {"limits": {"partitions": 1}})).status == 200
    assert (await world.demo.put(f"{ALL}/a", {"partitions": 10_000})).status == 200
    assert (await world.demo.put(f"{ALL}/c", {"partitions": 1})).code == "too-many-partitions"


async def test_a_tenant_ends_with_its_fleets_but_not_while_a_server_lives(world: World) -> None:
    acme = await world.tenant("acme", ["fleets"])
    assert (await acme.put(WEB, {"partitions": 3})).status == 201
    key = fleet_key("acme", "web")
    a = await join(world, "a", key)
    refused = await world.admin.delete("/api/v1/tenants/acme")
    assert (refused.status, refused.code) == (409, "servers-live")
    assert (await acme.get(WEB)).status == 200, "nothing has changed"
    await leave(world, a)
    assert (await world.admin.delete("/api/v1/tenants/acme")).status == 204
    assert [row for row in world.rows(FLEETS) if row.pk == key or row.rk.startswith("acme:")] == []
    again = await world.tenant("acme", ["fleets"])
    assert (await again.get(WEB)).code == "not-found"
    await again.put(WEB, {"partitions": 1})
    assert (await again.get(f"{WEB}/leases/0")).json()["epoch"] == 0


async def test_only_scope_fleets_admits_to_these_routes(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 1})
    events = await world.key("demo", ["events"])
    agent = await world.key("demo", ["agent"], fleet="web", node="a")
    for client in (events, agent):
        for method, path in [("GET", ALL), ("GET", WEB), ("PUT", WEB), ("DELETE", WEB), ("GET", f"{WEB}/nodes"), ("GET", f"{WEB}/routes")]:
            assert (await client.call(method, path, {"partitions": 1} if method == "PUT" else None)).code == "missing-scope"
    assert (await world.nobody.get(WEB)).status == 401
