"""Rows that were edited by hand and cannot be read: what the processes do that need them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from shared.core.errors import Problem, Rejected
from shared.fleets.directory import FleetDirectory
from shared.fleets.index import GONE
from shared.leases.protocol import http_servers, membership
from shared.leases.protocol.http_servers import HeartbeatAccepted, ServerHeartbeat
from shared.leases.protocol.membership import ServerReport
from shared.leases.rows import parse_server, partition_key, server_key
from shared.leases.service.maintenance_drain import MaintenanceDrain
from shared.leases.service.planning import Planning
from shared.storage.blocking import run_through
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Merge

from ..conftest import KEY, quick_fleet, until
from ..nodes import NOTIFY, TENANT, World, live, settle
from ..service.test_unreadable_rows import alarms, edit, pair
from .keepers import ALL, PARTITIONS, Servers
from .test_keeper_faults import CALM


@pytest.fixture
async def world() -> World:
    return await World().open()


@pytest.fixture
def servers() -> Iterator[Servers]:
    found = Servers(quick_fleet(PARTITIONS, CALM))
    yield found
    found.stop()


async def test_maintenance_waits_for_what_a_server_has_whose_row_cannot_be_read(world: World) -> None:
    key, *_ = await pair(world)
    leaving = MaintenanceDrain(world.runner, Planning(world.runner), world.clock)
    await edit(world, key, server_key("a"))
    assert await leaving.held(key, ["a", "b", "c"]) == {"a": 2, "b": 2}


async def test_a_manual_control_that_cannot_be_read_is_not_one_that_was_forgotten(world: World) -> None:
    key, a, b = await pair(world, rest=NOTIFY)
    word = await world.say("offline", 1)
    await settle(a, b)
    await edit(world, key, word.key)
    await live(world, 120, a, b)
    assert alarms(world) == [("unreadable", "raised", [word.key])]


async def test_a_server_is_drained_though_its_row_cannot_be_read(world: World) -> None:
    key, a, b = await pair(world)
    await edit(world, key, server_key("a"))
    await world.say("drain", server="a")
    await edit(world, key, server_key("a"), {"beat": a.session.beat})
    await settle(a, b)
    await world.scan()
    await settle(a, b)
    assert (a.has, b.has) == (set(), {0, 1, 2, 3})


async def test_over_http_nothing_comes_of_a_row_that_cannot_be_read_until_it_is_mended(world: World) -> None:
    key = await world.fleet()
    assert isinstance(await world.drive(http_servers.beat(key, "c", ServerHeartbeat("c1", 1), 0)), HeartbeatAccepted)
    await world.drive(http_servers.claim(key, "c", "c1", [0, 1], 0))
    await edit(world, key, partition_key(0))
    with pytest.raises(Rejected, match=r"p:00000 .* cannot be read"):
        await world.drive(http_servers.release(key, "c", "c1", 0, 1, 0))
    assert await world.drive(http_servers.release(key, "c", "c1", 1, 1, 0)) == "released"
    await edit(world, key, server_key("c"))
    for asked in (
        http_servers.beat(key, "c", ServerHeartbeat("c1", 2), 0),
        http_servers.beat(key, "c", ServerHeartbeat("c2", 1), 0),
        http_servers.claim(key, "c", "c1", [2], 0),
        http_servers.release(key, "c", "c1", 0, 1, 0),
    ):
        with pytest.raises(Rejected, match=r"s:c .* cannot be read"):
            await world.drive(asked)
    await edit(world, key, server_key("c"), {"beat": 1}), await edit(world, key, partition_key(0), {"epoch": 1})
    assert isinstance(await world.drive(http_servers.beat(key, "c", ServerHeartbeat("c1", 2), 0)), HeartbeatAccepted)
    assert await world.drive(http_servers.release(key, "c", "c1", 0, 1, 0)) == "released"


async def test_a_partition_that_cannot_be_released_keeps_its_server_from_nothing_else(world: World) -> None:
    key, a, b = await pair(world)
    odd, other = sorted(a.has)
    await edit(world, key, partition_key(odd))
    a.session.leaving[odd] = a.session.held.pop(odd)
    for _ in range(2):
        await world.drive(membership.beat(a.session, ServerReport(), "live", (), tuple(a.session.leaving)))
    assert (a.has, a.session.leaving) == ({other}, {})
    before = a.session.beat
    await settle(a, b)
    assert a.session.beat == before + 4, "each beat is applied"
    await edit(world, key, partition_key(odd), {"epoch": 1})
    await world.drive(membership.collect(a.session))
    assert a.has == {odd, other}, "it is still its own, and can be released"


def test_a_keeper_whose_row_cannot_be_read_goes_on_once_it_is_mended(servers: Servers) -> None:
    a = servers.start("a")
    until(lambda: a.has() == ALL, "everything")
    memory = servers.tables.tables
    row = run_through(memory.get(FLEETS, KEY, server_key("a")))
    assert row is not None
    run_through(memory.write(FLEETS, KEY, [Merge(server_key("a"), {"capacity": "much"}, ANY)]))
    failed = a.keeper.counts["failed"]
    until(lambda: a.keeper.counts["failed"] > failed + 1 or a.keeper.ended(0), "the application gets the error")
    assert not a.keeper.ended(0)
    run_through(memory.write(FLEETS, KEY, [Merge(server_key("a"), {"capacity": 0}, ANY)]))
    beats = parse_server(row).beat

    def beaten() -> bool:
        found = run_through(memory.get(FLEETS, KEY, server_key("a")))
        return found is not None and parse_server(found).beat > beats + 3

    until(beaten, "its beats are applied")
    until(lambda: a.has() == ALL, "everything")


async def test_a_fleet_with_rows_that_cannot_be_read_ends_once_its_servers_have(world: World) -> None:
    async def tenant(name: str) -> None:
        return None

    key, a, b = await pair(world)
    fleets = FleetDirectory(world.runner, tenant)
    for node in (a, b):
        await world.drive(membership.leave(node.session))
    await edit(world, key, server_key("a")), await edit(world, key, partition_key(3))
    with pytest.raises(Problem, match="servers live: a"):
        await fleets.delete(TENANT, "fleet")
    await edit(world, key, server_key("a"), {"beat": 1})
    await fleets.delete(TENANT, "fleet")
    gone = await world.tables.get(FLEETS, GONE, key)
    assert gone is not None and int(gone.props["epoch"]) == world.clock.now() // 1000, "higher than any that it may have had"
