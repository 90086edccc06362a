"""Rows that were edited and cannot be read: they stop nothing else, are reported once, and free nothing."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.checkpoints.service.service import PendingReader
from shared.core.errors import Problem
from shared.fleets.nodes import NodeViews
from shared.leases import unreadable_rows
from shared.leases.protocol import http_servers, repair, resizing
from shared.leases.protocol.http_servers import ClaimResult, HeartbeatAccepted, ServerHeartbeat
from shared.leases.protocol.repair import OwnersUnknown
from shared.leases.rows import (
    Intent,
    Partition,
    Server,
    active_intents,
    fleet_key,
    parse_partition,
    parse_server,
    partition_key,
    server_key,
)
from shared.leases.service.planning import Planning
from shared.leases.service.resize import ResizeService
from shared.leases.service.views import LeaseViews
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Merge, Props, Row
from tests.logs import actions

from ..nodes import NOTIFY, TENANT, T, World, live, pair, settle


@pytest.fixture
async def world() -> World:
    return await World().open()


async def edit(world: World, key: str, rk: str, props: Props | None = None) -> None:
    await world.tables.write(FLEETS, key, [Merge(rk, props or {"epoch": "seven", "beat": "often", "expires": "soon"}, ANY)])


def alarms(world: World) -> list[tuple[str, str, list[str]]]:
    found = [event["payload"] for event in world.channel.events.values()]
    return [(each["alarm"], each["state"], each["subjects"]) for each in found]


async def test_a_partition_that_cannot_be_read_stays_with_its_server_and_the_rest_goes_on(world: World, caplog: Any) -> None:
    key, a, b = await pair(world, rest=NOTIFY)
    odd = min(a.has)
    await edit(world, key, partition_key(odd))
    counts = await live(world, T + 60, b)
    await settle(b)
    assert counts["failed"] == 0 and counts["fenced"] == 1, "a fell silent"
    assert b.has == {0, 1, 2, 3} - {odd}
    assert actions(caplog, "WARNING").count("lease_rows_unreadable") == 1
    assert alarms(world) == [("unreadable", "raised", [partition_key(odd)])]
    await edit(world, key, partition_key(odd), {"epoch": 1})
    await live(world, 300, b)
    await settle(b)
    assert b.has == {0, 1, 2, 3}
    assert alarms(world)[1:] == [("unreadable", "cleared", [partition_key(odd)])]


async def test_partitions_of_a_server_with_an_unreadable_row_stay_with_it_for_as_long_as_that_lasts(world: World) -> None:
    key, a, b = await pair(world, rest=NOTIFY)
    await edit(world, key, server_key("a"))
    counts = await live(world, 10 * T, b)
    assert counts["failed"] == 0 and b.has.isdisjoint(a.has)
    assert alarms(world) == [("unreadable", "raised", ["s:a"])], "its partitions count neither as unserved nor as its fleet's loss"
    claim = http_servers.claim(key, "c", "c1", sorted(a.has), 0)
    assert isinstance(await world.drive(http_servers.beat(key, "c", ServerHeartbeat("c1", 1), 0)), HeartbeatAccepted)
    assert await world.drive(claim) == ClaimResult((), tuple((number, "offline") for number in sorted(a.has)))
    await edit(world, key, server_key("a"), {"beat": 9})
    await live(world, T + 60, b)
    await settle(b)
    assert a.has & b.has, "it is silent, and was fenced"


async def test_a_change_of_the_count_goes_on_beside_what_cannot_be_read(world: World) -> None:
    key, a, b = await pair(world)
    odd, kept = min(a.has), min(b.has)
    await world.drive(resizing.begin(key, 8, 0))
    for node in (a, b):
        row = await world.server(key, node.name)
        assert row.state == "live"
    await edit(world, key, partition_key(odd)), await edit(world, key, server_key("b"))
    await world.clock.advance(T + 6)
    await world.scan()
    assert (await world.server(key, "a")).state == "dead"
    progress = await world.drive(resizing.sweep(key))
    assert progress is not None and (progress.closed, progress.opened) == (1, 2)
    still = await world.partition(key, kept)
    assert (still.owner, still.generation) == ("b", 1)
    await edit(world, key, partition_key(odd), {"epoch": 1}), await edit(world, key, server_key("b"), {"beat": 9})
    await world.clock.advance(T + 6)
    for _ in range(3):
        await world.scan()
    assert (await world.row(key)).former == 0


async def test_a_change_of_the_count_is_not_begun_that_would_wait_for_a_row(world: World) -> None:
    key, a, _ = await pair(world)
    await edit(world, key, partition_key(min(a.has)))
    with pytest.raises(Problem, match="cannot be read") as caught:
        await ResizeService(world.runner, Planning(world.runner), world.clock).resize(TENANT, "fleet", 8)
    assert caught.value.code == "rows-missing" and (await world.row(key)).generation == 1


async def test_a_manual_control_that_cannot_be_read_still_keeps_what_it_kept(world: World) -> None:
    key, a, b = await pair(world)
    number = min(a.has)
    word = await world.say("offline", number)
    await settle(a, b)
    await edit(world, key, word.key)
    await live(world, 60, a, b)
    assert number not in a.has | b.has and len(a.has | b.has) == 3
    await world.say("online", number)
    await live(world, 60, a, b)
    assert len(a.has | b.has) == 4


async def test_views_show_the_rest(world: World) -> None:
    async def agents(key: str) -> dict[str, Any]:
        return {}

    pending: PendingReader = agents
    key, a, b = await pair(world)
    odd, theirs = min(a.has), max(b.has)
    await edit(world, key, partition_key(odd)), await edit(world, key, server_key("b"))

    async def nobody(key: str) -> str | None:
        return None

    views = LeaseViews(world.tables, world.runner, world.clock, nobody)
    items, _ = await views.leases(TENANT, "fleet", 10)
    owners = {**dict.fromkeys(a.has - {odd}, "a"), **dict.fromkeys(b.has, "b")}
    assert {item["partition"]: item["owner"] for item in items} == owners
    with pytest.raises(Problem, match="cannot be read"):
        await views.lease(TENANT, "fleet", odd)
    one = await views.lease(TENANT, "fleet", theirs)
    assert (one["state"], one["owner"], one["beat_age_ms"]) == ("owned", "b", None)
    nodes, _ = await NodeViews(views, world.runner, world.clock, agents, pending).nodes(TENANT, "fleet", 10)
    assert [node["node"] for node in nodes] == ["a"]


async def test_nobody_closes_a_fleet_or_refills_it_past_a_server_that_cannot_be_read(world: World) -> None:
    key, a, _ = await pair(world)
    await edit(world, key, server_key("a"), {"state": "dead"}), await edit(world, key, server_key("b"))
    assert await world.drive(resizing.live_servers(key)) == ["b"]
    await world.lose(key, min(a.has))
    assert await world.drive(repair.refill(key, await world.row(key), 5)) == OwnersUnknown((min(a.has),), ("b",))


def row(rk: str, props: Props) -> Row:
    return Row(fleet_key(TENANT, "fleet"), rk, props, "1", 0, 0)


ODD = st.one_of(st.none(), st.text(max_size=3), st.floats(), st.booleans(), st.integers(-3, 3))


@given(st.sampled_from(["p:00003", "s:a", "i:offline:00003:", "p:x", "i:", "i:drain:x:y:z", "s:"]), st.data())
def test_no_row_whatever_it_holds_raises(rk: str, data: st.DataObject) -> None:
    whole = {"p": Partition(3).props(), "s": Server("a", "live", "i", 1).props(), "i": Intent("offline", 3).props()}[rk[0]]
    props: Any = dict(whole)
    for name in data.draw(st.sets(st.sampled_from(sorted(whole)), min_size=1)):
        if data.draw(st.booleans()):
            del props[name]
        else:
            props[name] = data.draw(ODD)
    one = row(rk, props)
    for parse in (parse_partition, parse_server):
        found, odd = unreadable_rows.parse_rows([one], parse)  # type: ignore[type-var]
        assert len(found) + len(odd) == 1
    active_intents(unreadable_rows.parse_intents([one])[0], 0)
    unreadable_rows.undecidable_partitions([rk], [(1, "a"), (2, "")])
