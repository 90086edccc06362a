"""Events together: lists, figures, limits, tenants, and storage that is away."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.fake import DELIVERED
from shared.delivery.channels.ports import Verdict
from tests.integration.api.calls import DEAD, EVENTS, NEVER
from tests.unit.scheduler.harness import World

# ---- lists and figures --------------------------------------------------------------------------


async def test_list_is_walked_to_its_end_each_event_once(world: World) -> None:
    made = [await world.demo.create(delay=f"PT{number * 40}S") for number in range(30)]
    await world.run(100)
    for limit in (1, 7, 30, 1000):
        pages = await world.demo.pages(f"{EVENTS}?limit={limit}")
        assert all(len(page) <= limit for page in pages)
        assert sorted(event["id"] for page in pages for event in page) == sorted(event["id"] for event in made)


async def test_list_has_a_hundred_items_by_default(world: World) -> None:
    answer = await world.demo.post(f"{EVENTS}/batch", [{"delay": "PT1H", "payload": number} for number in range(101)])
    assert answer.json()["accepted"] == 101
    page = (await world.demo.get(EVENTS)).json()
    assert len(page["items"]) == 100 and page["next"]
    rest = (await world.demo.get(f"{EVENTS}?cursor={page['next']}")).json()
    assert (len(rest["items"]), rest["next"]) == (1, None)
    assert len((await world.demo.get(f"{EVENTS}?limit=1000")).json()["items"]) == 101


async def test_empty_list_is_empty(world: World) -> None:
    for path in (EVENTS, DEAD):
        assert (await world.demo.get(path)).json() == {"items": [], "next": None}


async def test_cursor_belongs_to_its_list(world: World) -> None:
    for _ in range(2):
        await world.demo.create()
    cursor = (await world.demo.get(f"{EVENTS}?limit=1")).json()["next"]
    assert (await world.demo.get(f"{DEAD}?cursor={cursor}")).pointers == ["?cursor"]
    assert (await world.admin.get(f"/api/v1/tenants?cursor={cursor}")).pointers == ["?cursor"]
    assert (await world.demo.get(f"{EVENTS}?cursor={cursor[:-1]}")).pointers == ["?cursor"]


async def test_cursor_of_another_tenant_shows_only_ones_own(world: World) -> None:
    other = await world.tenant("acme")
    for client in (world.demo, other):
        for _ in range(3):
            await client.create()
    cursor = (await world.demo.get(f"{EVENTS}?limit=1")).json()["next"]
    assert {event["tenant"] for event in (await other.get(f"{EVENTS}?cursor={cursor}")).json()["items"]} <= {"acme"}


async def test_lists_filter_by_time_state_and_channel(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo/channels/other", {"type": "http", "url": "http://localhost:1/"})).status == 201
    soon = await world.demo.create(delay="PT1S")
    late = await world.demo.create(due="2027-01-15T09:00:00Z", channel="other")
    gone = await world.demo.create(due="2027-01-15T09:00:00.001Z")
    await world.demo.delete(f"{EVENTS}/{gone['id']}")
    await world.run(3)

    async def listed(query: str) -> set[str]:
        return {event["id"] for event in await world.demo.all(f"{EVENTS}?{query}")}

    assert await listed("state=delivered") == {soon["id"]}
    assert await listed("state=scheduled") == {late["id"]}
    assert await listed("state=cancelled") == {gone["id"]}
    assert await listed("state=queued") == set()
    assert await listed("channel=other") == {late["id"]}
    assert await listed("from=2027-01-15T09:00:00Z") == {late["id"], gone["id"]}
    assert await listed("to=2027-01-15T09:00:00Z") == {soon["id"]}
    assert await listed("from=2027-01-15T10:00:00%2B01:00&to=2027-01-15T09:00:00.001Z") == {late["id"]}
    assert await listed("from=2027-01-15T10:00:00+01:00&state=cancelled") == {gone["id"]}
    assert await listed("from=2027-01-15T09:00:00.002Z") == set()
    assert await listed("from=2027-01-15T09:01:00Z&to=2027-01-15T09:01:00Z") == set()


async def test_figures_add_up(world: World) -> None:
    world.receiver.otherwise = NEVER
    await world.demo.create(delay="PT0S")
    await world.run(2)
    world.receiver.otherwise = Verdict("delivered", 200)
    await world.demo.create(delay="PT1S")
    await world.demo.create(due="2027-01-15T08:00:00Z")
    await world.demo.create(due="2020-01-01T00:00:00Z", expires="PT1S")
    cancelled = await world.demo.create(delay="PT1S")
    await world.demo.delete(f"{EVENTS}/{cancelled['id']}")
    await world.demo.create()
    await world.run(5)
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert {name: stats[name] for name in ("open", "overdue", "delivered", "dead", "lapsed", "cancelled")} == {
        "open": 1,
        "overdue": 0,
        "delivered": 2,
        "dead": 1,
        "lapsed": 1,
        "cancelled": 1,
    }
    assert set(stats["channels"]) == {"default"} and stats["channels"]["default"]["delivered"] == 2
    # One was due two seconds before it was accepted, which is no lateness.
    assert stats["late_ms"]["max"] < 1000


# ---- limits, tenants, storage that is away ------------------------------------------------------


async def test_rate_over_the_limit_is_429_with_retry_after_and_stores_nothing(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 2})
    for _ in range(2):
        await client.create()
    before = world.dump()
    answer = await client.post(EVENTS, {"delay": "PT1H", "payload": 1})
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (429, "too-many-requests", "1")
    assert world.dump() == before
    await world.clock.advance(1)
    await client.create()


async def test_slow_rate_says_how_long_to_wait(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 0.1})
    await client.create()
    answer = await client.post(EVENTS, {"delay": "PT1H", "payload": 1})
    assert answer.status == 429 and 9 <= int(answer.headers["retry-after"]) <= 10
    await world.clock.advance(int(answer.headers["retry-after"]))
    await client.create()


async def test_open_events_over_the_limit_are_429_until_some_have_ended(world: World) -> None:
    client = await world.tenant(limits={"open_events": 2})
    for _ in range(2):
        await client.create(delay="PT1S")
    before = world.dump()
    answer = await client.post(EVENTS, {"delay": "PT1H", "payload": 1})
    assert (answer.status, answer.code) == (429, "too-many-requests") and int(answer.headers["retry-after"]) >= 1
    assert world.dump() == before
    await world.run(10)
    await client.create()


async def test_limit_of_no_open_events_lets_none_in(world: World) -> None:
    client = await world.tenant(limits={"open_events": 0})
    assert (await client.post(EVENTS, {"delay": "PT1H", "payload": 1})).status == 429


async def test_limits_are_each_tenants_own(world: World) -> None:
    client = await world.tenant(limits={"events_per_second": 1})
    await client.create()
    assert (await client.post(EVENTS, {"delay": "PT1H", "payload": 1})).status == 429
    for _ in range(5):
        await world.demo.create()


async def test_admin_acts_for_the_tenant_it_names(world: World) -> None:
    made = await world.admin.post(f"{EVENTS}?tenant=demo", {"delay": "PT1H", "payload": 1})
    assert (made.status, made.json()["tenant"]) == (201, "demo")
    url = made.headers["location"]
    assert (await world.demo.get(url)).status == 200
    assert (await world.admin.get(f"{url}?tenant=demo")).status == 200
    assert len((await world.admin.get(f"{EVENTS}?tenant=demo")).json()["items"]) == 1
    assert (await world.admin.get("/api/v1/stats?tenant=demo")).json()["open"] == 1
    assert (await world.admin.patch(f"{url}?tenant=demo", {"payload": 2})).status == 200
    assert (await world.admin.delete(f"{url}?tenant=demo")).status == 204
    await world.tenant("acme")
    assert (await world.admin.get(f"{url}?tenant=acme")).status == 404
    assert (await world.demo.get(f"{url}?tenant=demo")).status == 200


async def test_admin_key_of_a_tenant_acts_for_its_own_unless_the_request_says_otherwise(world: World) -> None:
    await world.tenant("acme")
    admin = await world.key("acme", ["admin"])
    assert (await admin.create())["tenant"] == "acme"
    assert (await admin.post(f"{EVENTS}?tenant=demo", {"delay": "PT1H", "payload": 1})).json()["tenant"] == "demo"


async def test_keys_of_a_deleted_tenant_are_strangers(world: World) -> None:
    client = await world.tenant("acme")
    await client.create(id="x")
    assert (await world.admin.delete("/api/v1/tenants/acme")).status == 204
    assert (await client.get(EVENTS)).status == 401
    assert (await world.admin.get(f"{EVENTS}?tenant=acme")).status == 404


@pytest.mark.parametrize("failure", [Unavailable("throttled"), OutcomeUnknown("lost")])
async def test_storage_that_is_away_is_503_with_retry_after(world: World, failure: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.demo.create(id="x")
    before = world.dump()

    async def away(*_: Any, **__: Any) -> Any:
        raise failure

    for name in ("write", "query"):
        monkeypatch.setattr(world.tables, name, away)
    url = f"{EVENTS}/{made['id']}"
    for method, path, body in (
        ("POST", EVENTS, {"delay": "PT1H", "payload": 1}),
        ("POST", EVENTS, {"delay": "PT1H", "payload": 1, "id": "y"}),
        ("GET", EVENTS, None),
        ("GET", DEAD, None),
        ("GET", "/api/v1/stats", None),
        ("PATCH", url, {"payload": 2}),
        ("PATCH", url, {"delay": "PT2H"}),
        ("DELETE", url, None),
        ("POST", f"{url}/fire", None),
        ("POST", f"{DEAD}/redrive", {}),
    ):
        answer = await world.demo.call(method, path, body)
        assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "storage-unavailable", "1"), (method, path)
    batch = await world.demo.post(f"{EVENTS}/batch", [{"delay": "PT1H", "payload": 1}, 17])
    assert [line["status"] for line in batch.json()["results"]] == [503, 422]
    assert world.dump() == before


async def test_surprise_is_500_and_shows_only_an_incident(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("hunter2")

    monkeypatch.setattr(world.tables, "query", broken)
    answer = await world.demo.get(EVENTS)
    assert (answer.status, answer.code) == (500, "internal-error") and b"hunter2" not in answer.body
    assert "hunter2" in caplog.text


async def kill(world: World, **event: Any) -> str:
    """An event whose only attempt has failed: a dead letter."""
    made = await world.demo.create(delay="PT1S", retry={"attempts": 1}, **event)
    world.receiver.script(made["id"], Verdict("retry", 500), DELIVERED)
    return str(made["id"])


async def listed(world: World) -> dict[str, list[tuple[str, str]]]:
    """Return the ids with states that each list shows."""
    urls = {"events": f"{EVENTS}?limit=1000", "dead": f"{EVENTS}?state=dead", "letters": DEAD, "delivered": f"{EVENTS}?state=delivered"}
    return {name: sorted((each["id"], each["state"]) for each in await world.demo.all(url)) for name, url in urls.items()}


@pytest.mark.parametrize("finished", [True, False], ids=["finished shard", "unfinished shard"])
async def test_a_redriven_event_is_in_each_list_once_and_counts_once(world: World, finished: bool) -> None:
    other, again = await kill(world), await kill(world)
    if not finished:
        # An event of the same shard that still waits for a retry.
        waits = (await world.demo.create(delay="PT1S", retry={"attempts": 3, "first": "PT2H"}))["id"]
        world.receiver.script(waits, Verdict("retry", 500))
    await world.run(20)
    before = await listed(world)
    assert before["dead"] == before["letters"] == sorted([(other, "dead"), (again, "dead")])
    assert (await world.demo.get("/api/v1/stats")).json()["dead"] == 2

    assert (await world.demo.post(f"{EVENTS}/{again}/redrive")).status == 202
    for _ in range(2):
        shown, stats = await listed(world), (await world.demo.get("/api/v1/stats")).json()
        assert [each for each, _ in shown["events"]].count(again) == 1
        assert shown["dead"] == shown["letters"] == [(other, "dead")]
        assert stats["dead"] == 1 and stats["delivered"] == len(shown["delivered"])
        await world.run(20)
    assert (again, "delivered") in shown["events"] and (await world.demo.event(again))["state"] == "delivered"
    minutes = (await world.demo.get("/api/v1/history?from=2027-01-15T07:00:00Z&to=2027-01-15T09:00:00Z")).json()["items"]
    assert sum(each["dead"] for each in minutes) == 1 and sum(each["moved"] for each in minutes) == 1
    if finished:
        assert stats["channels"]["default"]["dead"] == 1


async def test_the_owner_of_the_copy_completes_a_redrive_that_ended_half_way(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    event = await kill(world)
    await world.run(20)

    def crash(*_: Any) -> Any:
        raise RuntimeError("the process ends")

    with monkeypatch.context() as patched:
        patched.setattr("shared.scheduler.protocol.changing.point", crash)
        assert (await world.demo.post(f"{EVENTS}/{event}/redrive")).status == 500
    await world.run(40)
    shown = await listed(world)
    assert shown["events"] == shown["delivered"] == [(event, "delivered")] and shown["dead"] == shown["letters"] == []
    assert (await world.demo.event(event))["state"] == "delivered"
    assert (await world.demo.get("/api/v1/stats")).json()["dead"] == 0
