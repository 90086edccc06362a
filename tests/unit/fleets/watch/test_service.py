"""The findings, alarms and costs of the watch over fleets in memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from shared.core.errors import Problem, Unavailable
from shared.engine import sweeps
from shared.leases.rows import INDEX, PARTITIONS, MoveLimits, partition_key
from shared.storage.names import FLEETS, SWEEPS
from shared.storage.ports import ANY, Delete, RowQuery, Upsert
from tests.logs import actions

from ...leases.nodes import NOTIFY, TENANT, Node, World, live, settle


@pytest.fixture
async def world() -> World:
    return await World().open()


async def test_a_tick_reads_no_partitions_while_all_is_well(world: World) -> None:
    key = await world.fleet(partitions=1024, minimum=16)
    nodes = [await Node(world, key, f"s{number:02d}", scans=True).join() for number in range(64)]
    read: Counter[str] = Counter()
    real = world.tables.query

    async def notes(asked: RowQuery) -> Any:
        page = await real(asked)
        read["partitions"] += sum(PARTITIONS[0] <= row.rk < PARTITIONS[1] for row in page.rows if asked.pk == key)
        read["pages"] += asked.pk == key
        return page

    for number, node in enumerate(nodes):
        node.session.take = tuple(range(number, 1024, 64))
        await node.beat()
    await live(world, 60, *nodes)
    world.tables.query = notes  # type: ignore[method-assign]
    world.tables.transactions.clear()
    await world.scan()
    # The index, what is remembered of the fleet, its own row and words, its servers.
    assert (read["partitions"], read["pages"], world.tables.transactions["rows_read"]) == (0, 2, 1 + 1 + 64)
    assert {name: world.tables.transactions[name] for name in ("get", "query", "write")} == {"get": 1, "query": 3, "write": 0}
    world.tables.transactions.clear()
    await world.inspect()
    assert (read["partitions"], read["pages"]) == (0, 4) and world.tables.transactions["write"] == 0
    await live(world, 240, *nodes)
    assert read["partitions"] == 1024


async def test_an_alarm_is_reported_once_while_it_lasts_again_when_it_comes_back_and_cleared_too(world: World, caplog: Any) -> None:
    caplog.set_level("INFO")
    key = await world.fleet(minimum=1, spare=1, rest=NOTIFY)
    a = await Node(world, key, "a").join()
    await live(world, 300, a)
    assert actions(caplog, "WARNING") == ["lease_servers_few"]
    assert [event["payload"]["state"] for event in world.channel.events.values()] == ["raised"]
    b = await Node(world, key, "b").join()
    await live(world, 120, a, b)
    assert actions(caplog, "INFO") == ["lease_alarm_cleared"]
    await live(world, 240, a)
    published = [(event["payload"]["kind"], event["payload"]["state"]) for event in world.channel.events.values()]
    assert published == [("dead", "raised"), ("dead", "cleared"), ("dead", "raised")] and world.channel.told == 3
    assert all(event["channel"] == "ops" for event in world.channel.events.values())


async def test_partitions_that_no_server_may_own_raise_an_alarm_and_so_do_missing_rows(world: World, caplog: Any) -> None:
    key = await world.fleet(limits=MoveLimits(max_per_server=3), rest=NOTIFY)
    a = await Node(world, key, "a").join()
    await live(world, 30, a)
    assert len(a.has) == 3
    await world.lose(key, min(a.has))
    await live(world, 180, a)
    assert set(actions(caplog, "WARNING")) == {"lease_partitions_unserved", "lease_rows_missing"}
    found = await world.watch.stale(TENANT, "fleet")
    assert {each.reason for each in found.findings.stale} == {"unowned", "missing"}
    assert set(found.watched.alarms) == {"unserved", "missing"}
    [seen] = await world.watch.figures()
    assert (seen.fleet, seen.live, seen.needed, seen.unserved, seen.stale) == ("fleet", 1, 1, 2, 2)
    assert set(seen.alarms) == {"unserved", "missing"} and seen.oldest_beat == 0.0


async def test_fleets_beyond_the_first_and_those_with_alarms_are_reported_together(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps, "MAX_NAMED_FLEETS", 1)
    monkeypatch.setattr(sweeps, "MAX_NAMED_ALARMS", 0)
    first, *others = [await world.fleet(name, limits=MoveLimits(max_per_server=3)) for name in ("a", "b", "b-2", "c", "d")]
    nodes = [await Node(world, key, "n").join() for key in (first, *others[:2])]
    await live(world, 180, *nodes)
    await world.lose(others[0], min(nodes[1].has))
    await live(world, 240, *nodes)
    one, rest = await world.watch.figures()
    assert (one.fleet, one.live, one.unserved, one.alarms) == ("a", 1, 1, ("unserved",))
    assert (rest.tenant, rest.fleet, rest.unserved, rest.stale) == ("*", "*", 3 + 4 + 4, 3), "nobody has ever been in c and d"
    assert sorted(rest.alarms) == ["missing", "unserved", "unserved"]
    world.tables.transactions.clear()
    await world.watch.figures()
    assert world.tables.transactions["query"] == 5 and world.tables.transactions["get"] == 0, "three of all, two of the first"
    monkeypatch.setattr(sweeps, "MAX_NAMED_ALARMS", 1)
    first_of_all, alarmed, rest = await world.watch.figures()
    assert (first_of_all, alarmed.fleet, alarmed.live, sorted(alarmed.alarms)) == (one, "b", 1, ["missing", "unserved"])
    assert (rest.fleet, rest.unserved, rest.stale, rest.alarms) == ("*", 1 + 4 + 4, 1, ("unserved",))
    for key in others[:2]:
        await world.tables.write(FLEETS, INDEX, [Delete(key, ANY)])
    _, rest = await world.watch.figures()
    assert (rest.unserved, rest.stale, rest.alarms) == (4 + 4, 0, ()), "of one that ended its memory may be there still"


async def test_the_app_gives_the_orders_that_scanning_servers_have_not_given(world: World) -> None:
    key = await world.fleet()
    a = await Node(world, key, "a", scans=True).join()
    counts = await live(world, 120, a)
    assert counts["plans"] == 1
    await a.beat()
    assert a.has == {0, 1, 2, 3}


async def test_a_forgotten_control_is_an_alarm(world: World, caplog: Any) -> None:
    key = await world.fleet(rest=NOTIFY)
    a = await Node(world, key, "a").join()
    await world.scan()
    await world.say("offline", 1)
    await settle(a)
    await live(world, 60, a)
    assert actions(caplog, "WARNING") == []
    await world.clock.advance(86_400)
    await a.beat()
    await world.inspect()
    assert actions(caplog, "WARNING") == ["lease_control_forgotten"]


async def test_late_beats_of_many_are_an_alarm(world: World, caplog: Any) -> None:
    key = await world.fleet()
    nodes = [await Node(world, key, name).join() for name in "abc"]
    await live(world, 15, *nodes)
    for _ in range(6):
        await world.clock.advance(14)
        await world.inspect()
        for node in nodes:
            await node.beat()
    assert actions(caplog, "WARNING")[-1] == "lease_beats_late"


async def test_a_partition_that_came_back_to_a_server_which_has_released_it_raises_an_alarm(world: World, caplog: Any) -> None:
    key = await world.fleet(rest=NOTIFY)
    a, b = await Node(world, key, "a", scans=True).join(), await Node(world, key, "b", scans=True).join()
    a.session.take = tuple(range(4))
    await a.beat()
    before = await world.partition(key, 0)
    a.session.drop, b.session.take = (0,), (0,)
    await settle(a, b)
    assert (a.has, b.has) == ({1, 2, 3}, {0})
    await world.tables.write(FLEETS, key, [Upsert(partition_key(0), before.props())])
    await live(world, 240, a, b)
    assert "lease_partitions_unlisted" in actions(caplog, "WARNING")
    [alarm] = [event["payload"] for event in world.channel.events.values() if event["payload"]["alarm"] == "unlisted"]
    assert (alarm["state"], alarm["subjects"]) == ("raised", ["0"]) and "1 partition" in alarm["text"]


async def test_a_fleet_recreated_under_the_name_of_another_begins_without_its_alarms(world: World, caplog: Any) -> None:
    key = await world.fleet(minimum=2, limits=MoveLimits(max_per_server=4))
    a = await Node(world, key, "a").join()
    await live(world, 120, a)
    assert actions(caplog, "WARNING") == ["lease_servers_few"]
    await world.clock.advance(1)
    await world.put_fleet(key, rest=f'{{"created": {world.clock.now()}}}')
    await a.beat()
    assert (await world.inspect())["whole"] == 1
    assert (await world.watch.stale(TENANT, "fleet")).watched.alarms == {}
    await live(world, 120, a)
    assert actions(caplog, "WARNING") == ["lease_servers_few"] * 2


async def test_a_channel_that_fails_is_reported_later_and_one_that_refuses_is_not_asked_again(world: World, caplog: Any) -> None:
    key = await world.fleet(minimum=2, limits=MoveLimits(max_per_server=4), rest=NOTIFY)
    a = await Node(world, key, "a").join()
    world.channel.fails = Problem(429, "too-many-requests", "later")
    await live(world, 240, a)
    published = world.channel.told
    assert published >= 2 and actions(caplog, "WARNING") == ["lease_servers_few"]
    world.channel.fails = None
    await live(world, 60, a)
    assert len(world.channel.events) == 1
    b = await Node(world, key, "b").join()
    world.channel.fails = Problem(422, "invalid-content", "the tenant has no channel of that name")
    await live(world, 180, a, b)
    assert actions(caplog, "WARNING") == ["lease_servers_few", "fleet_notice_refused"] and world.channel.told == published + 2


async def test_storage_that_fails_while_telling_is_made_up_for(world: World) -> None:
    key = await world.fleet(minimum=2, limits=MoveLimits(max_per_server=4), rest=NOTIFY)
    a = await Node(world, key, "a").join()
    world.channel.fails = Unavailable("away")
    assert (await live(world, 120, a))["failed"] == 1
    world.channel.fails = None
    await live(world, 60, a)
    assert len(world.channel.events) == 1


async def test_rows_of_servers_long_dead_are_removed_and_others_stay(world: World) -> None:
    key = await world.fleet()
    a = await Node(world, key, "a").join()
    await Node(world, key, "b").join()
    await live(world, 60, a)
    await world.clock.advance(86_400)
    await a.beat()
    assert (await world.inspect())["removed"] == 1
    assert await world.tables.get(FLEETS, key, "s:b") is None
    assert (await world.server(key, "a")).state == "live"


async def test_what_is_remembered_of_fleets_that_are_gone_goes_too(world: World) -> None:
    for name in ("f1", "f2"):
        key = await world.fleet(name, partitions=1)
        await Node(world, key, "a").join()
    await live(world, 60)
    for row in ("fleet", "p:00000", "s:a"):
        await world.tables.write(FLEETS, "demo:f1", [Delete(row, ANY)])
    await world.inspect()
    assert [await world.tables.get(SWEEPS, "lease-watch", f"demo:{name}") is None for name in ("f1", "f2")] == [True, False]
    await world.tables.write(FLEETS, ":fleets", [Delete("demo:f1", ANY), Delete("demo:f2", ANY)])
    assert (await world.watch.retain(world.clock.now()))["forgotten"] >= 2
    assert (
        (await world.tables.query(RowQuery(SWEEPS, "lease-watch"))).rows
        == (await world.tables.query(RowQuery(SWEEPS, "lease-plans"))).rows
        == []
    )
