"""Notices: a tenant that subscribes is told at least once, at most once a minute of each kind, and never about its notices themselves."""

from __future__ import annotations

import ast
import uuid
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from typing import Any

import orjson
import pytest

from shared.core.clock import Millis, SettableClock
from shared.core.errors import Unavailable
from shared.delivery.channels.ports import Verdict
from shared.delivery.notices import KINDS
from shared.engine.effects import LOST, Effect, Steps, Wait, Write
from shared.engine.thread_runner import ThreadRunner
from shared.scheduler.outcomes.notices import PERIOD, PK_NOTICES, FixedNotice, Happening, close, fix, record
from shared.storage.blocking import MemoryBlockingTables, run_through
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, SWEEPS
from shared.tenants.model import Limits
from tests.paths import ROOT

from ..flow.flowing import batch, channel
from ..harness import World

FAILS = Verdict("retry", 503, "answered 503")
GONE = Verdict("final", 404, "answered 404")


async def subscribe(world: World, *kinds: str, **more: Any) -> None:
    await channel(world, "ops")
    settings = {"notices": {"channel": "ops", "kinds": list(kinds or KINDS)}, **more}
    assert (await world.admin.put("/api/v1/tenants/demo", settings)).status == 200
    await world.clock.advance(6)


def told(world: World, kind: str = "") -> list[dict[str, Any]]:
    """The notices that arrived, in order."""
    found = [orjson.loads(got.delivery.body) for got in world.receiver.received if got.target.name == "ops"]
    return [notice for notice in found if kind in ("", notice["type"])]


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


async def test_dead_events_are_told_together_at_most_once_a_minute(world: World) -> None:
    await subscribe(world, "event.dead")
    world.receiver.otherwise = lambda target, delivery: Verdict("delivered", 200) if target.name == "ops" else GONE
    await world.demo.create(delay="PT1S", id="first")
    await world.run(5)
    [notice] = told(world)
    assert notice["count"] == 1 and notice["first"] == notice["last"]
    assert notice["subjects"] == [{"subject": "default", "count": 1, "last": notice["last"], "detail": "first: answered 404"}]
    for _ in range(5):
        await world.demo.create(delay="PT1S")
        await world.run(3)
    assert len(told(world)) == 1, "the others wait"
    await world.run(60)
    assert [each["count"] for each in told(world)] == [1, 5]
    await world.run(200)
    assert len(told(world)) == 2
    shown = (await world.demo.get("/api/v1/events?state=delivered")).json()["items"]
    assert {each["notice"] for each in shown} == {"event.dead"}


async def test_a_notice_that_dies_is_not_told(world: World) -> None:
    await subscribe(world, "event.dead")
    world.receiver.otherwise = GONE
    await world.demo.create(delay="PT1S", expires="PT1H")
    await world.run(400)
    assert [got.target.name for got in world.receiver.received] == ["default", "ops"]


async def test_the_breaker_is_told_when_it_opens_and_closes_but_not_that_of_the_notices(world: World) -> None:
    await subscribe(world, "breaker.opened", "breaker.closed")
    up = False
    world.receiver.otherwise = lambda target, delivery: Verdict("delivered", 200) if up or target.name == "ops" else FAILS
    await batch(world, 30, due="2027-01-15T08:00:10Z")
    await world.run(60)
    [opened] = told(world)
    assert opened["type"] == "breaker.opened" and opened["subjects"][0]["subject"] == "default"
    assert "answered 503" in opened["subjects"][0]["detail"]
    up = True
    await world.run(300)
    assert [each["type"] for each in told(world)] == ["breaker.opened", "breaker.closed"]
    up = False
    world.receiver.otherwise = FAILS
    body = [{"delay": "PT1S", "payload": 1, "channel": "ops"}] * 30
    assert (await world.demo.post("/api/v1/events/batch", body)).json()["accepted"] == 30
    await world.run(60)
    assert len([row for row in world.events() if row.props.get("notice")]) == 2


async def test_a_channel_that_410_pauses_is_told(world: World) -> None:
    await subscribe(world, "channel.paused")
    made = await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 410, "answered 410", gone=True))
    await world.run(10)
    [notice] = told(world)
    assert notice["subjects"][0]["subject"] == "default" and "410" in notice["subjects"][0]["detail"]


DUE: Millis = 1_800_000_000_000 + 59 * 60_000
"""2027-01-15T08:59:00Z."""


async def test_missed_occurrences_are_told_and_the_end_of_a_schedule_once_its_last_one_is_due(world: World) -> None:
    await subscribe(world, "schedule.missed", "schedule.ended")
    schedule = {"every": "PT1M", "payload": 1, "end": "2027-01-15T09:00:00Z", "catch_up": {"policy": "none"}}
    assert (await world.demo.put("/api/v1/schedules/poll", schedule)).status == 201
    await world.run(30)
    await world.clock.advance(1_800)
    await world.run(40)
    [missed] = told(world, "schedule.missed")
    assert missed["subjects"][0]["subject"] == "poll" and 20 <= missed["count"] <= 30
    # The last occurrence is stored five minutes before 08:59.
    await world.run((DUE - world.now) / 1000 - 1, step=5)
    assert not told(world, "schedule.ended")
    await world.run(200, step=5)
    [ended] = told(world, "schedule.ended")
    assert "08:59:00" <= ended["first"][11:19] < "09:01:10"
    assert (ended["count"], ended["subjects"][0]["subject"]) == (1, "poll")
    assert len(told(world, "schedule.missed")) == 1


async def test_a_limit_that_refuses_events_is_told(world: World) -> None:
    await subscribe(world, "limit.reached", limits={"open_events": 1})
    await world.demo.create(delay="PT1H")
    for _ in range(3):
        assert (await world.demo.post("/api/v1/events", {"delay": "PT1H", "payload": 1})).status == 429
    await world.run(20)
    [notice] = told(world)
    assert [each["subject"] for each in notice["subjects"]] == ["open_events"]


NO_REFUSALS = {"deliveries_per_second", "concurrency"}
"""Limits that delay deliveries and refuse no call."""


async def test_every_limit_of_a_tenant_is_told_once_an_hour(world: World) -> None:
    limits = {"open_events": 1, "payload_bytes": 9, "schedules": 0, "fleets": 1, "partitions": 3, "servers": 0, "agents": 0, "locks": 0}
    await subscribe(world, "limit.reached", limits=limits)
    assert (await world.demo.put("/api/v1/fleets/one", {"partitions": 2})).status == 201
    beat = {"incarnation": str(uuid.UUID(int=1)), "seq": 1}
    report = {"node": "n1", "seq": 1, "vm": "n1", "scope": "set", "disabled": False, "events": []}
    refusals: list[tuple[str, str, str, Any, int]] = [
        ("payload_bytes", "POST", "events", {"delay": "PT1H", "payload": "x" * 50}, 413),
        ("open_events", "POST", "events", {"delay": "PT1H", "payload": 1}, 429),
        ("schedules", "PUT", "schedules/poll", {"every": "PT1H", "payload": 1}, 429),
        ("fleets", "PUT", "fleets/two", {"partitions": 1}, 409),
        ("partitions", "POST", "fleets/one/leases/resize", {"partitions": 4}, 409),
        ("servers", "POST", "fleets/one/nodes/s1/beat", beat, 409),
        ("agents", "POST", "fleets/one/maintenance/reports", report, 409),
        ("locks", "PUT", "locks/nightly", {"holder": "a", "nonce": "n1"}, 429),
    ]
    assert set(Limits.model_fields) - NO_REFUSALS - {"events_per_second"} == {limit for limit, *_ in refusals}
    await world.demo.create(delay="P7D")
    for hour in range(2):
        for _ in range(2):
            for _, method, path, body, status in refusals:
                assert (await world.demo.call(method, f"/api/v1/{path}", body)).status == status, path
            await world.run(70)
        found = [subject["subject"] for notice in told(world) for subject in notice["subjects"]]
        assert sorted(found) == sorted(limit for limit, *_ in refusals for _ in range(hour + 1))
        await world.clock.advance(3_600)


async def test_a_limit_that_refuses_a_line_of_a_batch_is_told_too_and_by_one_process(world: World) -> None:
    await subscribe(world, "limit.reached", limits={"payload_bytes": 9, "events_per_second": 1})
    other = World(clock=world.clock)
    other.storage = world.storage
    await other.open()
    for each in (world, other):
        lines = [{"delay": "PT1H", "payload": value} for value in ("x" * 50, 1, 2, 3)]
        answer = await each.demo.post("/api/v1/events/batch", lines)
        assert answer.status in (200, 429)
        await world.run(70)
    assert sorted(subject["subject"] for notice in told(world) for subject in notice["subjects"]) == ["events_per_second", "payload_bytes"]
    await other.close()


def test_every_refusal_for_a_limit_names_it() -> None:
    named = 0
    for path in (ROOT / "shared").rglob("*.py"):
        text = path.read_text()
        if "too_many(" not in text and "too-many-" not in text:
            continue
        for call in ast.walk(ast.parse(text)):
            match call:
                case ast.Call(ast.Name("too_many"), args):
                    pass
                case ast.Call(ast.Name("conflict"), [ast.Constant(str(code)), *_] as args) if code.startswith("too-many"):
                    pass
                case _:
                    continue
            assert len(args) == 3, f"{path}:{call.lineno} refuses for a limit and names none"
            named += 1
    assert named > 8


async def test_the_use_of_an_expired_key_is_told_once_an_hour(world: World) -> None:
    await subscribe(world, "key.expired")
    key = await world.key("demo", ["events"], expires="2027-01-15T08:01:00Z")
    assert (await key.get("/api/v1/stats")).status == 200
    await world.clock.advance(90)
    for _ in range(3):
        assert (await key.get("/api/v1/stats")).status == 401
    await world.run(100)
    [notice] = told(world)
    assert str(key.key).startswith(notice["subjects"][0]["subject"]) and notice["count"] == 1
    assert str(key.key) not in str(notice)


async def test_who_does_not_subscribe_costs_nothing(world: World) -> None:
    await channel(world, "ops")
    world.receiver.otherwise = GONE
    await world.demo.create(delay="PT1S")
    await world.run(30)
    assert all("owed" not in row.props for row in world.events())
    assert [row for row in world.rows(SWEEPS) if row.pk == PK_NOTICES] == []


async def test_a_process_that_ends_before_it_tells_is_followed_by_the_sweep(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await subscribe(world, "channel.paused")

    async def away(*_: Any, **__: Any) -> Any:
        raise Unavailable("storage is away")

    with monkeypatch.context() as patch:
        patch.setattr(world.app.scheduler.writer, "store", away)
        await world.do(world.app.scheduler.notices("demo", "channel.paused", "default"))
        await world.run(5)
    await world.close()
    await world.open()
    assert told(world) == []
    await world.run(120)
    assert [each["count"] for each in told(world)] == [1]


async def test_who_ends_the_subscription_gets_no_more(world: World) -> None:
    await subscribe(world, "channel.paused")
    for _ in range(2):
        await world.do(world.app.scheduler.notices("demo", "channel.paused", "default"))
        await world.run(5)
    assert (await world.admin.put("/api/v1/tenants/demo", {})).status == 200
    await world.run(120)
    assert len(told(world)) == 1
    assert [row for row in world.rows(SWEEPS) if row.pk == PK_NOTICES] == []


@pytest.mark.parametrize(
    ("notices", "pointer"),
    [
        ({"kinds": ["event.dead"]}, "/notices/channel"),
        ({"channel": "ops", "kinds": []}, "/notices/kinds"),
        ({"channel": "ops", "kinds": ["event.born"]}, "/notices/kinds/0"),
        ({"channel": "ops", "kinds": ["event.dead", "event.dead"]}, "/notices/kinds"),
        ({"channel": "a b", "kinds": ["event.dead"]}, "/notices/channel"),
    ],
)
async def test_bad_settings_get_one_precise_error(world: World, notices: dict[str, Any], pointer: str) -> None:
    refusal = await world.admin.put("/api/v1/tenants/demo", {"notices": notices})
    assert (refusal.status, [each["pointer"] for each in refusal.json()["errors"]]) == (422, [pointer])
    assert "notices" not in (await world.admin.get("/api/v1/tenants/demo")).json()


async def test_a_deleted_tenant_leaves_nothing(world: World) -> None:
    await subscribe(world, "channel.paused")
    await world.do(world.app.scheduler.notices("demo", "channel.paused", "default"))
    await world.run(5)
    assert [row.rk for row in world.rows(SWEEPS) if row.pk == PK_NOTICES] == ["demo:channel.paused"]
    assert (await world.admin.delete("/api/v1/tenants/demo")).status == 204
    assert [row for row in world.rows(SWEEPS) if row.pk == PK_NOTICES] == []


async def test_settings_are_shown(world: World) -> None:
    await subscribe(world, "event.dead", "breaker.opened")
    shown = (await world.admin.get("/api/v1/tenants/demo")).json()
    assert shown["notices"] == {"channel": "ops", "kinds": ["breaker.opened", "event.dead"]}


# -- the rows, with a fault at every write


class _FaultyRunner(ThreadRunner):
    """Runs steps on the in-memory store. `fault` is called with each write: its answer is the write's, or None for the store's."""

    def __init__(self, tables: MemoryTables, fault: Callable[[Write], Any]) -> None:
        super().__init__(MemoryBlockingTables(tables), lambda: 0.0, 1.0)
        self._fault = fault

    def perform(self, effect: Effect | Wait) -> Any:
        return (isinstance(effect, Write) and self._fault(effect)) or super().perform(effect)


class _Crash(Exception):
    """The process ends."""


class Story:
    """Processes that note and tell, one after the other; the write with number `at` goes wrong."""

    def __init__(self, at: int, fault: str) -> None:
        self.tables, self.at, self.fault = MemoryTables(SettableClock()), at, fault
        run_through(self.tables.ensure(ALL_TABLES))
        self.writes = 0
        self.events: dict[str, bytes] = {}
        self.now = 1_000_000

    def run(self, steps: Steps[Any]) -> Any:
        return _FaultyRunner(self.tables, self._write).run(steps)

    def _write(self, write: Write) -> Any:
        self.writes += 1
        if self.writes - 1 != self.at:
            return None
        if self.fault != "crash before":
            run_through(self.tables.write(*write))
        if self.fault != "lost":
            raise _Crash
        return LOST

    def note(self, subject: str) -> bool:
        try:
            self.run(record("t", "event.dead", [Happening(subject, "", self.now)]))
        except _Crash:
            return False
        return True

    def tell(self) -> None:
        try:
            fixed = self.run(fix("t", "event.dead", self.now))
            if isinstance(fixed, FixedNotice):
                before = self.events.setdefault(fixed.source("event.dead"), fixed.content)
                assert before == fixed.content, "one id, one content"
                self.writes += 1
                if self.writes - 1 == self.at:
                    raise _Crash
                self.run(close("t", "event.dead", fixed.seq))
        except _Crash:
            pass
        self.now += PERIOD // 2


@pytest.mark.parametrize("fault", ["crash before", "crash after", "lost"])
def test_whatever_is_noted_is_told_wherever_a_process_ends(fault: str) -> None:
    for at in range(14):
        story = Story(at, fault)
        noted = [subject for subject in "abcd" if (story.note(subject), story.tell())[0]]
        for _ in range(6):
            story.tell()
        contents = [orjson.loads(content) for content in story.events.values()]
        assert set(noted) <= {each["subject"] for content in contents for each in content["subjects"]}, (fault, at)
        times = sorted(int(source.rpartition(":")[2]) for source in story.events)
        assert all(later - earlier >= PERIOD for earlier, later in pairwise(times))
        assert story.run(fix("t", "event.dead", story.now + PERIOD)) is None, "nothing is left"
