"""Fan-outs: one request, an event for each channel, acknowledged together and changed by one id."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, Unavailable
from shared.delivery.channels.ports import Verdict
from shared.storage.names import IDS
from shared.storage.ports import Applied, Op, WriteRefused
from shared.web.local_client import LocalReply

from ..harness import Client, World

URL = "/api/v1/events"
HOOK = {"type": "http", "url": "http://localhost:7072/x"}


async def channels(world: World, *names: str, tenant: str = "demo") -> None:
    for name in names:
        assert (await world.admin.put(f"/api/v1/tenants/{tenant}/channels/{name}", HOOK)).status == 201


async def post(client: Client, names: Sequence[str] = ("a", "b", "c"), **more: Any) -> LocalReply:
    """Post a fan-out, by default due in ten seconds."""
    given = {"channels": list(names), "payload": {"n": 1}} | ({} if "due" in more else {"delay": "PT10S"}) | more
    return await client.post(URL, given)


def states(shown: dict[str, Any]) -> list[tuple[str, str]]:
    return [(event["id"], event["state"]) for event in shown["events"]]


def outcomes(report: LocalReply) -> dict[str, tuple[int, str | None]]:
    lines = report.json()["results"]
    return {line["channel"]: (line["status"], line.get("problem", {}).get("type", "/").rpartition("/")[2]) for line in lines}


async def test_each_channel_gets_its_event_and_one_id_shows_them(world: World) -> None:
    await channels(world, "a", "b", "c")
    world.receiver.script("order-17@b", Verdict("final", 400))
    made = await post(world.demo, ["c", "a", "b"], id="order-17", labels={"team": "x"})
    assert (made.status, made.headers["location"]) == (201, f"{URL}/order-17")
    shown = made.json()
    assert (shown["id"], shown["tenant"], shown["channels"]) == ("order-17", "demo", ["a", "b", "c"])
    assert [(event["channel"], event["fanout"]) for event in shown["events"]] == [("a", "order-17"), ("b", "order-17"), ("c", "order-17")]
    assert states(shown) == [("order-17@a", "scheduled"), ("order-17@b", "scheduled"), ("order-17@c", "scheduled")]
    await world.run(20)
    assert states(await world.demo.event("order-17")) == [("order-17@a", "delivered"), ("order-17@b", "dead"), ("order-17@c", "delivered")]
    assert sorted((got.id, got.target.name) for got in world.receiver.received) == [
        ("order-17@a", "a"), ("order-17@b", "b"), ("order-17@c", "c"),
    ]  # fmt: skip
    assert (await world.demo.event("order-17@b"))["state"] == "dead"


async def test_a_repeated_request_makes_nothing_and_other_content_is_refused(world: World) -> None:
    await channels(world, "a", "b", "c")
    assert (await post(world.demo, id="x")).status == 201
    assert (await post(world.demo, ["b", "c", "a"], id="x")).status == 200
    refused = [
        await post(world.demo, id="x", payload=2),
        await post(world.demo, ["a", "b"], id="x"),
        await post(world.demo, ["b", "c"], id="x"),
        await world.demo.post(URL, {"id": "x", "delay": "PT10S", "payload": 1}),
    ]
    assert [answer.code for answer in refused] == ["id-conflict"] * 4
    await world.demo.create(id="y")
    await world.demo.create(id="z@b", channel="b")
    assert {event["id"] for event in await world.demo.all(URL)} == {"x@a", "x@b", "x@c", "y", "z@b"}
    assert [(await post(world.demo, id=each)).code for each in ("y", "z")] == ["id-conflict"] * 2
    assert (await world.demo.get(f"{URL}/z")).status == (await world.demo.get(f"{URL}/z@a")).status == 404


async def test_ids_that_the_service_gives_name_fan_outs_too(world: World) -> None:
    await channels(world, "a", "b")
    first, second = (await post(world.demo, ["a", "b"])).json(), (await post(world.demo, ["a", "b"], delay="PT0S")).json()
    assert first["id"] != second["id"] and first["events"][0]["id"] == f"{first['id']}@a"
    await world.run(20)
    for shown in (first, second):
        assert {event["state"] for event in (await world.demo.event(shown["id"]))["events"]} == {"delivered"}
    assert len(world.receiver.received) == 4


@pytest.mark.parametrize(
    ("given", "pointer"),
    [
        ({"channels": ["a"]}, "/channels"),
        ({"channels": ["a", "a"]}, "/channels"),
        ({"channels": [f"c{number}" for number in range(11)]}, "/channels"),
        ({"channels": ["b", "a", "nobody", "c"]}, "/channels/2"),
        ({"channel": "a"}, ""),
        ({"id": "x" * 160}, ""),
        ({"durability": "fast"}, "/durability"),
    ],
)
async def test_bad_input_is_refused_and_stores_nothing(world: World, given: dict[str, Any], pointer: str) -> None:
    await channels(world, "a", "b", "c")
    refused = await world.demo.post(URL, {"channels": ["a", "b"], "delay": "PT1S", "payload": 1} | given)
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, pointer)
    assert not world.events() and not world.rows(IDS)


async def test_one_call_changes_all_that_are_open_and_reports_each(world: World) -> None:
    await channels(world, "a", "b", "c")
    world.receiver.script("x@b", Verdict("final", 400), Verdict("delivered", 200))
    await post(world.demo, id="x", delay="PT1H")
    moved = await world.demo.patch(f"{URL}/x", {"delay": "PT2H", "payload": 7})
    assert (moved.status, moved.json()["id"], moved.json()["changed"]) == (200, "x", 3)
    assert [event["payload"] for event in (await world.demo.event("x"))["events"]] == [7, 7, 7]
    assert (await world.demo.patch(f"{URL}/x", {"channel": "a"})).json()["errors"][0]["pointer"] == "/channel"
    assert (await world.demo.delete(f"{URL}/x@a")).status == 204
    fired = await world.demo.post(f"{URL}/x/fire")
    assert fired.status == 202 and outcomes(fired) == {"a": (409, "already-final"), "b": (202, ""), "c": (202, "")}
    await world.run(20)
    assert states(await world.demo.event("x")) == [("x@a", "cancelled"), ("x@b", "dead"), ("x@c", "delivered")]
    redriven = await world.demo.post(f"{URL}/x/redrive")
    assert redriven.status == 202 and outcomes(redriven) == {"a": (409, "not-dead"), "b": (202, ""), "c": (409, "not-dead")}
    await world.run(20)
    assert (len(world.receiver.of("x@b")), len(world.receiver.of("x@c"))) == (2, 1)
    ended = await world.demo.delete(f"{URL}/x")
    assert outcomes(ended) == {name: (409, "already-final") for name in "abc"} and ended.json()["changed"] == 0
    assert [line["state"] for line in ended.json()["results"]] == ["cancelled", "delivered", "delivered"]
    for method, path in (("DELETE", "/nobody"), ("POST", "/nobody/fire"), ("POST", "/nobody/redrive")):
        assert (await world.demo.call(method, URL + path)).status == 404
    other = await world.tenant("other")
    assert (await other.get(f"{URL}/x")).status == (await other.delete(f"{URL}/x")).status == 404


async def test_a_cancelled_fan_out_is_not_delivered_and_its_etag_changes_with_each_event(world: World) -> None:
    await channels(world, "a", "b")
    await post(world.demo, ["a", "b"], id="x")
    assert (await world.demo.call("DELETE", f"{URL}/x", headers={"if-match": '"old"'})).status == 412
    tag = (await world.demo.get(f"{URL}/x")).headers["etag"]
    assert (await world.demo.call("PATCH", f"{URL}/x@b", {"delay": "PT11S"})).status == 200
    assert (await world.demo.call("DELETE", f"{URL}/x", headers={"if-match": tag})).status == 412
    moved = await world.demo.call("PATCH", f"{URL}/x", {"delay": "PT9S"})
    cancelled = await world.demo.call("DELETE", f"{URL}/x", headers={"if-match": moved.headers["etag"]})
    assert (cancelled.status, outcomes(cancelled)) == (200, {"a": (204, ""), "b": (204, "")})
    await world.run(20)
    assert not world.receiver.received


@pytest.mark.parametrize("name", ["x", "x@a"])
async def test_a_redrive_takes_no_if_match(world: World, name: str) -> None:
    """By the id of a fan-out, or of one event."""
    await channels(world, "a", "b")
    world.receiver.script("x@a", Verdict("final", 400))
    await post(world.demo, ["a", "b"], id="x")
    await world.run(20)
    assert (await world.demo.call("POST", f"{URL}/{name}/redrive", headers={"if-match": '"old"'})).status == 202
    assert (await world.demo.event("x@a"))["state"] == "scheduled"


async def test_each_event_counts_in_the_limits_and_all_are_let_in_or_none(world: World) -> None:
    client = await world.tenant("acme", limits={"open_events": 5})
    await channels(world, "a", "b", "c", tenant="acme")
    assert (await post(client, delay="PT1H")).status == 201
    refused = await post(client, delay="PT1H")
    assert (refused.status, refused.code) == (429, "too-many-requests")
    assert (await post(client, ["a", "b"], delay="PT1H")).status == 201
    assert (await client.get("/api/v1/stats")).json()["open"] == 5
    slow = await world.tenant("slow", limits={"events_per_second": 1})
    await channels(world, *(f"c{number}" for number in range(6)), tenant="slow")
    never = await post(slow, [f"c{number}" for number in range(6)])
    assert (never.status, never.json()["errors"][0]["pointer"]) == (422, "/channels")
    line = {"channels": [f"c{number}" for number in range(6)], "delay": "PT10S", "payload": 1}
    [result] = (await slow.post(f"{URL}/batch", [line])).json()["results"]
    assert result["status"] == 422
    [result] = (await slow.post(f"{URL}/batch", [{**line, "channels": ["c1", "nobody"]}])).json()["results"]
    assert result["problem"]["errors"][0]["pointer"] == "/channels/1"
    assert (await post(slow, ["c1", "c2", "c3"])).status == 201
    for _ in range(2):
        refused = await post(slow, ["c1", "c2", "c3"])
        assert refused.status == 429
        await world.run(1)
    await world.run(2)
    assert (await post(slow, ["c1", "c2", "c3"])).status == 201


async def test_lines_of_a_batch_are_fan_outs_or_events(world: World) -> None:
    await channels(world, "a", "b")
    lines = [
        {"delay": "PT1S", "payload": 1, "id": "plain"},
        {"delay": "PT1S", "payload": 2, "id": "x", "channels": ["b", "a"]},
        {"delay": "PT1S", "payload": 3, "channels": ["a", "nobody"]},
        {"delay": "PT1S", "payload": 4, "id": "x", "channels": ["a", "b"]},
        {"delay": "PT1S", "payload": 5, "channels": ["a", "b"]},
    ]
    answer = (await world.demo.post(f"{URL}/batch", lines)).json()
    assert [line["status"] for line in answer["results"]] == [201, 201, 422, 409, 201]
    assert (answer["accepted"], answer["results"][1]["id"]) == (3, "x")
    await world.run(20)
    assert sorted(got.payload for got in world.receiver.received) == [1, 2, 2, 5, 5]
    again = (await world.demo.post(f"{URL}/batch", lines[:2])).json()
    assert [(line["status"], line["id"]) for line in again["results"]] == [(200, "plain"), (200, "x")]


async def test_a_batch_counts_the_channels_of_its_fan_outs(world: World) -> None:
    names = [f"c{number}" for number in range(10)]
    await channels(world, *names)
    many = [{"delay": "PT1S", "payload": 1, "channels": names}] * 1_001
    refused = await world.demo.post(f"{URL}/batch", many)
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "")
    assert not world.events()


async def test_the_last_one_wins_on_every_channel_with_collapse(world: World) -> None:
    await channels(world, "a", "b", "c")
    answers = [await post(world.demo, ["a", "b"], id="doc", collapse="PT1M", payload=number) for number in range(3)]
    assert [answer.status for answer in answers] == [201, 200, 200]
    assert (await post(world.demo, ["a", "c"], id="doc", collapse="PT1M")).code == "id-conflict"
    await world.run(20)
    assert sorted((got.id, got.payload) for got in world.receiver.received) == [("doc@a", 2), ("doc@b", 2)]
    # All have ended, and the id may have other channels.
    assert (await post(world.demo, ["a", "c"], id="doc", collapse="PT1M", payload=9)).status == 201
    assert [event["id"] for event in (await world.demo.event("doc"))["events"]] == ["doc@a", "doc@c"]
    await world.demo.create(id="plain")
    assert (await post(world.demo, ["a", "b"], id="plain", collapse="PT1M")).code == "id-conflict"


async def test_other_channels_take_the_id_over_once_all_have_ended_and_a_redrive_does_not_take_it_back(world: World) -> None:
    await channels(world, "a", "b", "c")
    world.receiver.script("doc@a", Verdict("final", 400), Verdict("delivered", 200))
    await post(world.demo, ["a", "b"], id="doc", collapse="PT1M")
    assert (await world.demo.patch(f"{URL}/doc@b", {"delay": "PT1M"})).status == 200
    await world.run(20)
    assert states(await world.demo.event("doc")) == [("doc@a", "dead"), ("doc@b", "scheduled")]
    assert (await post(world.demo, ["b", "c"], id="doc", collapse="PT1M")).code == "id-conflict"
    await world.run(60)
    assert (await post(world.demo, ["b", "c"], id="doc", collapse="PT1H", delay="PT1H")).status == 201
    assert (await world.demo.post(f"{URL}/doc@a/redrive")).status == 202
    await world.run(10)
    assert states(await world.demo.event("doc")) == [("doc@b", "scheduled"), ("doc@c", "scheduled")]
    assert (await world.demo.event("doc@a"))["state"] == "delivered"


async def test_callbacks_and_keys_and_targets_are_those_of_each_event(world: World) -> None:
    await channels(world, "a", "b", "told")
    more = {"on_delivered": "told", "ordering_key": "k", "target": {"path": "/one"}, "flex": "PT5S", "expires": "PT1M"}
    made = await post(world.demo, ["a", "b"], id="x", **more)
    assert made.status == 201
    planned = {event["planned"] for event in (await world.demo.event("x"))["events"]}
    assert len(planned) == 1
    await world.run(40)
    assert sorted(got.payload["event"] for got in world.receiver.received if got.target.name == "told") == ["x@a", "x@b"]


class Cut:
    """Lets the first `after` writes through; then the answer of the next is lost, or it never arrives, and so are all later ones."""

    def __init__(self, world: World, after: int, *, applied: bool) -> None:
        self._write, self.left, self._applied, self.healed = world.tables.write, after, applied, False

    async def write(self, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        if self.healed or self.left > 0:
            self.left -= 1
            return await self._write(table, pk, ops)
        if self._applied and self.left == 0:
            self.left -= 1
            await self._write(table, pk, ops)
        raise OutcomeUnknown("the answer was lost") if self._applied else Unavailable("storage is away")


@pytest.mark.parametrize("applied", [True, False])
async def test_after_any_lost_answer_a_repeat_stores_the_rest_and_nothing_twice(
    world: World, monkeypatch: pytest.MonkeyPatch, applied: bool
) -> None:
    await channels(world, "a", "b", "c")
    acknowledged = 0
    for after in range(40):
        cut = Cut(world, after, applied=applied)
        with monkeypatch.context() as patch:
            patch.setattr(world.tables, "write", cut.write)
            first = await post(world.demo, id=f"x{after}", delay="PT5M")
        cut.healed = True
        if first.status == 503:
            stored = [row for row in world.events() if str(row.props["id"]).startswith(f"x{after}@")]
            assert not stored or first.json()["outcome"] == "unknown"
            assert len(stored) < 3 or applied
        again = await post(world.demo, id=f"x{after}", delay="PT5M")
        assert again.status in (200, 201)
        assert states(again.json()) == [(f"x{after}@{name}", "scheduled") for name in "abc"]
        acknowledged += first.status == 201
        if first.status == 201:
            break
    assert acknowledged == 1 and after > 4
    await world.run(320)
    assert sorted(got.id for got in world.receiver.received) == sorted(f"x{number}@{name}" for number in range(after + 1) for name in "abc")


async def test_a_cancel_holds_for_events_that_a_request_stores_later(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await channels(world, "a", "b")
    for after in range(40):
        cut = Cut(world, after, applied=False)
        with monkeypatch.context() as patch:
            patch.setattr(world.tables, "write", cut.write)
            first = await post(world.demo, ["a", "b"], id=f"x{after}", delay="PT1M")
        cut.healed = True
        cancelled = await world.demo.delete(f"{URL}/x{after}")
        assert cancelled.status == 404 or outcomes(cancelled) == {"a": (204, ""), "b": (204, "")}
        again = await post(world.demo, ["a", "b"], id=f"x{after}", delay="PT1M")
        assert {state for _, state in states(again.json())} == ({"scheduled"} if cancelled.status == 404 else {"cancelled"})
        await world.demo.delete(f"{URL}/x{after}")
        if first.status == 201:
            break
    await world.run(90)
    assert not world.receiver.received


async def test_of_many_requests_at_once_one_has_the_id(world: World) -> None:
    await channels(world, "a", "b", "c", "d")
    client = world.demo.without_time()
    sets = [["a", "b"], ["c", "d"], ["a", "c", "d"], ["a", "b"]]
    given = [{"id": "x", "channels": names, "delay": "PT10S", "payload": 1} for names in sets]

    async def race() -> list[LocalReply]:
        return list(await asyncio.gather(*(client.post(URL, each) for each in given)))

    answers = await world.do(race())
    [won] = {tuple(answer.json()["channels"]) for answer in answers if answer.status in (200, 201)}
    assert {answer.status for answer in answers} <= {200, 201, 409}
    await world.run(20)
    assert sorted(got.id for got in world.receiver.received) == [f"x@{name}" for name in won]


async def test_retention_frees_the_ids(world: World) -> None:
    await channels(world, "a", "b")
    await post(world.demo, ["a", "b"], id="x", delay="PT1H")
    assert (await world.demo.patch(f"{URL}/x", {"delay": "PT1S"})).json()["changed"] == 2
    await world.run(20)
    for _ in range(40):
        await world.clock.advance(86_400)
        await world.do(world.app.scheduler.sweeps.retain(["demo"], world.now))
    assert not world.rows(IDS)


async def test_events_that_are_moved_together_stay_due_at_the_same_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await channels(world, "a", "b", "c")
    await post(world.demo, id="x")
    clock, ticks = world.app.scheduler.clock, itertools.count()
    now = clock.now
    with monkeypatch.context() as patch:
        patch.setattr(clock, "now", lambda: now() + next(ticks))
        assert (await world.demo.patch(f"{URL}/x", {"delay": "PT1H"})).json()["changed"] == 3
    assert len({event["due"] for event in (await world.demo.get(f"{URL}/x")).json()["events"]}) == 1
