"""Changing a fleet's partition count over HTTP, with servers that speak HTTP."""

from __future__ import annotations

from math import lcm
from typing import Any
from uuid import uuid4

import pytest

from shared.leases.rows import fleet_key, partition_key
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Delete
from tests.unit.scheduler.harness import Client, World

AT = "/api/v1/fleets/web"


@pytest.fixture
async def fleet(world: World) -> None:
    assert (await world.demo.put(AT, {"partitions": 4})).status == 201


class Server:
    """A server as docs/reference/fleets.md describes it: keys are `hash mod partitions`, of the latest answer."""

    def __init__(self, client: Client, name: str) -> None:
        self.client, self.name, self.incarnation, self.seq = client, name, str(uuid4()), 0
        self.held: dict[int, int] = {}
        self.generation = self.partitions = 0
        self.epochs: dict[int, list[int]] = {}

    async def beat(self) -> dict[str, Any]:
        self.seq += 1
        answer = await self.client.post(f"{AT}/nodes/{self.name}/beat", {"incarnation": self.incarnation, "seq": self.seq})
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        self.held = {int(number): epoch for number, epoch in found["held"].items()}
        self.generation, self.partitions = found["generation"], found["partitions"]
        return found

    async def claim(self, *partitions: int, generation: int | None = None) -> dict[str, Any]:
        body = {"node": self.name, "incarnation": self.incarnation, "partitions": list(partitions)}
        answer = await self.client.post(f"{AT}/leases/claim", body | {"generation": generation or self.generation})
        assert answer.status == 200, answer
        found: dict[str, Any] = answer.json()
        self.held |= {each["partition"]: each["epoch"] for each in found["claimed"]}
        return found

    async def release(self, partition: int) -> None:
        body = {"node": self.name, "incarnation": self.incarnation, "epoch": self.held.pop(partition)}
        assert (await self.client.post(f"{AT}/leases/{partition}/release", body)).status == 204

    async def obey(self) -> None:
        """Beat, and do what the answer says."""
        beat = await self.beat()
        for number in beat["release"]:
            await self.release(number)
        if beat["assign"]:
            await self.claim(*beat["assign"])

    def keys(self, count: int) -> set[int]:
        return {key for key in range(count) if self.partitions and key % self.partitions in self.held}


async def resize(world: World, partitions: int) -> tuple[int, Any]:
    answer = await world.demo.post(f"{AT}/leases/resize", {"partitions": partitions})
    return answer.status, answer.json().get("generation", answer.code)


async def scan(world: World) -> None:
    await world.app.watch.takeover.run_once(world.now)


async def test_servers_go_from_four_to_eight_to_three_and_no_key_has_two(world: World, fleet: None) -> None:
    keys = lcm(4, 8, 3)
    servers = [Server(world.demo, name) for name in "ab"]
    epochs = dict.fromkeys(range(keys), (0, ""))
    for generation, partitions in enumerate((4, 8, 3), 1):
        if generation > 1:
            assert await resize(world, partitions) == (202, generation)
        for _ in range(12):
            await scan(world)
            for server in servers:
                await server.obey()
                acting = [(key, each) for each in servers for key in each.keys(keys)]
                assert len({key for key, _ in acting}) == len(acting), "two act on one key"
                for key, each in acting:
                    now = (each.held[key % each.partitions], each.name)
                    assert now == epochs[key] or now[0] > epochs[key][0], "a key's epochs grow"
                    epochs[key] = now
        assert {key for each in servers for key in each.keys(keys)} == set(range(keys)), "each key is served again"
        assert [each.partitions for each in servers] == [partitions] * 2
    routes = (await world.demo.get(f"{AT}/routes")).json()
    assert (routes["generation"], routes["unowned"]) == (3, [])


async def test_the_fleet_shows_how_far_it_is(world: World, fleet: None) -> None:
    a = Server(world.demo, "a")
    await a.beat()
    await a.claim(0, 1)
    assert await resize(world, 8) == (202, 2)
    found = (await world.demo.get(AT)).json()
    assert (found["partitions"], found["generation"]) == (8, 2)
    assert found["resizing"] == {"from": 4, "closed": 2, "opened": 4}
    assert (await world.demo.get("/api/v1/fleets")).json()["items"][0] == found
    assert (await world.demo.get(f"{AT}/routes")).json()["owners"] == {}
    for number in (0, 1):
        await a.release(number)
    await scan(world)
    assert "resizing" not in (await world.demo.get(AT)).json()


async def test_a_server_keeps_what_it_has_until_it_hears_and_goes_over_when_nothing_is_left(world: World, fleet: None) -> None:
    a = Server(world.demo, "a")
    await a.beat()
    await a.claim(0, 1)
    assert await resize(world, 3) == (202, 2)
    beat = await a.beat()
    assert (beat["generation"], beat["partitions"], beat["assign"]) == (1, 4, [])
    assert (beat["release"], beat["held"]) == ([0, 1], {"0": 1, "1": 1})
    await a.release(1)
    assert (await a.beat())["generation"] == 1
    await a.release(0)
    # Late, or of a server that has not gone over: its numbers stand for other keys.
    assert (await a.claim(2, generation=2))["refused"] == [{"partition": 2, "reason": "resizing"}]
    await scan(world)
    beat = await a.beat()
    assert (beat["generation"], beat["partitions"]) == (2, 3)
    assert (await a.claim(1, generation=1))["refused"] == [{"partition": 1, "reason": "resizing"}]
    assert (await a.claim(0, 1))["claimed"] == [{"partition": 0, "epoch": 2}, {"partition": 1, "epoch": 2}]


async def test_a_claim_waits_until_all_that_it_shares_keys_with_are_given_up(world: World, fleet: None) -> None:
    a, b = Server(world.demo, "a"), Server(world.demo, "b")
    await a.beat()
    await b.beat()
    await a.claim(3)
    assert await resize(world, 6) == (202, 2)
    # Two counts with the divisor 2: whatever is even is free, what is odd waits for 3.
    await b.beat()
    found = await b.claim(0, 1, 2, 3, 5)
    assert [each["partition"] for each in found["claimed"]] == [0, 2]
    assert found["refused"] == [{"partition": number, "reason": "resizing"} for number in (1, 3, 5)]


async def test_the_same_count_again_changes_nothing_and_another_has_to_wait(world: World, fleet: None) -> None:
    assert await resize(world, 4) == (200, 1)
    a = Server(world.demo, "a")
    await a.beat()
    await a.claim(0)
    assert await resize(world, 8) == (202, 2)
    assert await resize(world, 8) == (202, 2)
    answer = await world.demo.post(f"{AT}/leases/resize", {"partitions": 3})
    assert (answer.status, answer.code) == (409, "resizing")
    assert "from 4 to 8 partitions" in answer.json()["detail"]
    await a.release(0)
    # What is done but for the last step does not hold the next one up.
    assert await resize(world, 3) == (202, 3)
    assert await resize(world, 3) == (200, 3)


async def test_keys_of_offline_partitions_are_not_brought_back_by_another_count(world: World, fleet: None) -> None:
    assert (await world.demo.post(f"{AT}/leases/2/offline", {"note": "broken data"})).status == 200
    answer = await world.demo.post(f"{AT}/leases/resize", {"partitions": 8})
    assert (answer.status, answer.code) == (409, "offline")
    assert answer.json()["detail"].endswith(": 2; bring them online first")
    assert (await world.demo.post(f"{AT}/leases/2/online", {"note": "mended"})).status == 200
    assert await resize(world, 8) == (202, 2)


async def test_a_resize_with_missing_rows_is_refused_with_their_numbers_and_advice(world: World, fleet: None) -> None:
    await world.tables.write(FLEETS, fleet_key("demo", "web"), [Delete(partition_key(1), ANY), Delete(partition_key(3), ANY)])
    answer = await world.demo.post(f"{AT}/leases/resize", {"partitions": 8})
    assert (answer.status, answer.code) == (409, "rows-missing")
    assert "missing: 1, 3" in answer.json()["detail"]
    assert await resize(world, 4) == (200, 1)
    assert (await world.demo.put(AT, {"partitions": 4})).status == 200
    assert await resize(world, 8) == (202, 2)


@pytest.mark.parametrize(
    ("body", "pointers"),
    [
        ({}, ["/partitions"]),
        ({"partitions": 0}, ["/partitions"]),
        ({"partitions": 10_001}, ["/partitions"]),
        ({"partitions": "8"}, ["/partitions"]),
        ({"partitions": 2.5}, ["/partitions"]),
        ({"partitions": 8, "note": "x"}, ["/note"]),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(world: World, fleet: None, body: dict[str, Any], pointers: list[str]) -> None:
    before = world.dump()
    answer = await world.demo.post(f"{AT}/leases/resize", body)
    assert (answer.status, answer.pointers) == (422, pointers), answer
    assert world.without_caches(world.dump()) == world.without_caches(before)


async def test_a_fleet_that_is_not_there_or_another_tenants_is_not_found(world: World, fleet: None) -> None:
    other = await world.tenant("acme", ["fleets"])
    for client, at in ((world.demo, "/api/v1/fleets/none"), (other, AT)):
        assert (await client.post(f"{at}/leases/resize", {"partitions": 8})).status == 404
    agent = await world.key("demo", ["agent"], fleet="web", node="a")
    assert (await agent.post(f"{AT}/leases/resize", {"partitions": 8})).code == "missing-scope"


async def test_a_definition_put_meanwhile_leaves_the_change_as_it_is(world: World, fleet: None) -> None:
    a = Server(world.demo, "a")
    await a.beat()
    await a.claim(0)
    assert await resize(world, 8) == (202, 2)
    answer = await world.demo.put(AT, {"partitions": 4})
    assert (answer.status, answer.pointers) == (422, ["/partitions"])
    assert (await world.demo.put(AT, {"partitions": 8, "limits": {"moves_per_minute": 5}})).status == 200
    assert (await world.demo.get(AT)).json()["resizing"] == {"from": 4, "closed": 3, "opened": 6}
