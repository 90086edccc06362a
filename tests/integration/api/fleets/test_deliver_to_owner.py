"""Deliveries of a fleet channel to the server that owns the partition of an event's ordering key."""

from __future__ import annotations

from typing import Any

import pytest

from shared.core.partition_hash import partition_of_key
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.delivery.fleet_owners import MOST_STALE, OWNER_WAIT, UNANSWERED
from shared.storage.names import FLEETS
from tests.texts import assert_text
from tests.unit.scheduler.harness import World

from .nodes import GRACE, KEY, WEB, Node, T, V, quiet

CHANNELS = "/api/v1/tenants/demo/channels"
OWNERS = {"type": "fleet", "fleet": "web", "path": "/events"}
ENDPOINT = "http://localhost:9001"
OTHER = "http://localhost:9002"
PARTITIONS = 4
STALE = Verdict("stale", 421, "a does not own partition 1 under epoch 1")
SILENT = Verdict("retry", None, "no answer within 5 s")
REFUSED = Verdict("retry", None, "could not connect: Connection refused", unreached=True)


def key_of(partition: int, count: int = PARTITIONS) -> str:
    """Return an ordering key of the partition."""
    return next(key for number in range(1000) if partition_of_key(key := f"customer-{number}", count) == partition)


@pytest.fixture
async def fleet(world: World) -> World:
    assert (await world.demo.put(WEB, {"partitions": PARTITIONS, "limits": {"max_per_server": PARTITIONS}})).status == 201
    made = await world.admin.put(f"{CHANNELS}/owners", OWNERS)
    assert made.status == 201 and made.json()["secret"].startswith("whsec_"), made
    return world


@pytest.fixture
async def a(fleet: World) -> Node:
    node = Node(fleet.demo, "a")
    await node.beats(endpoint=ENDPOINT)
    await quiet(fleet)
    await node.claims(*range(PARTITIONS))
    return node


async def send(world: World, key: str, **more: Any) -> str:
    made = await world.demo.create(channel="owners", ordering_key=key, delay="PT0S", **more)
    return str(made["id"])


async def alive(world: World, seconds: float, *nodes: Node) -> None:
    """Let time pass while these servers send heartbeats and claim what they are ordered to."""
    for _ in range(int(seconds / 2)):
        await world.run(2)
        for node in nodes:
            answer = await node.beats()
            for partition in answer["release"]:
                assert (await node.release(partition, answer["held"][str(partition)])).status == 204
            if answer["assign"]:
                claim = {"node": node.name, "incarnation": node.incarnation, "partitions": answer["assign"]}
                await world.demo.post(f"{WEB}/leases/claim", {**claim, "generation": answer["generation"]})
        await quiet(world)


async def test_an_event_goes_to_the_owner_of_its_keys_partition(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    await a.release(2, 1)
    await b.claims(2)
    await send(fleet, key_of(1))
    await send(fleet, key_of(2))
    await fleet.run(3)
    [shown, _] = await fleet.demo.all(f"{WEB}/nodes")
    assert shown["beat"]["endpoint"] == ENDPOINT
    owners = sorted(got.delivery.owner for got in fleet.receiver.received if got.delivery.owner is not None)
    assert [(each.server, each.endpoint, each.generation, each.partition, each.epoch) for each in owners] == [
        ("a", ENDPOINT, 1, 1, 1),
        ("b", OTHER, 1, 2, 2),
    ]


async def test_an_event_needs_an_ordering_key(fleet: World) -> None:
    answer = await fleet.demo.post("/api/v1/events", {"payload": 1, "delay": "PT1S", "channel": "owners"})
    assert answer.status == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/ordering_key"
    assert_text("event.needs-ordering-key", error["detail"], channel="owners")
    schedule = {"channel": "owners", "payload": 1, "every": "PT1H"}
    assert (await fleet.demo.put("/api/v1/schedules/s", schedule)).json()["errors"][0]["pointer"] == "/ordering_key"
    assert (await fleet.demo.put("/api/v1/schedules/s", {**schedule, "ordering_key": "k"})).status == 201
    made = await fleet.demo.create()
    changed = await fleet.demo.call("PATCH", f"/api/v1/events/{made['id']}", {"channel": "owners"}, {"if-match": "*"})
    assert (changed.status, changed.json()["errors"][0]["pointer"]) == (422, "/channel")
    told = await fleet.demo.post("/api/v1/events", {"payload": 1, "delay": "PT1S", "on_dead": "owners"})
    assert (told.status, told.json()["errors"][0]["pointer"]) == (422, "/on_dead")
    aimed = {"payload": 1, "delay": "PT1S", "channel": "owners", "ordering_key": "k", "target": {"path": "/x"}}
    assert (await fleet.demo.post("/api/v1/events", aimed)).json()["errors"][0]["pointer"] == "/target"


@pytest.mark.parametrize(
    ("endpoint", "key"),
    [
        ("https://s7.example/x", "endpoint.form"),
        ("ftp://s7.example", "endpoint.form"),
        ("https://[1.2.3.4]", "endpoint.brackets"),
        ("https://[::::]", "endpoint.brackets"),
        ("https://s7.example:99999", "endpoint.form"),
        ("https://user@s7.example", "endpoint.form"),
        ("https://10.2.0.7:8443", "endpoint.private"),
        ("http://169.254.169.254", "endpoint.link-local"),
    ],
)
async def test_a_bad_endpoint_is_refused_and_changes_nothing(fleet: World, endpoint: str, key: str) -> None:
    a = Node(fleet.demo, "a")
    answer = await a.beat(endpoint=endpoint)
    assert answer.status == 422
    [error] = answer.json()["errors"]
    assert error["pointer"] == "/endpoint"
    assert_text(key, error["detail"])
    assert not [row for row in fleet.rows(FLEETS, KEY) if row.rk.startswith("s:")]


@pytest.mark.parametrize("path", ["events", "/a?b", "/../x", "/%2e%2e/x"])
async def test_a_bad_path_is_refused(fleet: World, path: str) -> None:
    answer = await fleet.admin.put(f"{CHANNELS}/bad", {**OWNERS, "path": path})
    assert (answer.status, answer.json()["errors"][0]["pointer"]) == (422, "/path")


async def test_a_server_without_an_endpoint_is_waited_for_and_then_an_attempt_fails(fleet: World) -> None:
    a = Node(fleet.demo, "a")
    await a.beats()
    await quiet(fleet)
    await a.claims(*range(PARTITIONS))
    event = await send(fleet, key_of(1))
    await alive(fleet, OWNER_WAIT / 1000 - 4, a)
    assert (await fleet.demo.event(event))["attempts"] == []
    await alive(fleet, 8, a)
    [attempt] = (await fleet.demo.event(event))["attempts"]
    expected = "partition 1 of fleet web cannot be delivered to: its owner a has published no endpoint; the delivery has waited 60 s"
    assert (attempt["outcome"], attempt["error"]) == ("retry", expected)
    await a.beats(endpoint=ENDPOINT)
    await alive(fleet, 20, a)
    found = await fleet.demo.event(event)
    assert found["state"] == "delivered"
    assert "partition-owner" in [each["reason"] for each in found["late_because"]]
    row = next(row for row in fleet.rows(FLEETS, KEY) if row.rk == "s:a")
    assert row.props["endpoint"] == ENDPOINT


async def test_waiting_claims_nothing_and_delays_no_other_channel(fleet: World, a: Node) -> None:

    for partition in range(PARTITIONS):
        await a.release(partition, 1)
    held = [await send(fleet, key_of(1), id=f"held-{number}") for number in range(20)]
    other = await fleet.demo.create(delay="PT0S")
    await fleet.run(4)
    assert fleet.receiver.delivered() == [other["id"]]
    for event in held:
        found = await fleet.demo.event(event)
        assert (found["state"], found["attempts"]) == ("scheduled", [])
        assert found["held"]["reason"] == "partition-owner"
        assert_text("delivery.no-owner", found["held"]["detail"], partition=1, fleet="web")


async def test_a_stale_answer_is_no_failed_attempt(fleet: World, a: Node) -> None:
    fleet.receiver.first("e", STALE, STALE)
    event = await send(fleet, key_of(1), id="e", retry={"attempts": 1})
    await alive(fleet, 6, a)
    found = await fleet.demo.event(event)
    assert found["state"] == "delivered"
    assert [each["outcome"] for each in found["attempts"]] == ["stale", "stale", "delivered"]
    assert found["attempts"][0]["status"] == 421


async def test_stale_answers_do_not_go_on_for_ever(fleet: World, a: Node) -> None:
    fleet.receiver.script("e", STALE)
    event = await send(fleet, key_of(1), id="e", retry={"attempts": 1})
    await alive(fleet, 60, a)
    found = await fleet.demo.event(event)
    assert found["state"] == "dead"
    assert len(fleet.receiver.of("e")) == MOST_STALE + 1


async def test_after_a_stale_answer_the_owner_is_looked_up_again(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    first = await send(fleet, key_of(1))
    await fleet.run(1)

    def answer(target: Target, delivery: OutgoingDelivery) -> Verdict:
        assert delivery.owner is not None
        return Verdict("delivered", 200) if delivery.owner.epoch == 2 else STALE

    fleet.receiver.otherwise = answer
    await a.release(1, 1)
    await b.claims(1)
    second = await send(fleet, key_of(1))
    await fleet.run(2)
    assert fleet.receiver.delivered() == [first, second]


async def test_while_the_owner_is_drained_its_events_wait_for_the_next_owner(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    assert (await fleet.demo.post(f"{WEB}/nodes/a/drain", {"note": "new disk"})).status in (200, 201, 204)
    await fleet.run(3)
    event = await send(fleet, key_of(1))
    await fleet.run(2)
    assert not fleet.receiver.received
    await alive(fleet, 40, a, b)
    found = await fleet.demo.event(event)
    assert found["state"] == "delivered"
    assert fleet.receiver.received[0].delivery.owner is not None
    assert fleet.receiver.received[0].delivery.owner.server == "b"
    assert found["late_because"][0]["reason"] == "partition-owner"


async def test_keys_map_by_the_newest_count_from_the_resize_on(fleet: World, a: Node) -> None:
    assert (await fleet.demo.post(f"{WEB}/leases/resize", {"partitions": 7})).status in (200, 202)
    await fleet.run(3)
    event = await send(fleet, key_of(5, 7))
    await fleet.run(2)
    assert not fleet.receiver.received
    await alive(fleet, 60, a)
    [got] = fleet.receiver.of(event)
    assert got.delivery.owner is not None
    assert (got.delivery.owner.generation, got.delivery.owner.partition) == (2, 5)


async def test_one_dead_server_delays_its_own_partitions_only(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    await a.release(2, 1)
    await b.claims(2)

    def answer(target: Target, delivery: OutgoingDelivery) -> Verdict:
        assert delivery.owner is not None
        return SILENT if delivery.owner.server == "a" else Verdict("delivered", 200)

    fleet.receiver.otherwise = answer
    for number in range(30):
        await send(fleet, key_of(1), id=f"a-{number}")
    await alive(fleet, 4, a, b)
    served = [await send(fleet, key_of(2)) for _ in range(5)]
    await alive(fleet, 4, a, b)
    assert fleet.receiver.delivered() == served
    flow = (await fleet.admin.get(f"{CHANNELS}/owners")).json()["flow"]
    assert flow["breaker"] == "closed"
    # Those in flight when it fell silent, and a probe now and then.
    assert UNANSWERED <= len([got for got in fleet.receiver.received if got.verdict is SILENT]) < 30 + 8


async def test_events_of_a_server_that_hangs_fail_without_slots_of_the_other_servers(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    await a.release(2, 1)
    await b.claims(2)
    fleet.receiver.otherwise = SILENT
    lost = [await send(fleet, key_of(1)) for _ in range(30)]
    await alive(fleet, 90, a, b)
    tried = len(fleet.receiver.received)
    for each in lost:
        assert (await fleet.demo.event(each))["attempts"], "each has had its failed attempt"
        await send(fleet, key_of(1))
    await alive(fleet, 100, a, b)
    assert len(fleet.receiver.received) - tried <= 100 / 5 + 1, "a probe now and then, also after the events have waited"


async def test_a_fleets_channel_opens_its_breaker_when_three_servers_fail(fleet: World, a: Node) -> None:
    nodes = [a, Node(fleet.demo, "b", 2), Node(fleet.demo, "c", 3)]
    for number, node in enumerate(nodes[1:], 1):
        await node.beats(endpoint=OTHER)
        await a.release(number, 1)
        await node.claims(number)
    fleet.receiver.otherwise = SILENT
    for number in range(12):
        await send(fleet, key_of(number % 3))
    await alive(fleet, 6, *nodes)
    assert (await fleet.admin.get(f"{CHANNELS}/owners")).json()["flow"]["breaker"] == "open"


def from_b_alone(target: Target, delivery: OutgoingDelivery) -> Verdict:
    """The server `a` has crashed."""
    assert delivery.owner is not None
    return Verdict("delivered", 200) if delivery.owner.server == "b" else REFUSED


@pytest.mark.parametrize("apart", [0, 1, 4])
async def test_events_for_a_crashed_owner_wait_for_the_next_one_and_lose_no_attempt(fleet: World, a: Node, apart: int) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats(endpoint=OTHER)
    fleet.receiver.otherwise = from_b_alone
    events = []
    for _ in range(5):
        events.append(await send(fleet, key_of(1), retry={"attempts": 1}))
        await alive(fleet, 2 * apart, b)
    fell = fleet.clock.now()
    await alive(fleet, T + GRACE + 15, b)
    for event in events:
        found = await fleet.demo.event(event)
        assert found["state"] == "delivered", found
        refused = found["attempts"][:-1]
        assert {each["outcome"] for each in refused} <= {"retry"}
        assert not refused or "partition-owner" in [each["reason"] for each in found["late_because"]]
    # One probe in five seconds, and those in flight when it fell silent.
    tried = len([got for got in fleet.receiver.received if got.verdict is REFUSED])
    assert tried <= len(events) + (fleet.clock.now() - fell + 10_000 * apart) / 5_000


async def test_a_server_that_refuses_for_longer_than_a_failover_costs_attempts(fleet: World, a: Node) -> None:
    fleet.receiver.otherwise = REFUSED
    event = await send(fleet, key_of(1), retry={"attempts": 1})
    await alive(fleet, V + T - 2, a)
    assert (await fleet.demo.event(event))["state"] == "retrying"
    await alive(fleet, 10, a)
    found = await fleet.demo.event(event)
    assert found["state"] == "dead"
    assert UNANSWERED < len(found["attempts"]) <= UNANSWERED + 1 + (V + T) / 5


async def test_headers_stay_with_their_fleet(fleet: World) -> None:
    given = {**OWNERS, "headers": {"x-team": "secret"}}
    assert (await fleet.admin.put(f"{CHANNELS}/h", given)).json()["headers"] == {"x-team": "***"}
    masked = {**OWNERS, "headers": {"x-team": "***"}}
    assert (await fleet.admin.put(f"{CHANNELS}/h", masked)).status == 200
    elsewhere = await fleet.admin.put(f"{CHANNELS}/h", {**masked, "fleet": "other"})
    assert (elsewhere.status, elsewhere.json()["errors"][0]["pointer"]) == (422, "/headers/x-team")
    ours = await fleet.admin.put(f"{CHANNELS}/h", {**OWNERS, "headers": {"Tocsin-Owner": "x"}})
    assert (ours.status, ours.json()["errors"][0]["pointer"]) == (422, "/headers/Tocsin-Owner")


async def test_events_of_durability_fast_and_of_a_fan_out_go_to_the_owner_too(fleet: World, a: Node) -> None:
    fast = {"payload": 1, "delay": "PT0S", "channel": "owners", "ordering_key": key_of(1), "durability": "fast"}
    assert (await fleet.demo.post("/api/v1/events", fast)).status == 202
    both = {"payload": 2, "delay": "PT0S", "channels": ["default", "owners"], "ordering_key": key_of(1)}
    assert (await fleet.demo.post("/api/v1/events", both)).status == 201
    await fleet.run(6)
    owned = [got for got in fleet.receiver.received if got.delivery.owner is not None]
    assert sorted(got.payload for got in owned) == [1, 2]
    assert len(fleet.receiver.received) == 3
