"""The cost of an event in calls of the service's own functions: a figure that no other work on the machine changes."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import shared

from .harness import DEMO, World

OWN = str(Path(shared.__file__).parent)
TWINS = frozenset(f"{OWN}/{name}.py" for name in ("core/clock", "storage/memory", "storage/twins", "web/local_client", "web/templates"))
"""The files that stand for the world around the service: their calls do not count."""
POSTS = 64
SMALL, LARGE = 198, 990
"""Events of a shard: it takes two transactions to claim them, or ten."""


class Calls:
    """The number of calls, those of coroutines that go on included."""

    def __init__(self) -> None:
        self.count = 0

    def note(self, frame: FrameType, event: str, _: Any) -> None:
        file = frame.f_code.co_filename
        self.count += event == "call" and file.startswith(OWN) and file not in TWINS


@contextmanager
def counted() -> Iterator[Calls]:
    """Count the calls that are made in the block."""
    calls = Calls()
    sys.setprofile(calls.note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


async def _opened() -> World:
    """Return a world whose modules and caches are warm."""
    world = await World().open()
    for _ in range(2):
        await world.demo.create()
    return world


async def test_a_post_among_others_makes_few_calls() -> None:
    world = await _opened()
    caller = world.client(DEMO).without_time()

    async def post(number: int) -> int:
        body = {"due": f"2027-01-15T09:00:{number % 60:02}.500Z", "payload": "x" * 498}
        return (await caller.post("/api/v1/events", body)).status

    async def together() -> list[int]:
        return await asyncio.gather(*map(post, range(POSTS)))

    with counted() as calls:
        statuses = await world.do(together())
    await world.close()
    assert set(statuses) == {201}
    assert calls.count / POSTS <= 126


async def test_an_event_of_a_batch_makes_few_calls() -> None:
    world = await _opened()
    with counted() as calls:
        made = await world.demo.post("/api/v1/events/batch", [{"due": "2027-01-15T08:01:30.000Z", "payload": "x" * 498}] * LARGE)
    await world.close()
    assert made.status == 200 and calls.count / LARGE <= 76


async def _calls_of_a_herd(events: int) -> float:
    """Return the calls for each of some events of one instant, from the message of their shard until it is finished."""
    world = await _opened()
    made = await world.demo.post("/api/v1/events/batch", [{"due": "2027-01-15T08:01:30.000Z", "payload": "x" * 498}] * events)
    assert made.status == 200
    with counted() as calls:
        await world.run(120.0)
    assert len(world.receiver.received) == events
    await world.close()
    return calls.count / events


async def test_an_event_of_a_full_shard_makes_as_few_calls_as_one_of_a_small_shard() -> None:
    small, large = await _calls_of_a_herd(SMALL), await _calls_of_a_herd(LARGE)
    assert large <= 137
    assert large <= 1.03 * small
