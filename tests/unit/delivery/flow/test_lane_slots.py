"""Slots: their limit, and the order in which waiting deliveries get them."""

from __future__ import annotations

import asyncio
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from shared.delivery.flow.lane import BACKLOG_TURN, Slots


class Queue:
    """Holders of `limit` slots, let go one by one."""

    def __init__(self, limit: int) -> None:
        self.slots = Slots(limit)
        self.order: list[str] = []
        self.tasks: dict[str, asyncio.Task[None]] = {}
        self.ends: dict[str, asyncio.Event] = {}

    async def join(self, name: str) -> None:
        """`name` begins with `b` when it belongs to the backlog."""
        self.ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.ensure_future(self._hold(name))
        await turn()

    async def _hold(self, name: str) -> None:
        await self.slots.acquire(backlog=name.startswith("b"))
        try:
            self.order.append(name)
            await self.ends[name].wait()
        finally:
            self.slots.release()

    async def leave(self, name: str) -> None:
        self.ends[name].set()
        await turn()

    async def drain(self) -> None:
        """Everybody lets go as soon as they have a slot."""
        for name in self.order:
            await self.leave(name)
        assert all(task.done() for task in self.tasks.values())


async def turn() -> None:
    for _ in range(6):
        await asyncio.sleep(0)


async def test_no_more_hold_slots_than_there_are() -> None:
    queue = Queue(2)
    for name in ("p1", "b1", "p2"):
        await queue.join(name)
    assert queue.order == ["p1", "b1"]
    await queue.drain()
    assert queue.order == ["p1", "b1", "p2"]


async def test_punctual_events_go_first_and_one_turn_in_eight_is_the_backlogs() -> None:
    queue = Queue(1)
    await queue.join("p")
    for number in range(20):
        await queue.join(f"b{number}")
    for number in range(20):
        await queue.join(f"p{number}")
    await queue.drain()
    kinds = "".join(name[0] for name in islice(queue.order, 1, None))
    assert kinds == ("p" * (BACKLOG_TURN - 1) + "b") * 2 + "p" * 6 + "b" * 18
    for kind in "pb":
        mine = [name for name in queue.order if name[0] == kind]
        assert mine == sorted(mine, key=lambda name: int(name[1:] or -1)), "first come, first served"


async def test_backlog_alone_has_every_slot() -> None:
    queue = Queue(1)
    for number in range(5):
        await queue.join(f"b{number}")
    await queue.drain()
    assert queue.order == [f"b{number}" for number in range(5)]


@given(st.integers(1, 3), st.lists(st.sampled_from(["p", "b", "end", "cancel", "end and cancel"]), max_size=60), st.randoms())
async def test_no_slot_is_lost_or_given_twice_after_any_cancellation(limit: int, acts: list[str], random: object) -> None:
    queue = Queue(limit)
    pick = random.choice  # type: ignore[attr-defined]
    for number, act in enumerate(acts):
        holding = [name for name in queue.order if not queue.tasks[name].done()]
        waiting = [name for name, task in queue.tasks.items() if name not in queue.order and not task.done()]
        assert len(holding) <= limit and (len(holding) == limit or not waiting)
        if act in ("p", "b"):
            await queue.join(f"{act}{number}")
        elif act == "end" and holding:
            await queue.leave(pick(holding))
        elif act == "cancel" and waiting:
            queue.tasks[pick(waiting)].cancel()
            await turn()
        elif act == "end and cancel" and holding and waiting:
            queue.ends[pick(holding)].set()
            for _ in range(pick(range(4))):
                await asyncio.sleep(0)
            queue.tasks[pick(waiting)].cancel()
            await turn()
    await queue.drain()
    for _ in range(limit):
        assert queue.slots.free
        queue.slots.free -= 1
    assert not queue.slots.free
