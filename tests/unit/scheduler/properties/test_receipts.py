"""A request that was overtaken: a later one was acknowledged while it waited for storage. It changes nothing any more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from typing import Any

import pytest

from shared.app.application import Application
from shared.core.clock import to_text
from shared.scheduler.changes.verbs import ChangeRequest
from shared.scheduler.keys import Address
from shared.scheduler.properties.receipts import MEMBERS, MOVED, RECEIVED, Received, is_overtaken, noted, receipts_of, with_receipts
from shared.scheduler.protocol import changing
from shared.storage import Storage
from shared.storage.names import EVENTS
from shared.storage.server_time import ServerTimeEstimator, time_etag
from shared.web.arrivals import EVER, Arrivals, Receipt
from shared.web.local_client import LocalClient, LocalReply
from tests.faults import Faults, Perform, Request

from ..flow.flowing import Instances
from ..harness import DEMO, ROUTES, START, World

URL = "/api/v1/events"
BEAT = "/api/v1/heartbeats/backup"


class Stalling(Instances):
    """Two instances. The next request to a table of events that is held waits until it is let go."""

    async def open(self) -> World:
        self._holds: list[tuple[str, asyncio.Event, asyncio.Event]] = []
        times = self.storage.server_times
        self.storage = Storage(Faults(self.tables, self._plan), self.queues, server_times=times)  # type: ignore[arg-type]
        await super().open()
        # Each process has its own view of storage's time.
        other = ServerTimeEstimator(self.clock)
        now = other.elapsed()
        for each in (other, *times):
            each.note(now, now, [time_etag(to_text(self.now), 1)])
        self.apps[1].arrivals._times = (other,)
        return self

    async def _plan(self, request: Request, perform: Perform) -> Any:
        if request.table == EVENTS and self._holds and self._holds[0][0] == request.kind and not request.rk.startswith("gate"):
            _, held, go = self._holds.pop(0)
            held.set()
            await go.wait()
        return await perform()

    async def stalled(self, call: Coroutine[Any, Any, LocalReply], at: str) -> tuple[asyncio.Task[LocalReply], asyncio.Event]:
        """Begin a call, and return it with what lets it go on: its next request to the events, of this kind, is held."""
        held, go = asyncio.Event(), asyncio.Event()
        self._holds.append((at, held, go))
        task = asyncio.ensure_future(call)
        await self.do(held.wait())
        # Longer than the error of the processes' clocks.
        await self.clock.advance(0.1)
        return task, go

    async def end(self, task: asyncio.Task[LocalReply], go: asyncio.Event) -> LocalReply:
        """Let a call go on, and return its answer."""

        async def ended() -> LocalReply:
            return await task

        go.set()
        return await self.do(ended())

    def at(self, number: int) -> LocalClient:
        """Return a caller of one of the two processes, whose calls leave the clock alone."""
        app = self.apps[number]

        async def get_app() -> Application:
            return app

        return LocalClient(ROUTES, get_app, key=DEMO)


@pytest.fixture
async def world() -> AsyncIterator[Stalling]:
    world = Stalling()
    await world.open()
    yield world
    await world.close()


@pytest.mark.parametrize("process", [0, 1], ids=["one process", "two processes"])
@pytest.mark.parametrize("at", ["get", "write"])
@pytest.mark.parametrize("change", [{"payload": "OLD"}, {"payload": "OLD" * 9_000}, {"delay": "PT3H"}], ids=["edit", "larger", "move"])
async def test_a_patch_of_the_same_members_is_409(world: Stalling, process: int, at: str, change: dict[str, Any]) -> None:
    await world.demo.create(id="x", payload="first")
    old, go = await world.stalled(world.at(0).patch(f"{URL}/x", change), at)
    new = await world.do(world.at(process).patch(f"{URL}/x", {"payload": "NEW"} if "payload" in change else {"delay": "PT2H"}))
    assert new.status == 200
    refused = await world.end(old, go)
    assert (refused.status, refused.code) == (409, "changed-meanwhile")
    shown = await world.demo.event("x")
    assert (shown["payload"], shown["due"]) == (new.json()["payload"], new.json()["due"])


async def test_a_patch_of_other_members_is_merged(world: Stalling) -> None:
    await world.demo.create(id="x", payload="first")
    old, go = await world.stalled(world.at(0).patch(f"{URL}/x", {"payload": "OLD"}), "write")
    assert (await world.do(world.at(1).patch(f"{URL}/x", {"expires": "PT1M"}))).status == 200
    assert (await world.end(old, go)).status == 200
    shown = await world.demo.event("x")
    assert (shown["payload"], shown["expires"]) == ("OLD", "PT1M")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({"channel": "orders"}, {"target": {"path": "/a"}}),
        ({"target": {"path": "/a"}}, {"channel": "orders"}),
        ({"target": {"path": "/a"}}, {"payload": "x" * 9_000}),
        ({"payload": "x" * 9_000}, {"channel": "orders"}),
        ({"channel": "orders", "delay": "PT2H"}, {"target": {"path": "/a"}}),
    ],
    ids=["channel", "target", "size", "payload", "move"],
)
async def test_a_patch_of_other_members_that_must_fit_is_409(world: Stalling, old: dict[str, Any], new: dict[str, Any]) -> None:
    made = await world.admin.put("/api/v1/tenants/demo/channels/orders", {"type": "queue", "queue": "orders"})
    assert made.status == 201
    await world.demo.create(id="x", payload="first")
    first, go = await world.stalled(world.at(0).patch(f"{URL}/x", old), "write")
    assert (await world.do(world.at(1).patch(f"{URL}/x", new))).status == 200
    shown = await world.demo.event("x")
    refused = await world.end(first, go)
    assert (refused.status, refused.code) == (409, "changed-meanwhile")
    assert await world.demo.event("x") == shown


async def test_a_patch_is_refused_although_another_member_was_changed_last(world: Stalling) -> None:
    await world.demo.create(id="x", payload="first")
    old, go = await world.stalled(world.at(0).patch(f"{URL}/x", {"payload": "OLD"}), "write")
    await world.do(world.at(1).patch(f"{URL}/x", {"payload": "NEW"}))
    await world.do(world.at(1).patch(f"{URL}/x", {"delay": "PT2H"}))
    assert (await world.end(old, go)).code == "changed-meanwhile"
    assert (await world.demo.event("x"))["payload"] == "NEW"


async def test_if_match_names_what_is_replaced_whichever_was_received_first(world: Stalling) -> None:
    await world.demo.create(id="x", payload="first")
    # A process whose bounds of storage's time are wrong noted this.
    await world.put_props("demo", "x", **noted(Receipt(world.now + 5, world.now + 6, "another", 1)))
    tag = (await world.demo.get(f"{URL}/x")).headers["etag"]
    plain, go = await world.stalled(world.at(0).patch(f"{URL}/x", {"payload": 1}), "get")
    assert (await world.end(plain, go)).code == "changed-meanwhile"
    named, go = await world.stalled(world.at(0).call("PATCH", f"{URL}/x", {"payload": 2}, {"if-match": tag}), "get")
    assert (await world.end(named, go)).status == 200


@pytest.mark.parametrize("verb", ["fire", "move"])
async def test_a_patch_does_not_undo_a_later_move_by_another_call(world: Stalling, verb: str) -> None:
    await world.demo.create(id="x", labels={"team": "a"})
    old, go = await world.stalled(world.at(0).patch(f"{URL}/x", {"delay": "PT5H"}), "write")
    if verb == "fire":
        assert (await world.do(world.at(1).post(f"{URL}/x/fire"))).status == 202
    else:
        app = world.apps[1]
        row = await app.scheduler.lookup.event("demo", "x")
        assert row is not None
        due = world.now + 60_000
        request = ChangeRequest("demo", by=app.scheduler.changes.received(MOVED), seen=row)
        await world.do(app.scheduler.changes.put(request, "x", due, {}))
    assert (await world.end(old, go)).code == "changed-meanwhile"
    assert (await world.demo.event("x"))["due"] < to_text(START + 3_600_000)


async def test_an_older_call_to_deliver_now_is_409(world: Stalling) -> None:
    await world.demo.create(id="x")
    old, go = await world.stalled(world.at(0).post(f"{URL}/x/fire"), "write")
    assert (await world.do(world.at(1).patch(f"{URL}/x", {"delay": "PT5H"}))).status == 200
    assert (await world.end(old, go)).code == "changed-meanwhile"
    await world.run(30)
    assert world.receiver.received == []


async def test_a_cancel_is_never_overtaken(world: Stalling) -> None:
    await world.demo.create(id="x")
    old, go = await world.stalled(world.at(0).delete(f"{URL}/x"), "write")
    assert (await world.do(world.at(1).patch(f"{URL}/x", {"payload": "NEW"}))).status == 200
    assert (await world.end(old, go)).status == 204
    assert (await world.demo.event("x"))["state"] == "cancelled"


def post(payload: Any, **more: Any) -> dict[str, Any]:
    return {"id": "doc", "collapse": "PT10M", "delay": "PT20S", "payload": payload} | more


@pytest.mark.parametrize("process", [0, 1], ids=["one process", "two processes"])
@pytest.mark.parametrize("at", ["get", "write"])
async def test_an_overtaken_post_that_collapses_is_answered_with_the_later_event(world: Stalling, process: int, at: str) -> None:
    await world.demo.post(URL, post("first"))
    if process == 0:
        # In one process the later one waits for its turn. Here it does not: the fault was met by a process without turns.
        world.apps[0].scheduler.collapsing._lines = NoLines()
    old, go = await world.stalled(world.at(0).post(URL, post("OLD")), at)
    assert (await world.do(world.at(process).post(URL, post("NEW")))).status == 200
    answer = await world.end(old, go)
    assert (answer.status, answer.json()["payload"]) == (200, "NEW")
    await world.run(40)
    assert [got.payload for got in world.receiver.received] == ["NEW"]


class NoLines(dict[Any, Any]):
    """No post waits for another one."""

    def setdefault(self, key: Any, default: Any = None) -> Any:
        return default

    def __delitem__(self, key: Any) -> None:
        pass


@pytest.mark.parametrize("end", ["delivered", "cancelled"])
async def test_an_overtaken_post_begins_no_new_event_after_the_later_one_has_ended(world: Stalling, end: str) -> None:
    await world.demo.post(URL, post("first"))
    old, go = await world.stalled(world.at(0).post(URL, post("OLD")), "write")
    assert (await world.do(world.at(1).post(URL, post("NEW", delay="PT6S")))).status == 200
    if end == "cancelled":
        assert (await world.do(world.at(1).delete(f"{URL}/doc"))).status == 204
    else:
        await world.run(8.5)
    answer = await world.end(old, go)
    assert (answer.status, answer.json()["payload"], answer.json()["state"]) == (200, "NEW", end)
    await world.run(60)
    assert [got.payload for got in world.receiver.received] == (["NEW"] if end == "delivered" else [])


async def test_a_post_at_about_the_time_of_a_cancel_is_to_be_repeated(world: Stalling) -> None:
    await world.demo.post(URL, post("first"))
    await world.do(world.at(0).delete(f"{URL}/doc"))
    refused = await world.do(world.at(1).post(URL, post("NEW")))
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (409, "changed-meanwhile", "1")
    await world.clock.advance(1)
    assert (await world.do(world.at(1).post(URL, post("NEW")))).status == 201
    await world.do(world.at(0).delete(f"{URL}/doc"))
    assert (await world.do(world.at(0).post(URL, post("NEW")))).status == 201, "one process knows the order"


async def test_an_older_call_of_a_monitor_puts_the_alarm_not_forward(world: Stalling) -> None:
    await world.demo.post(BEAT, {"within": "PT1M"})
    old, go = await world.stalled(world.at(0).post(BEAT, {"within": "PT10S"}), "write")
    new = await world.do(world.at(1).post(BEAT, {"within": "PT1M"}))
    answer = await world.end(old, go)
    assert (answer.status, answer.json()["due"]) == (200, new.json()["due"])
    assert (await world.demo.get(BEAT)).json()["due"] == new.json()["due"]


async def test_an_older_call_does_not_begin_an_ended_monitor_anew(world: Stalling) -> None:
    await world.demo.post(BEAT, {"within": "PT1M"})
    old, go = await world.stalled(world.at(0).post(BEAT, {"within": "PT10S"}), "write")
    assert (await world.do(world.at(1).delete(BEAT))).status == 204
    assert (await world.end(old, go)).code == "changed-meanwhile"
    assert (await world.demo.get(BEAT)).status == 404


@pytest.mark.parametrize("kind", ["patch", "fire", "post", "monitor"])
async def test_a_call_that_is_too_old_changes_nothing(world: Stalling, kind: str) -> None:
    await world.demo.create(id="x", payload="first")
    await world.demo.post(URL, post("first"))
    await world.demo.post(BEAT, {"within": "PT1M"})
    caller = world.at(0)
    calls = {
        "patch": lambda: caller.patch(f"{URL}/x", {"payload": "OLD"}),
        "fire": lambda: caller.post(f"{URL}/x/fire"),
        "post": lambda: caller.post(URL, post("OLD")),
        "monitor": lambda: caller.post(BEAT, {"within": "PT2M"}),
    }
    old, go = await world.stalled(calls[kind](), "get")
    before = {row.props["id"]: row.etag for row in world.events()}
    await world.clock.advance(10)
    answer = await world.end(old, go)
    assert (answer.status, answer.code, answer.json()["outcome"]) == (503, "call-expired", "unchanged")
    assert {row.props["id"]: row.etag for row in world.events()} == before


async def test_a_patch_with_if_match_may_take_its_time(world: Stalling) -> None:
    tag = (await world.demo.post(URL, {"id": "x", "delay": "PT1H", "payload": 1})).headers["etag"]
    old, go = await world.stalled(world.at(0).call("PATCH", f"{URL}/x", {"payload": 2}, {"if-match": tag}), "get")
    await world.clock.advance(15)
    assert (await world.end(old, go)).status == 200


async def test_all_events_of_a_fan_out_are_those_of_the_later_call(world: Stalling) -> None:
    for name in ("a", "b"):
        await world.admin.put(f"/api/v1/tenants/demo/channels/{name}", {"type": "http", "url": "http://localhost:7072/"})
    await world.demo.post(URL, {"id": "x", "delay": "PT1H", "payload": 1, "channels": ["a", "b"]})
    old, go = await world.stalled(world.at(0).patch(f"{URL}/x", {"payload": "OLD"}), "write")
    assert (await world.do(world.at(1).patch(f"{URL}/x", {"payload": "NEW"}))).json()["changed"] >= 1
    assert (await world.end(old, go)).status == 200
    shown = await world.demo.event("x")
    assert {event["payload"] for event in shown["events"]} == {"NEW"}


async def test_receipts_are_not_shown(world: Stalling) -> None:
    await world.demo.post(URL, post(1))
    await world.do(world.at(0).patch(f"{URL}/doc", {"payload": 2}))
    [row] = world.events()
    assert RECEIVED in row.props and RECEIVED not in await world.demo.event("doc")


def test_a_receipt_from_a_clock_that_was_wrong_says_nothing() -> None:
    mine = Received(Arrivals(World().clock, (), "a").next())
    known = Receipt(100, 110, "b", 1)
    assert mine.arrival.receipt().high == EVER and not mine.overtaken_in(noted(known)), "nothing is known of this one"
    receipt = Receipt(50, 60, "a", 1)
    assert is_overtaken(receipt, noted(known), 105, MEMBERS)
    assert not is_overtaken(receipt, noted(known), 99, MEMBERS), "it is not 100 yet"


def test_a_row_keeps_a_receipt_for_each_member_and_each_request_once() -> None:
    first, second, third = (Receipt(at, at + 1, "a", at) for at in (10, 20, 30))
    row = with_receipts(noted(first), {})
    row = with_receipts(noted(second, frozenset({"payload", "due"})), row)
    row = with_receipts(noted(third, frozenset({"payload"})), row)
    assert [(each.receipt.number, sorted(each.members)) for each in receipts_of(row)] == [
        (10, sorted(MEMBERS - {"payload", "due"})),
        (20, ["due"]),
        (30, ["payload"]),
    ]
    assert [each.members for each in receipts_of(with_receipts(noted(third), row))] == [MEMBERS]
    for number, member in enumerate(sorted(MEMBERS)):
        row = with_receipts(noted(Receipt(EVER, EVER, "f" * 12, 10**19 + number), frozenset({member})), row)
    assert len(str(row[RECEIVED])) < 900


async def test_a_cancel_of_several_events_at_once_keeps_the_receipts_that_single_cancels_keep(world: World) -> None:
    """Its bounds begin before those of a change that it replaces: nobody may take it for the earlier one."""
    former, new = Receipt(100, 200, "p", 1), Receipt(50, 150, "q", 1)
    ids = [(await world.demo.create())["id"] for _ in range(3)]
    for each in ids:
        await world.put_props("demo", each, **noted(former, frozenset({"due"})))
    one, *others = world.events()
    run = world.app.scheduler.runner.run
    assert await run(changing.cancel_together(others, world.now, "n", noted(new)))
    assert isinstance(await run(changing.cancel(Address(one.pk, one.rk), world.now, "n", receipt=noted(new))), changing.Done)
    kept = [receipts_of(row.props) for row in world.events()]
    assert [(each.receipt.low, each.members) for [each] in kept] == [(100, MEMBERS)] * 3
