"""A drain with a destination: where the partitions go, what it ends, and what is refused."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from shared.core.errors import Problem
from shared.leases.rows import NO_PARTITION, MoveLimits
from shared.leases.service.control.model import intent_out
from shared.leases.service.control.service import ControlResult
from shared.leases.service.control.verbs import ControlRequest
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Merge
from tests.logs import actions

from ..nodes import TENANT, Node, T, World, live, settle


@pytest.fixture
async def world() -> World:
    return await World().open()


async def drain(world: World, server: str, to: str, **more: Any) -> ControlResult:
    request = ControlRequest("drain", NO_PARTITION, server, "a restart", "abc", world.clock.now(), to=to, **more)
    return await world.control.apply(TENANT, "fleet", request)


async def three(world: World, **options: Any) -> tuple[str, list[Node]]:
    """Three servers that share six partitions."""
    key = await world.fleet(partitions=6, limits=MoveLimits(moves_per_minute=1000), **options)
    nodes = [await Node(world, key, name).join() for name in "abc"]
    await world.scan()
    await settle(*nodes)
    assert [len(node.has) for node in nodes] == [2, 2, 2]
    return key, nodes


async def test_everything_goes_to_the_destination_and_the_server_that_came_back_is_the_next_one(world: World) -> None:
    key, [a, b, c] = await three(world)
    of_a, of_b, of_c = set(a.has), set(b.has), set(c.has)
    result = await drain(world, "a", "b")
    assert (result.intent.to, result.ended, result.diverted) == ("b", (), {})
    await settle(a, b, c)
    assert (a.has, b.has, c.has) == (set(), of_a | of_b, of_c)
    await live(world, 120, a, b, c)
    assert (a.has, b.has, c.has) == (set(), of_a | of_b, of_c), "nothing moves while the drain is in force"
    result = await drain(world, "c", "a")
    assert [intent.key for intent in result.ended] == ["i:drain::a"]
    assert [intent.key for intent in await world.intents(key)] == ["i:drain::c"]
    await settle(c, a, b)
    assert of_c <= a.has and not c.has


async def test_a_server_over_http_is_no_longer_asked_to_drain_once_it_is_a_destination(world: World) -> None:
    key, _ = await three(world)
    await drain(world, "a", "b")
    assert (await world.server(key, "a")).tell == "drain"
    await drain(world, "b", "a")
    assert ((await world.server(key, "a")).tell, (await world.server(key, "b")).tell) == ("", "drain")


async def test_a_repeated_drain_changes_nothing_even_if_its_destination_has_ended(world: World) -> None:
    key, _ = await three(world)
    first = await drain(world, "a", "b")
    await world.tables.write(FLEETS, key, [Merge("s:b", {"state": "dead"}, ANY)])
    assert await drain(world, "a", "b") == ControlResult(first.intent, (), {})


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"state": "dead"}, "it is not a living server of the fleet; start it first"),
        ({"state": "draining"}, "it hands its own partitions off"),
        ({"tell": "exit"}, "it ends; start it again first"),
        ({"kept": True}, "it ends; start it again first"),
    ],
)
async def test_a_destination_that_can_take_nothing_is_refused(world: World, row: dict[str, Any], words: str) -> None:
    key, _ = await three(world)
    await world.tables.write(FLEETS, key, [Merge("s:b", row, ANY)])
    with pytest.raises(Problem) as refused:
        await drain(world, "a", "b")
    assert (refused.value.status, refused.value.code) == (409, "no-destination") and words in refused.value.detail
    assert await world.intents(key) == []


async def test_unknown_silent_struck_and_prohibited_destinations_are_refused(world: World) -> None:
    key, [a, _, c] = await three(world)
    codes = []
    await world.say("prohibit", server="b")
    for name in ("nobody", "b"):
        with pytest.raises(Problem) as refused:
            await drain(world, "a", name)
        codes.append(refused.value.code)
    await world.say("permit", server="b")
    await world.clock.advance(T + 1)
    await a.beat()
    await c.beat()
    with pytest.raises(Problem) as refused:
        await drain(world, "a", "b")
    assert "no heartbeat" in refused.value.detail
    assert codes == ["no-destination", "prohibited"]
    assert await world.intents(key) == []


async def test_what_a_full_destination_cannot_take_goes_elsewhere_and_the_answer_and_the_log_say_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    key, [a, b, c] = await three(world)
    await world.put_fleet(key, limits=MoveLimits(max_per_server=3))
    of_a = set(a.has)
    result = await drain(world, "a", "b")
    assert len(result.diverted) == 1 and set(result.diverted) < of_a and set(result.diverted.values()) == {"full"}
    assert "lease_drain_diverted" in actions(caplog)
    await settle(a, b, c)
    assert [len(node.has) for node in (a, b, c)] == [0, 3, 3]


async def test_partitions_go_to_the_other_servers_when_the_destination_dies_and_an_alarm_says_so(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    _, [a, b, c] = await three(world)
    await drain(world, "a", "b")
    await settle(a, b, c)
    await live(world, 180, a, c)
    assert (a.has, c.has) == (set(), set(range(6)))
    assert "lease_destinations_lost" in actions(caplog)
    await world.say("undrain", server="a")
    await live(world, 180, a, c)
    assert len(a.has) == len(c.has) == 3
    assert "lease_alarm_cleared" in actions(caplog)


async def test_the_list_of_controls_shows_the_destination(world: World) -> None:
    await three(world)
    shown = intent_out((await drain(world, "a", "b")).intent)
    assert (shown["verb"], shown["target"], shown["to"]) == ("drain", "a", "b")
