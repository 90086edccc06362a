"""The limit of open events: exact in a process, whatever comes at once, and bounded between processes."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest

from shared.app.application import Application
from shared.core.clock import SettableClock
from shared.core.errors import Unavailable
from shared.scheduler.ingest.event_limits import OpenEvents
from shared.scheduler.timings import OPEN_COUNT_FRESH_FOR, UNSETTLED_WAIT
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS, SHARDS
from shared.storage.ports import Page, RowQuery
from shared.web.local_client import LocalClient
from tests.unit.scheduler.flow.flowing import Instances
from tests.unit.scheduler.harness import ROUTES, Client, World

URL = "/api/v1/events"


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch, world: World) -> None:
    """Reads of the index take a while, and see what was stored when they began."""
    plain = MemoryTables.query

    async def query(self: MemoryTables, asked: RowQuery) -> Page:
        page = await plain(self, asked)
        if asked.table == SHARDS:
            await world.clock.sleep(0.3)
        return page

    monkeypatch.setattr(MemoryTables, "query", query)


async def at_once(world: World, client: Client, *bodies: Any, url: str = URL) -> list[int]:
    """The statuses of calls that are made at the same time."""
    calls = client.without_time()

    async def all_of_them() -> list[int]:
        return [answer.status for answer in await asyncio.gather(*(calls.post(url, body) for body in bodies))]

    return await world.do(all_of_them())


EVENT = {"delay": "PT1H", "payload": 1}


def stored(world: World) -> int:
    return sum(row.rk.startswith("e") for row in world.rows(EVENTS))


@pytest.mark.usefixtures("slow")
async def test_a_burst_after_a_pause_gets_exactly_what_is_left(world: World) -> None:
    client = await world.tenant(limits={"open_events": 10})
    for _ in range(2):
        await client.create()
    await world.run(12)
    assert Counter(await at_once(world, client, *[EVENT] * 100)) == {201: 8, 429: 92}
    assert stored(world) == 10


@pytest.mark.usefixtures("slow")
async def test_the_first_burst_of_a_tenant_gets_exactly_its_limit(world: World) -> None:
    client = await world.tenant(limits={"open_events": 20})
    await at_once(world, client, *[[EVENT] * 100] * 6, url=f"{URL}/batch")
    assert stored(world) == 20


async def test_a_stream_of_bursts_never_exceeds_the_limit_and_fills_it(world: World) -> None:
    client = await world.tenant(limits={"open_events": 50})
    for number in range(20):
        await at_once(world, client, *[EVENT] * 4)
        await world.clock.advance(OPEN_COUNT_FRESH_FOR * (number % 3) / 2)
    assert stored(world) == 50


async def test_a_repeated_request_takes_no_place(world: World) -> None:
    client = await world.tenant(limits={"open_events": 3})
    assert await at_once(world, client, *[EVENT | {"id": "once"}] * 2) == [201, 200]
    assert await at_once(world, client, *[EVENT | {"id": "twice"}] * 2) == [201, 200]
    assert Counter(await at_once(world, client, *[EVENT] * 3)) == {201: 1, 429: 2}


async def test_a_monitor_that_calls_in_time_is_never_refused(world: World) -> None:
    client = await world.tenant(limits={"open_events": 2})
    await client.create()
    answers = [await client.post("/api/v1/heartbeats/job", {"within": f"PT{20 + number}H"}) for number in range(30)]
    assert [each.status for each in answers] == [201] + [200] * 29
    assert (await client.post(URL, EVENT)).status == 429, "the limit is reached by two events"


async def test_what_replaces_an_event_is_let_in_at_the_limit_and_a_new_event_is_not(world: World) -> None:
    client = await world.tenant(limits={"open_events": 1})
    posts = [{"id": "c", "delay": f"PT{20 + number}H", "collapse": "P30D", "payload": number} for number in range(10)]
    assert [(await client.post(URL, post)).status for post in posts] == [201] + [200] * 9
    assert (await client.post(URL, posts[0] | {"id": "d"})).status == 429


async def test_two_processes_let_in_at_most_the_limit_each(two: Instances) -> None:
    """The largest excess, which docs/reference/limits.md states."""
    client = await two.tenant(limits={"open_events": 10})

    async def second() -> Application:
        return two.apps[1]

    calls = [client.without_time(), LocalClient(ROUTES, second, key=client.key)]

    async def both() -> None:
        await asyncio.gather(*(each.post(URL, EVENT) for _ in range(100) for each in calls))

    await two.do(both())
    assert stored(two) == 20
    for _ in range(3):
        await two.clock.advance(OPEN_COUNT_FRESH_FOR)
        await two.do(both())
    assert stored(two) == 20


class Storage:
    """A storage whose counts the test ends."""

    def __init__(self) -> None:
        self.stored = 0
        self.counts: list[asyncio.Future[int]] = []

    async def count(self, tenant: str) -> int:
        self.counts.append(asyncio.get_running_loop().create_future())
        return await self.counts[-1]


async def turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_one_count_serves_all_that_wait_and_its_failure_fails_them() -> None:
    clock, storage = SettableClock(0), Storage()
    opened = OpenEvents(storage.count, clock)
    waiting = [asyncio.ensure_future(opened.take("a", 10, 1)) for _ in range(50)]
    await turns()
    assert len(storage.counts) == 1
    storage.counts[0].set_exception(Unavailable("away"))
    assert {type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)} == {Unavailable}
    waiting = [asyncio.ensure_future(opened.take("a", 10, 1)) for _ in range(50)]
    await turns()
    # One of the callers is gone; the count goes on for the others.
    waiting[0].cancel()
    await turns()
    storage.counts[1].set_result(4)
    assert sum(await asyncio.gather(*waiting[1:])) == 6 and len(storage.counts) == 2


async def test_what_is_being_stored_during_a_count_is_awaited_before_anything_is_refused() -> None:
    clock, storage = SettableClock(0), Storage()
    opened = OpenEvents(storage.count, clock)
    first = asyncio.ensure_future(opened.take("a", 10, 4))
    await turns()
    storage.counts[0].set_result(0)
    assert await first == 4
    await clock.advance(OPEN_COUNT_FRESH_FOR)
    # Two of them are stored when the next count begins, which may or may not see them.
    second = asyncio.ensure_future(opened.take("a", 10, 3))
    await turns()
    storage.counts[1].set_result(2)
    assert await second == 3, "2 + 4 + 3 fit in any case"
    third = asyncio.ensure_future(opened.take("a", 10, 2))
    await turns()
    assert not third.done() and len(storage.counts) == 2
    opened.stored("a", 4, 1)
    opened.stored("a", 3)
    await turns()
    storage.counts[2].set_result(6)
    assert await third == 2
    opened.stored("a", 2)
    assert await opened.take("a", 10, 5) == 2 and await opened.take("a", 10, 5, whole=True) == 0


async def test_a_store_that_hangs_keeps_others_for_a_few_seconds_and_the_limit_holds() -> None:
    clock, storage = SettableClock(0), Storage()
    opened = OpenEvents(storage.count, clock)
    first = asyncio.ensure_future(opened.take("a", 10, 6))
    await turns()
    storage.counts[0].set_result(0)
    assert await first == 6
    await clock.advance(OPEN_COUNT_FRESH_FOR)
    second = asyncio.ensure_future(opened.take("a", 10, 5))
    await turns()
    storage.counts[1].set_result(6)
    await turns()
    await clock.advance(UNSETTLED_WAIT)
    await turns()
    storage.counts[2].set_result(6)
    assert await second == 0, "whether the six are in the count is unknown"


async def test_a_call_does_not_wait_for_its_own_events() -> None:
    clock, storage = SettableClock(0), Storage()
    opened = OpenEvents(storage.count, clock)
    first = asyncio.ensure_future(opened.take("a", 10, 4))
    await turns()
    storage.counts[0].set_result(0)
    await first
    await clock.advance(OPEN_COUNT_FRESH_FOR)
    more = asyncio.ensure_future(opened.take("a", 10, 9, own=4))
    await turns()
    storage.counts[1].set_result(0)
    assert await more == 6
