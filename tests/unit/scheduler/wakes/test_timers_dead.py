"""The service goes on when its timer has stopped, without any call: planned wakes look, and a message asks for the sweep."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import Any

import pytest

from shared.core.clock import Millis, to_millis, to_text
from shared.core.errors import Unavailable
from shared.scheduler.timings import DAY
from shared.scheduler.wakes.protocol import PK_PLAN, PLAN_ROW, parse_wake, plan_of, wake_text
from shared.scheduler.wakes.rules import APART, GAP, LOOK_BEFORE, LOOK_EVERY, Plan
from shared.scheduler.wakes.service import SweepTimes, times_of
from shared.storage.names import QUEUE_INGEST, QUEUE_RETRIES, QUEUE_SHARDS, QUEUE_SWEEPS, SWEEPS
from shared.storage.ports import Applied, Message, Op, Row, Upsert, WriteRefused
from tests.integration.api.fleets.nodes import WEB, Node, T
from tests.unit.scheduler.harness import World

MINUTE = 60
QUEUES = (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST, QUEUE_SWEEPS)


class Stopped(World):
    """A world whose host serves all queues, and whose timer sweeps each minute until it stops."""

    timer_until = 0.0
    """Monotonic time at which the timer stops."""

    async def run(self, seconds: float, step: float = 0.25) -> None:
        end = self.clock.monotonic() + seconds
        while True:
            if self.clock.monotonic() < self.timer_until and self.clock.monotonic() - self._scanned >= MINUTE:
                self._scanned = self.clock.monotonic()
                self._start(self.app.timers.sweep())
            for queue in QUEUES:
                for message in await self.queues.receive(queue):
                    self._start(self._serve(queue, message))
            left = end - self.clock.monotonic()
            if left <= 1e-9:
                break
            next_one = min(
                (at for q in (QUEUE_SHARDS, QUEUE_RETRIES, QUEUE_INGEST, QUEUE_SWEEPS) if (at := self.queues.next_visible(q))), default=0
            )
            idle = not self._busy() and next_one > self.now + 1_000 and self.clock.next_wake() is None
            await self.clock.advance(min(max(step, (next_one - self.now) / 1000 - 1) if idle else step, left), settle=15)
        if self.problems:
            raise self.problems[0]

    def _busy(self) -> bool:
        return any(not task.done() for task in self._tasks) or self.clock.monotonic() < self.timer_until

    async def _serve(self, queue: str, message: Message) -> None:
        if queue == QUEUE_SWEEPS:
            await self.app.timers.run_soon(message.text)
        elif queue == QUEUE_SHARDS:
            await self.app.scheduler.serve_message(message.text)
        else:
            await super()._serve(queue, message)
            return
        await self.queues.delete(queue, message)

    def wakes(self) -> list[Millis]:
        """Times of the wakes in the queue."""
        sent = self.queues._queues[QUEUE_SHARDS].messages.values()
        return sorted(at for each in sent if (at := parse_wake(each.text)) is not None)


@pytest.fixture
async def world() -> AsyncIterator[Stopped]:
    world = Stopped(wakes="auto")
    await world.open()
    yield world
    await world.close()


async def lateness(world: Stopped, event_id: str) -> int:
    event = await world.demo.event(event_id)
    assert event["state"] == "delivered", event
    return int(event["late_ms"])


@pytest.mark.parametrize("timer_until", [0.0, 150.0])
async def test_events_of_the_next_hour_are_punctual_without_timer_and_calls(world: Stopped, timer_until: float) -> None:
    world.timer_until = timer_until
    ids = [(await world.demo.create(delay=delay))["id"] for delay in ("PT4M", "PT6M", "PT1H")]
    await world.run(MINUTE * 61)
    assert [await lateness(world, each) for each in ids] == [0, 0, 0]


async def test_a_silent_server_is_fenced_within_90_s_although_the_timer_stopped_before_its_lease_ended(world: Stopped) -> None:
    world.timer_until = 61.0
    assert (await world.demo.put(WEB, {"partitions": 2, "limits": {"max_per_server": 2}})).status == 201
    node = Node(world.demo, "a")
    for _ in range(16):
        await node.beats()
        await node.claim(0, 1)
        await world.run(5)
    over = world.now + round(1000 * T)
    await world.run(T + 90)
    leases = await world.demo.all(f"{WEB}/leases")
    assert {lease["owner"] for lease in leases} == {None}, (leases, over)


async def test_schedules_fire_without_timer_and_calls(world: Stopped) -> None:
    assert (await world.demo.put("/api/v1/schedules/minutely", {"every": "PT1M", "payload": 1})).status == 201
    await world.run(MINUTE * 20)
    late = [int(row.props.get("late", 0)) for row in world.events() if row.props["state"] == "delivered"]
    assert len(late) >= 19 and max(late) <= 100


async def test_an_idle_installation_has_two_wakes_queued(world: Stopped) -> None:
    world.timer_until = 1e9
    await world.run(MINUTE * 30)
    assert len(world.wakes()) == 2


async def test_no_pause_before_a_wake_up_is_longer_than_the_gap(world: Stopped) -> None:
    made = await world.demo.create(delay="PT10M")
    due = to_millis(datetime.fromisoformat(made["due"]))
    seen: set[Millis] = set()
    for _ in range(610):
        seen.update(world.wakes())
        await world.run(1)
    assert await lateness(world, made["id"]) == 0
    before = [at for at in sorted(seen) if due - LOOK_BEFORE - GAP - 5_000 <= at <= due - 3_000]
    assert before[0] <= due - LOOK_BEFORE - 3_000
    assert max(later - earlier for earlier, later in zip(before, [*before[1:], due - 3_400], strict=True)) <= GAP


async def test_a_purged_queue_is_filled_again_by_the_timer(world: Stopped) -> None:
    world.timer_until = 1e9
    made = await world.demo.create(delay="PT20M")
    await world.run(MINUTE)
    world.queues._queues[QUEUE_SHARDS].messages.clear()
    await world.run(MINUTE * 20)
    assert await lateness(world, made["id"]) == 0


async def test_wakes_go_on_after_an_outage_of_the_tables_that_lasts_longer_than_those_in_the_queue(
    world: Stopped, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await world.demo.create(delay="PT1H")

    async def refuse(*given: Any, **named: Any) -> Any:
        raise Unavailable("away")

    with monkeypatch.context() as patched:
        for verb in ("get", "query", "write"):
            patched.setattr(world.tables, verb, refuse)
        await world.run(MINUTE * 30)
        assert 1 <= len(world.wakes()) <= 4
    await world.run(MINUTE * 31)
    assert await lateness(world, made["id"]) == 0


async def test_wakes_do_not_multiply_while_the_plan_cannot_be_stored(world: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.demo.create(delay="PT30M")
    await world.demo.create(delay="PT4M")
    await world.run(MINUTE * 3)
    write = world.tables.write

    async def refuse_plan(table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        if pk == PK_PLAN:
            raise Unavailable("away")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", refuse_plan)
    for _ in range(10):
        await world.run(MINUTE)
        assert len(world.wakes()) <= 4
    await world.run(MINUTE * 18)
    assert await lateness(world, made["id"]) == 0


@pytest.mark.parametrize("delay", ["PT40S", "PT85S"])
async def test_an_event_is_punctual_although_the_plan_cannot_be_read_when_it_is_stored(
    world: Stopped, monkeypatch: pytest.MonkeyPatch, delay: str
) -> None:
    get = world.tables.get

    async def refuse_plan(table: str, pk: str, rk: str) -> Row | None:
        if pk == PK_PLAN:
            raise Unavailable("away")
        return await get(table, pk, rk)

    with monkeypatch.context() as patched:
        patched.setattr(world.tables, "get", refuse_plan)
        ids = [(await world.demo.create(delay=delay))["id"] for _ in range(20)]
        assert len(world.wakes()) == 2
    await world.run(100)
    assert [await lateness(world, each) for each in ids] == [0] * 20


async def test_the_first_event_is_a_year_ahead_and_wakes_are_queued(world: Stopped) -> None:
    await world.demo.create(due=to_text(world.now + 300 * DAY))
    assert len(world.wakes()) == 2 and world.wakes()[1] <= world.now + LOOK_EVERY + APART


@pytest.mark.parametrize("value", [1e300, -1e300, "x", 10**18, -(10**18)])
async def test_a_plan_that_is_nonsense_delays_nothing(world: Stopped, value: float | str) -> None:
    await world.demo.create(delay="PT10M")
    broken = Upsert(
        PLAN_ROW, {"looked": value, "woke": value, "wakes": str(value), "seen": "c", "close_until": value, "early_until": value}
    )
    await world.tables.write(SWEEPS, PK_PLAN, (broken,))
    ids = [(await world.demo.create(delay=delay))["id"] for delay in ("PT50S", "PT3M", "PT10M")]
    await world.run(MINUTE * 11)
    assert [await lateness(world, each) for each in ids] == [0, 0, 0]


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_a_number_without_end_counts_as_a_row_that_cannot_be_read(value: float) -> None:
    row = Row("", "", {"looked": value, "woke": 0, "wakes": "", "seen": "", "close_until": 0, "early_until": 0, "began": value}, "", 0, 0)
    assert plan_of(row) == Plan() and times_of(row) == SweepTimes()


async def test_a_wake_that_neither_tables_nor_queue_answer_stays_in_the_queue(world: Stopped, monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*given: Any, **named: Any) -> Any:
        raise Unavailable("away")

    monkeypatch.setattr(world.tables, "query", refuse)
    monkeypatch.setattr(world.queues, "send", refuse)
    with pytest.raises(Unavailable):
        await world.do(world.app.scheduler.serve_message(wake_text(world.now)))


async def test_many_posts_of_the_same_minute_ask_for_few_wakes(world: Stopped) -> None:
    for _ in range(200):
        await world.demo.create(delay="PT100S")
        await world.run(0.1, step=0.1)
    assert len(world.wakes()) <= 2 * 180_000 / GAP + 2
    assert world.app.scheduler.counters["wakes_sent"] + 2 * 3 <= 40


async def test_no_wake_is_sent_where_the_setting_says_off() -> None:
    world = Stopped(wakes="off")
    await world.open()
    world.timer_until = 1e9
    made = await world.demo.create(delay="PT10M")
    await world.run(MINUTE * 11)
    assert await lateness(world, made["id"]) == 0 and world.app.scheduler.counters["wakes"] == 0
    await world.close()
