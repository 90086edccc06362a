"""The owner of a partition as the stored rows show it, the decision about an event, and the cost of a look-up."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shared.core.clock import SettableClock
from shared.delivery.fleet_owners import OWNER_LOOK_AGAIN, OWNER_WAIT, UNREACHED_PAUSE, PartitionOwner, decide, stale_pause, unreached_pause
from shared.engine.async_runner import AsyncRunner
from shared.leases.owners import owner_of
from shared.leases.protocol import takeover
from shared.leases.rows import ActiveIntents, Fleet, HttpServerState, Partition, Server, fleet_key, partition_key, server_key
from shared.leases.service.owner_lookup import OWNER_FRESH, UNOWNED_FRESH, OwnerLookup
from shared.storage.memory import MemoryTables
from shared.storage.names import FLEETS
from shared.storage.ports import Upsert
from tests.faults import Faults, Perform, Request
from tests.texts import assert_text

FLEET = Fleet(8, generation=2)
ROW = Partition(5, "s7", "i1", 42, generation=2)
SERVER = Server("s7", "live", "i1", 9, endpoint="https://s7.example")
OWNER = PartitionOwner("f", 2, 5, 42, "s7", "i1", "https://s7.example", failover=33_000)
NONE = ActiveIntents()


def owner(
    row: Partition | None = ROW,
    server: Server | None = SERVER,
    *,
    fleet: Fleet | None = FLEET,
    age: float = 1.0,
    intents: ActiveIntents = NONE,
) -> PartitionOwner:
    return owner_of("f", fleet, 5, row, server, age, intents)


def test_the_owner_is_the_live_server_of_the_partitions_row() -> None:
    assert owner() == OWNER


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (owner(fleet=None), "owner.no-fleet"),
        (owner(None), "owner.none"),
        (owner(replace(ROW, owner="", incarnation="")), "owner.none"),
        (owner(replace(ROW, generation=1)), "owner.resized"),
        (owner(replace(ROW, closed=True)), "owner.resized"),
        (owner(server=None), "owner.ended"),
        (owner(server=replace(SERVER, state="dead")), "owner.ended"),
        (owner(server=replace(SERVER, incarnation="i2")), "owner.ended"),
        (owner(server=replace(SERVER, kept=True)), "owner.ended"),
        (owner(server=replace(SERVER, http=HttpServerState(evicted=True))), "owner.ended"),
        (owner(age=16.5), "owner.silent"),
        (owner(server=replace(SERVER, http=HttpServerState(terms="1:3")), age=4.5), "owner.silent-over-http"),
        (owner(server=replace(SERVER, endpoint="")), "owner.no-endpoint"),
        (owner(intents=ActiveIntents(offline=frozenset((5,)))), "owner.offline"),
    ],
)
def test_without_an_owner_nothing_can_be_sent(found: PartitionOwner, key: str) -> None:
    assert (found.hold, found.endpoint) == ("absent", "")
    assert_text(key, found.why)


@pytest.mark.parametrize(
    ("found", "key"),
    [
        (owner(server=replace(SERVER, drop=(5,))), "owner.hands-off"),
        (owner(server=replace(SERVER, state="draining")), "owner.hands-off"),
        (owner(server=replace(SERVER, tell="exit")), "owner.hands-off"),
        (owner(intents=ActiveIntents(bumps=((5, 42),))), "owner.hands-off"),
        (owner(intents=ActiveIntents(pins=((5, "s8"),))), "owner.hands-off"),
        (owner(intents=ActiveIntents(drained=frozenset(("s7",)))), "owner.hands-off"),
        (
            owner(intents=ActiveIntents(struck=frozenset(("s7",)), drained=frozenset(("s7",)))),
            "owner.prepares",
        ),
    ],
)
def test_an_owner_that_leaves_is_waited_for(found: PartitionOwner, key: str) -> None:
    assert (found.hold, found.endpoint) == ("leaving", OWNER.endpoint)
    assert_text(key, found.why)


def test_what_an_order_or_a_control_says_about_other_partitions_does_not_matter() -> None:
    assert owner(server=replace(SERVER, drop=(4,)), intents=ActiveIntents(offline=frozenset((4,)), bumps=((5, 41),))) == OWNER


def test_waits_are_bounded() -> None:
    absent, leaving = OWNER._replace(endpoint="", hold="absent", why="has no owner"), OWNER._replace(hold="leaving", why="waits")
    silent = OWNER._replace(hold="silent", why="waits")
    assert decide(OWNER, 0, 0, 99).action == "deliver"
    waits = decide(absent, 0, 0, 99)
    assert waits[:2] == ("wait", 99 + OWNER_LOOK_AGAIN)
    assert_text("delivery.no-owner", waits.why, partition=5, fleet="f")
    end = OWNER_WAIT
    assert decide(absent, 0, 0, end - 1).look == end
    failed = decide(absent, 0, 0, end)
    assert failed.action == "fail"
    assert_text("delivery.no-owner-in-time", failed.why, partition=5, fleet="f", seconds=60)
    assert decide(absent, 0, 5_000, end).action == decide(absent, 5_000, 0, end).action == "wait"
    # An owner that leaves gets the event: it is perhaps the only one. One that does not answer would only hold slots of the others.
    assert decide(leaving, 0, 50_000, end).action == "deliver" and decide(silent, 50_000, 0, end).action == "fail"
    assert decide(leaving, 50_000, 0, end).action == decide(silent, 0, 50_000, end).action == "wait"


def test_pauses_after_stale_answers_are_bounded() -> None:
    pauses = [stale_pause(count) for count in range(1, 12)]
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000, 5_000, None]


class Counted(Faults):
    """Counts the requests."""

    requests = 0

    async def plan(self, request: Request, perform: Perform) -> object:
        self.requests += request.kind != "write"
        return await perform()


async def test_a_lookup_costs_three_requests_and_is_kept_for_a_moment() -> None:
    clock = SettableClock(1_800_000_000_000)
    tables = Counted(MemoryTables(clock))
    await tables.ensure([FLEETS])
    runner, key = AsyncRunner(tables, clock), fleet_key("t", "f")
    assert await runner.run(takeover.create_fleet(key, Fleet(1)))
    row, server = Partition(0, "s7", "i1", 42), replace(SERVER, holds="1")
    await tables.write(FLEETS, key, [Upsert(partition_key(0), row.props()), Upsert(server_key("s7"), server.props())])
    lookup, tables.requests = OwnerLookup(runner, clock), 0
    found = await asyncio.gather(*(lookup.find("t", "f", f"customer-{number}") for number in range(100)))
    assert set(found) == {OWNER._replace(generation=1, partition=0)}
    assert tables.requests == 3
    await clock.advance(OWNER_FRESH / 2)
    assert (await lookup.find("t", "f", "customer-7")).epoch == 42 and tables.requests == 3
    # A stale answer: its rows are read again.
    await tables.write(FLEETS, key, [Upsert(partition_key(0), replace(row, epoch=43).props())])
    lookup.forget("t", found[0])
    assert (await lookup.find("t", "f", "customer-7")).epoch == 43 and tables.requests == 6
    await clock.advance(OWNER_FRESH)
    await lookup.find("t", "f", "customer-7")
    assert tables.requests == 9
    assert (await lookup.find("t", "none", "customer-7")).hold == "absent" and tables.requests == 10


async def test_a_partition_without_an_owner_is_read_again_sooner() -> None:
    clock = SettableClock(1_800_000_000_000)
    tables = Counted(MemoryTables(clock))
    await tables.ensure([FLEETS])
    runner, key = AsyncRunner(tables, clock), fleet_key("t", "f")
    assert await runner.run(takeover.create_fleet(key, Fleet(1)))
    lookup = OwnerLookup(runner, clock)
    assert (await lookup.find("t", "f", "customer-7")).hold == "absent"
    await clock.advance(UNOWNED_FRESH)
    tables.requests = 0
    assert {found.hold for found in await asyncio.gather(*(lookup.find("t", "f", f"k{number}") for number in range(9)))} == {"absent"}
    assert tables.requests == 1
    row = replace(ROW, generation=1)
    await tables.write(FLEETS, key, [Upsert(partition_key(0), row.props()), Upsert(server_key("s7"), replace(SERVER, holds="1").props())])
    await clock.advance(UNOWNED_FRESH)
    assert (await lookup.find("t", "f", "customer-7")).epoch == 42


def test_a_delivery_that_does_not_reach_the_owner_is_free_for_as_long_as_a_failover_takes() -> None:
    found = owner()
    assert found.failover == 33_000
    assert owner(server=replace(SERVER, http=HttpServerState(terms="1:3"))).failover == 21_000
    for since in (0, 7):
        assert unreached_pause(since, 33_000, since + 32_999) == UNREACHED_PAUSE
        assert unreached_pause(since, 33_000, since + 33_000) is None
