"""The tasks of one owner's deliveries to one channel: as many as the channel can use, and none for an event that is held."""

from __future__ import annotations

import asyncio

from shared.core.clock import Millis, SettableClock
from shared.delivery.flow.lane import Lane
from shared.scheduler.firing.owner_tasks import SPARE, LaneWorkers
from shared.storage.ports import Row

MOST = 4


class Deliveries:
    """Deliveries that end when the test says so."""

    def __init__(self) -> None:
        self.lane = Lane("demo", "default", MOST)
        self.begun: list[str] = []
        self.running: dict[str, asyncio.Task[None] | Lane] = {}
        self.waiting: set[str] = set()
        self.ends: dict[str, asyncio.Event] = {}
        self.clock = SettableClock()
        self.held: dict[str, Millis | None] = {}
        self.workers = LaneWorkers(self.lane, self, self.clock, self._deliver, self.running, self.waiting)

    def begin(self, count: int) -> None:
        for number in range(count):
            self.lane.enter(self)
            self.running[f"e{number}"] = self.lane
            self.workers.begin(Row("pk", f"e{number}", {}, "", 0, 0))

    async def _deliver(self, row: Row, lane: Lane, held: Millis | None) -> None:
        self.begun.append(row.rk)
        self.held[row.rk] = held
        end = self.ends[row.rk] = asyncio.Event()
        try:
            await end.wait()
        finally:
            del self.running[row.rk]

    async def end(self, row_key: str) -> None:
        self.ends[row_key].set()
        await turns()


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_task_that_is_free_takes_the_next_event_in_order() -> None:
    made = Deliveries()
    made.begin(20)
    await turns()
    first = [f"e{number}" for number in range(MOST + SPARE)]
    assert made.begun == first and made.lane.held == len(made.waiting) == 20 - len(first)
    tasks = {task for task in made.running.values() if isinstance(task, asyncio.Task)}
    await made.end("e3")
    assert made.begun == [*first, "e12"] and made.running["e12"] in tasks and "e12" not in made.waiting
    for number in [*range(3), *range(4, 20)]:
        await made.end(f"e{number}")
    assert made.begun == [f"e{number}" for number in range(20)]
    assert (made.lane.claimed, made.lane.held, made.lane.owners, made.running) == (0, 0, {}, {})


async def test_a_delivery_knows_since_when_its_event_was_held() -> None:
    made = Deliveries()
    began = made.clock.now()
    made.begin(MOST + SPARE + 2)
    await made.clock.advance(3.0)
    await made.end("e0")
    made.running["e1"].cancel()  # type: ignore[union-attr]
    await turns()
    assert (made.held["e0"], made.held["e12"], made.held["e13"]) == (None, began, began)
    for row_key in list(made.ends):
        await made.end(row_key)


async def test_a_task_that_is_cancelled_leaves_its_place_to_the_next_event() -> None:
    made = Deliveries()
    made.begin(MOST + SPARE + 2)
    made.workers.drop("e12")
    made.lane.leave(made)
    task = made.running["e5"]
    assert isinstance(task, asyncio.Task)
    task.cancel()  # before it has begun
    made.running.pop("e5")
    await turns()
    assert "e5" not in made.begun and made.begun[-1] == "e13" and made.lane.held == 0
    for row_key in list(made.ends):
        await made.end(row_key)
    assert made.lane.claimed == 0
