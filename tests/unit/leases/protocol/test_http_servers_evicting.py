"""HTTP servers that send heartbeats and release nothing although ordered to: what waits for them goes on without them, and safely."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any
from uuid import UUID

import pytest

from shared.core.errors import Problem
from shared.leases.model import BeatIn, ReleaseIn
from shared.leases.protocol import http_servers, resizing, takeover
from shared.leases.protocol.http_servers import HeartbeatAccepted, ServerHeartbeat, ServerRejected
from shared.leases.service.http_servers import HttpServers
from shared.leases.service.planning import Planning
from shared.leases.service.resize import ResizeService
from tests.logs import actions

from ..conftest import KEY, Bench
from ..nodes import NOTIFY, TENANT, T, World

PATIENCE = 10.0 + T
SILENCE = T + 5.0


class Client:
    """A server that speaks HTTP, claims what it is assigned, and releases what `releases` allows. until: when its validity ends."""

    def __init__(self, world: World, name: str, life: int = 1, *, releases: bool = False) -> None:
        self.world, self.name, self.releases = world, name, releases
        self.incarnation = UUID(int=life)
        self.beats = HttpServers(world.runner, world.clock, world.watch.takeover.nudge)
        self.seq, self.until = 0, float("-inf")
        self.held: dict[int, int] = {}
        self.answer: dict[str, Any] = {}

    async def beat(self) -> Client:
        self.seq += 1
        sent = self.world.clock.monotonic()
        self.answer = await self.beats.beat(TENANT, "fleet", self.name, BeatIn(incarnation=self.incarnation, seq=self.seq))
        self.held = {int(number): epoch for number, epoch in self.answer["held"].items()}
        self.until = sent + self.answer["validity_ms"] / 1000
        for number in self.answer["release"] if self.releases else ():
            await self.release(number)
        if self.answer["assign"]:
            await self.claim(self.answer["assign"])
        return self

    async def claim(self, numbers: list[int]) -> None:
        found = await self.beats.claim(TENANT, "fleet", self.name, str(self.incarnation), numbers, self.answer["generation"])
        self.held |= {each["partition"]: each["epoch"] for each in found["claimed"]}

    async def release(self, number: int) -> None:
        release = ReleaseIn(node=self.name, incarnation=self.incarnation, epoch=self.held.pop(number))
        await self.beats.release(TENANT, "fleet", number, release)


@pytest.fixture
async def world() -> World:
    return await World().open()


async def pair(world: World, **options: Any) -> tuple[str, Client, Client]:
    """`a` releases nothing, `b` does; two partitions each."""
    key = await world.fleet(**options)
    a, b = await Client(world, "a").beat(), await Client(world, "b", releases=True).beat()
    for _ in range(3):
        await world.scan()
        await a.beat(), await b.beat()
    assert (len(a.held), len(b.held)) == (2, 2)
    return key, a, b


async def until_over(world: World, a: Client, b: Client, most: float) -> Problem:
    """Let both send heartbeats each second and the timers run, until `a` learns that it is evicted."""
    start = world.clock.monotonic()
    while True:
        await world.clock.advance(1)
        assert world.clock.monotonic() - start <= most, "it still beats"
        await b.beat()
        await world.scan()
        try:
            await a.beat()
        except Problem as problem:
            return problem


async def taken_after(world: World, a: Client, b: Client, numbers: set[int]) -> float:
    """Seconds until `b` has `numbers`, on whose keys `a` acts until the end of its validity."""
    start = world.clock.monotonic()
    while not numbers <= b.held.keys():
        await world.clock.advance(1)
        await world.watch.takeover.run_once(world.clock.now())
        await b.beat()
        assert numbers.isdisjoint(b.held) or world.clock.monotonic() >= a.until, "two act"
        assert world.clock.monotonic() - start < 600, "never"
    return world.clock.monotonic() - start


async def test_a_resize_waits_for_an_owner_that_ignores_it_no_longer_than_its_time_limit_and_a_take_over(world: World, caplog: Any) -> None:
    key, a, b = await pair(world)
    await ResizeService(world.runner, Planning(world.runner), world.clock).resize(TENANT, "fleet", 8)
    problem = await until_over(world, a, b, PATIENCE + 2)
    assert (problem.status, problem.code) == (409, "fenced") and "released none" in problem.detail
    assert (await world.row(key)).former == 4, "nothing is taken yet"
    assert await taken_after(world, a, b, {number for number in range(8) if number % 4 in a.held}) <= SILENCE + 3
    assert (await world.row(key)).former == 0
    logged = Counter(actions(caplog))
    assert (logged["lease_evicted"], logged["lease_fenced"]) == (1, 1)


async def test_a_manual_control_waits_no_longer_for_a_server_that_ignores_it(world: World) -> None:
    key, a, b = await pair(world)
    had = set(a.held)
    await world.say("drain", server="a")
    assert (await until_over(world, a, b, PATIENCE + 2)).code == "fenced"
    assert (await world.server(key, "a")).state == "draining"
    assert T - 2 <= await taken_after(world, a, b, had) <= SILENCE + 3


async def test_a_bump_is_a_manual_control(world: World) -> None:
    _, a, b = await pair(world)
    number = min(a.held)
    await world.say("bump", number)
    assert (await until_over(world, a, b, PATIENCE + 2)).code == "fenced"
    await taken_after(world, a, b, {number})
    assert b.held[number] == 2


async def test_nobody_is_evicted_for_a_move_that_only_balances(world: World) -> None:
    _, a, b = await pair(world)
    c = await Client(world, "c", releases=True).beat()
    for _ in range(round(3 * PATIENCE)):
        await world.clock.advance(1)
        await world.scan()
        await a.beat(), await b.beat(), await c.beat()
    assert len(a.held) == 2 and a.answer["state"] == "live"


async def test_the_time_for_the_rest_starts_over_with_each_release(world: World) -> None:
    key, a, b = await pair(world)
    await ResizeService(world.runner, Planning(world.runner), world.clock).resize(TENANT, "fleet", 8)
    for number in sorted(a.held):
        for _ in range(round(PATIENCE) - 1):
            await world.clock.advance(1)
            await a.beat(), await b.beat()
        await a.release(number)
    for _ in range(3):
        await world.clock.advance(1)
        await world.scan()
        await a.beat(), await b.beat()
    assert (await world.row(key)).former == 0 and a.answer["generation"] == 2 and len(a.held) == 4


async def test_a_manual_control_that_is_withdrawn_in_time_costs_nothing(world: World) -> None:
    key, a, b = await pair(world)
    for _ in range(3):
        await world.say("drain", server="a")
        for _ in range(round(PATIENCE) - 1):
            await world.clock.advance(1)
            await a.beat(), await b.beat()
        assert (await world.server(key, "a")).http.release_by
        await world.say("undrain", server="a")
        await a.beat()
        assert (await world.server(key, "a")).http.release_by == 0
    assert len(a.held) == 2


async def test_the_time_limit_of_a_manual_control_starts_with_it_also_during_a_balancing_move(world: World) -> None:
    key = await world.fleet()
    a = await Client(world, "a").beat()
    await world.scan()
    await a.beat()
    b = await Client(world, "b", releases=True).beat()
    await world.scan()
    await a.beat()
    assert len(a.answer["release"]) == 2, "half of its partitions"
    await world.say("prohibit", 0, "a")
    await a.beat()
    await world.say("permit", 0, "a")
    for _ in range(round(PATIENCE) - 1):
        await world.clock.advance(1)
        await a.beat(), await b.beat()
    await world.say("prohibit", 1, "a")
    for _ in range(round(PATIENCE) - 1):
        await world.clock.advance(1)
        await a.beat(), await b.beat()
    assert not (await world.server(key, "a")).http.evicted
    assert (await until_over(world, a, b, 3)).code == "fenced"


async def test_an_evicted_incarnation_is_over_and_its_name_is_free_once_it_is_silent(world: World) -> None:
    key, a, b = await pair(world)
    await world.say("drain", server="a")
    await until_over(world, a, b, PATIENCE + 2)
    row = await world.server(key, "a")
    a.seq = row.beat - 1
    for ask in (a.beat(), a.beat(), a.claim([0]), a.release(min(a.held))):
        with pytest.raises(Problem, match="incarnation is over"):
            await ask
    assert await world.server(key, "a") == row, "nothing that it sends keeps its row young"
    again = Client(world, "a", 2, releases=True)
    waited = 0
    while again.seq != 1 or not again.answer:
        again.seq = 0
        try:
            await again.beat()
        except Problem as problem:
            assert problem.code == "name-in-use" and problem.headers["retry-after"]
            await world.clock.advance(1)
            waited += 1
    assert T < waited <= SILENCE and world.clock.monotonic() > a.until


async def test_the_row_of_an_evicted_server_is_given_no_orders(world: World) -> None:
    key, a, b = await pair(world)
    await world.say("prohibit", min(a.held), "a")
    await until_over(world, a, b, PATIENCE + 2)
    before = await world.tables.get("TocsinFleets", key, "s:a")
    await world.say("prohibit", max(a.held), "a")
    await world.scan(), await world.inspect()
    after = await world.tables.get("TocsinFleets", key, "s:a")
    assert before is not None and after is not None and after.etag == before.etag


@pytest.mark.parametrize("fault", ["lost", "gone"])
def test_an_eviction_whose_answer_is_lost_is_found_or_made_again(bench: Bench, fault: str) -> None:
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 1), 0)), HeartbeatAccepted)
    bench.drive(http_servers.claim(KEY, "a", "i1", [0], 0))
    bench.drive(resizing.begin(KEY, 4, 0))
    assert bench.drive(takeover.write_order(KEY, "a", [], [0], 2))
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 2), 0)), HeartbeatAccepted)
    asyncio.run(bench.clock.advance(PATIENCE - 1))
    assert isinstance(bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 3), 0)), HeartbeatAccepted)
    asyncio.run(bench.clock.advance(1))
    bench.tables.faults.append(fault)
    found = bench.drive(http_servers.beat(KEY, "a", ServerHeartbeat("i1", 4), 0))
    assert found == ServerRejected("fenced" if fault == "lost" else "evicted")
    row = bench.server("a")
    assert (row.http.evicted, row.beat, bench.partition(0).owner) == (True, 3, "a")


async def test_an_order_for_balance_that_is_ignored_evicts_nobody_and_raises_an_alarm_after_twice_t(world: World, caplog: Any) -> None:
    await world.fleet(rest=NOTIFY)
    a = await Client(world, "a").beat()
    for _ in range(3):
        await world.scan()
        await a.beat()
    assert len(a.held) == 4
    b = Client(world, "b", releases=True)
    start = world.clock.monotonic()
    while "lease_orders_unanswered" not in actions(caplog, "WARNING"):
        await world.clock.advance(5)
        await a.beat(), await b.beat()
        await world.scan()
        await world.inspect()
        assert world.clock.monotonic() - start < 2 * T + 30, "no alarm"
    assert a.answer["release"] and not b.held
    assert world.clock.monotonic() - start >= 2 * T
    [alarm] = [event["payload"] for event in world.channel.events.values()]
    assert (alarm["alarm"], alarm["state"], alarm["subjects"]) == ("orders", "raised", ["a"])
