"""Servers that speak HTTP: beats, claims, releases, take-over, and what there is to see of them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from shared.core.clock import to_text
from shared.leases.model import BeatIn
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import BeatApplied, Registered, ServerReport
from shared.leases.rows import server_key
from shared.leases.rules import ServerSession
from shared.storage.names import FLEETS
from shared.storage.ports import ANY, Merge
from tests.texts import assert_text
from tests.unit.scheduler.harness import World

from .nodes import GRACE, KEY, WEB, Node, T, quiet, uuid


@pytest.fixture
async def fleet(world: World) -> World:
    assert (await world.demo.put(WEB, {"partitions": 6, "limits": {"max_per_server": 6}})).status == 201
    return world


@pytest.fixture
async def a(fleet: World) -> Node:
    node = Node(fleet.demo, "a")
    await node.beats()
    await quiet(fleet)
    return node


async def test_a_heartbeat_is_answered_with_orders_and_owned_partitions(a: Node) -> None:
    assert await a.claims(4, 2) == ({4: 1, 2: 1}, {})
    body = await a.beats(fault_domain="rack-3", capacity=4, load=0.5)
    assert body == {
        "seq": 2,
        "validity_ms": 15000,
        "beat_ms": 5000,
        "state": "live",
        "held": {"2": 1, "4": 1},
        "assign": body["assign"],
        "release": [],
        "generation": 1,
        "partitions": 6,
    }
    [node] = await a.client.all(f"{WEB}/nodes")
    assert node["partitions"] == {"2": 1, "4": 1}
    assert node["loads"] == {}
    fields = ("fault_domain", "capacity", "load")
    assert [node["beat"][name] for name in fields] == ["rack-3", 4, 0.5]
    await a.beats()
    node = (await a.client.get(f"{WEB}/nodes/a")).json()
    assert [node["beat"][name] for name in fields] == ["rack-3", 4, 0.5], "what is left out stays"


async def test_a_server_that_speaks_http_publishes_loads_of_its_partitions(a: Node) -> None:
    await a.claims(4, 2)
    await a.beats(loads={"4": 12.5, "2": 0, "5": 900})
    await a.beats()
    [node] = await a.client.all(f"{WEB}/nodes")
    assert node["loads"] == {"2": 0.0, "4": 12.5}
    loads = {lease["partition"]: lease["load"] for lease in await a.client.all(f"{WEB}/leases")}
    assert loads == {0: None, 1: None, 2: 0.0, 3: None, 4: 12.5, 5: None}, "that of a partition without an owner is unknown"
    [server] = await a.client.all(f"{WEB}/leases?by=server")
    assert (server["partitions"], server["load"]) == ([2, 4], 12.5)
    for bad in ({"x": 1}, {"10000": 1}, {"4": -1}, {"4": None}, {"4": 1e16}, dict.fromkeys(map(str, range(1001)), 1)):
        assert (await a.beat(9, loads=bad)).status == 422


async def test_a_beat_costs_one_read_and_one_write(fleet: World, a: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    await a.beats()
    await quiet(fleet)
    calls: list[str] = []
    for verb in ("get", "query", "write"):
        plain = getattr(fleet.tables, verb)

        def counted(*given: Any, _plain: Any = plain, _verb: str = verb, **named: Any) -> Any:
            calls.append(_verb)
            return _plain(*given, **named)

        monkeypatch.setattr(fleet.tables, verb, counted)
    await fleet.demo.get("/api/v1/fleets/none")  # the key and its tenant are in memory from here on
    calls.clear()
    for _ in range(3):
        await a.beats()
    assert calls == ["get", "write"] * 3
    calls.clear()
    await a.beat(a.seq)
    assert calls == ["get"], "the same beat again is answered from the row"


async def test_a_beat_again_is_answered_alike_and_writes_nothing(fleet: World, a: Node) -> None:
    await a.claims(0)
    first = await a.beat(7)
    await quiet(fleet)
    before = fleet.dump()
    again = await a.beat(7)
    assert (again.status, again.json()) == (200, first.json())
    assert fleet.dump() == before


async def test_an_older_beat_renews_nothing(fleet: World, a: Node) -> None:
    await a.beat(7)
    await quiet(fleet)
    before = fleet.dump()
    for seq in (1, 6):
        answer = await a.beat(seq)
        assert (answer.status, answer.code) == (409, "stale-seq")
    assert fleet.dump() == before


async def test_a_namesake_waits_until_the_name_is_free(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "a", 2)
    refused = await b.beat(1)
    assert (refused.code, refused.headers["retry-after"]) == ("name-in-use", "23")
    await fleet.clock.advance(20)
    assert (await b.beat(1)).headers["retry-after"] == "3"
    await a.beats()
    await fleet.clock.advance(4)
    assert (await b.beat(1)).code == "name-in-use", "a beat in between counts"
    await a.claims(3)
    await fleet.clock.advance(T + GRACE)
    assert (await b.beat(1)).status == 200
    assert (await a.beat()).code == "fenced"
    assert (await b.claims(3))[0] == {3: 2}


async def test_an_incarnation_that_is_over_is_fenced_for_all_it_asks(fleet: World, a: Node) -> None:
    await a.claims(0)
    await fleet.tables.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)])
    for answer in (await a.beat(), await a.beat(1), await a.claim(1), await a.claim(0), await a.release(0, 1)):
        assert (answer.status, answer.code) == (409, "fenced")
    again = Node(fleet.demo, "a", 2)
    assert (await again.beats())["held"] == {}
    assert (await again.claims(0))[0] == {0: 2}, "its predecessor's partition, under the next epoch"
    for answer in (await a.beat(), await a.beat(1), await a.claim(1)):
        assert answer.code in ("fenced", "name-in-use")


async def test_an_unregistered_server_is_fenced_and_an_unknown_fleet_is_404(fleet: World) -> None:
    stranger = Node(fleet.demo, "stranger")
    assert (await stranger.beat(2)).code == "fenced"
    assert (await stranger.claim(0)).code == "fenced"
    assert (await stranger.release(0, 1)).code == "fenced"
    assert (await fleet.demo.delete(WEB)).status == 204
    for answer in (await stranger.beat(1), await stranger.beat(2), await stranger.claim(0), await stranger.release(0, 1)):
        assert answer.code == "not-found"


async def test_a_claim_again_is_answered_alike(fleet: World, a: Node) -> None:
    assert await a.claims(1, 2) == ({1: 1, 2: 1}, {})
    before = fleet.dump()
    assert await a.claims(2, 1) == ({1: 1, 2: 1}, {})
    assert fleet.dump() == before


async def test_each_refusal_says_why(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats()
    await b.claims(0)
    say = fleet.demo.post
    assert (await say(f"{WEB}/leases/1/offline", {"note": "x"})).status == 200
    assert (await say(f"{WEB}/leases/2/prohibit", {"note": "x", "server": "a"})).status == 200
    assert (await say(f"{WEB}/leases/3/pin", {"note": "x", "server": "b"})).status == 200
    claimed, refused = await a.claims(0, 1, 2, 3, 4)
    assert (claimed, refused) == ({4: 1}, {0: "owned", 1: "offline", 2: "prohibited", 3: "prohibited"})
    assert (await b.claims(3))[0] == {3: 1}
    await a.beats(capacity=1)
    assert (await a.claims(5))[1] == {5: "limit"}
    assert (await say(f"{WEB}/nodes/a/drain", {"note": "x"})).status == 200
    await a.beats(capacity=0)
    assert (await a.claims(5))[1] == {5: "prohibited"}


async def test_a_server_has_as_many_as_the_fleet_allows(world: World) -> None:
    await world.demo.put(WEB, {"partitions": 6, "servers": {"minimum": 3}})
    node = Node(world.demo, "a")
    await node.beats()
    assert await node.claims(0, 1, 2) == ({0: 1, 1: 1}, {2: "limit"})


async def test_a_released_partition_is_free_at_once_and_a_second_release_changes_nothing(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats()
    await a.claims(3)
    assert (await a.release(3, 2)).code == "stale-epoch"
    assert (await b.release(3, 1)).code == "stale-epoch"
    assert (await a.release(3, 1)).status == 204
    assert (await a.beats())["held"] == {}
    assert (await fleet.demo.get(f"{WEB}/leases/3")).json()["state"] == "released"
    before = fleet.dump()
    assert (await a.release(3, 1)).status == 204
    assert fleet.dump() == before
    assert (await b.claims(3))[0] == {3: 2}
    assert (await a.release(3, 1)).code == "stale-epoch"


async def test_partitions_out_of_range_are_reported(fleet: World, a: Node) -> None:
    answer = await a.claim(0, 6)
    assert (answer.status, answer.pointers) == (422, ["/partitions/1"]) and "0 to 5" in answer.json()["detail"]
    for answer in (await fleet.demo.get(f"{WEB}/leases/6"), await a.release(6, 1), await a.release(123456789, 1)):
        assert answer.status == 404 and "0 to 5" in answer.json()["detail"]
    for answer in (await fleet.demo.get(f"{WEB}/leases/-1"), await a.release(-1, 1)):
        assert answer.code == "not-found"


BEAT = {"incarnation": uuid(1), "seq": 2}
CLAIM = {"node": "a", "incarnation": uuid(1), "partitions": [0]}
RELEASE = {"node": "a", "incarnation": uuid(1), "epoch": 1}
BAD: list[tuple[str, dict[str, Any], str]] = [
    ("nodes/a/beat", {**BEAT, "seq": 0}, "/seq"),
    ("nodes/a/beat", {**BEAT, "seq": 2**53}, "/seq"),
    ("nodes/a/beat", {**BEAT, "seq": 1.5}, "/seq"),
    ("nodes/a/beat", {**BEAT, "incarnation": "me"}, "/incarnation"),
    ("nodes/a/beat", {"seq": 2}, "/incarnation"),
    ("nodes/a/beat", {**BEAT, "load": -1}, "/load"),
    ("nodes/a/beat", {**BEAT, "capacity": -1}, "/capacity"),
    ("nodes/a/beat", {**BEAT, "fault_domain": "x" * 65}, "/fault_domain"),
    ("nodes/a/beat", {**BEAT, "held": {}}, "/held"),
    ("leases/claim", {**CLAIM, "partitions": []}, "/partitions"),
    ("leases/claim", {**CLAIM, "partitions": [1, 1]}, ""),
    ("leases/claim", {**CLAIM, "partitions": list(range(100))}, "/partitions"),
    ("leases/claim", {**CLAIM, "partitions": [-1]}, "/partitions/0"),
    ("leases/claim", {**CLAIM, "partitions": ["1"]}, "/partitions/0"),
    ("leases/claim", {**CLAIM, "node": "a/b"}, "/node"),
    ("leases/0/release", {**RELEASE, "epoch": -1}, "/epoch"),
    ("leases/0/release", {**RELEASE, "epoch": "1"}, "/epoch"),
    ("leases/0/release", {**RELEASE, "epoch": 2**63}, "/epoch"),
]


@pytest.mark.parametrize(("path", "body", "pointer"), BAD, ids=[str(number) for number in range(len(BAD))])
async def test_bad_content_is_reported_with_its_place_and_changes_nothing(a: Node, path: str, body: dict[str, Any], pointer: str) -> None:
    await quiet(a.client.world)
    before = a.client.world.dump()
    answer = await a.client.post(f"{WEB}/{path}", body)
    assert (answer.status, answer.pointers) == (422, [pointer]), answer
    assert a.client.world.dump() == before


async def test_an_agents_key_speaks_for_its_node_only(fleet: World) -> None:
    key = await fleet.key("demo", ["agent"], fleet="web", node="a")
    node = Node(key, "a")
    assert (await node.beats())["seq"] == 1
    assert await node.claims(0) == ({0: 1}, {})
    assert (await node.release(0, 1)).status == 204
    other = Node(key, "b")
    for answer in (await other.beat(1), await other.claim(1), await other.release(1, 1)):
        assert (answer.status, answer.code) == (403, "not-your-node")
    await fleet.demo.put("/api/v1/fleets/db", {"partitions": 1})
    answer = await key.post("/api/v1/fleets/db/nodes/a/beat", {"incarnation": uuid(1), "seq": 1})
    assert (answer.status, answer.code) == (403, "not-your-node")
    events = await fleet.key("demo", ["events"])
    assert (await Node(events, "a").beat(1)).code == "missing-scope"


async def test_another_tenants_fleet_is_not_there(fleet: World) -> None:
    acme = await fleet.tenant("acme", ["fleets"])
    assert (await Node(acme, "a").beat(1)).code == "not-found"
    for path in ("leases", "leases/0", "routes", "nodes", "nodes/a"):
        assert (await acme.get(f"{WEB}/{path}")).code == "not-found"


async def test_two_instances_of_the_app_give_a_partition_to_one(fleet: World) -> None:
    nodes = [Node(fleet.demo, name, number) for number, name in enumerate("abcd", 1)]
    for node in nodes:
        await node.beats()
    everything = list(range(6))
    app = fleet.app
    done = await asyncio.gather(*(app.beats.claim("demo", "web", node.name, node.incarnation, everything) for node in nodes))
    claimed = [each["partition"] for one in done for each in one["claimed"]]
    assert sorted(claimed) == everything
    for node, one in zip(nodes, done, strict=True):
        assert (await node.beats())["held"] == {str(each["partition"]): each["epoch"] for each in one["claimed"]}


async def test_a_beat_and_a_claim_at_once_both_count(fleet: World, a: Node) -> None:
    app = fleet.app
    fields = BeatIn(incarnation=UUID(a.incarnation), seq=2)
    beaten, claimed = await asyncio.gather(
        app.beats.beat("demo", "web", "a", fields), app.beats.claim("demo", "web", "a", a.incarnation, [0, 1])
    )
    assert beaten["seq"] == 2 and len(claimed["claimed"]) == 2
    assert (await a.beats())["held"] == {"0": 1, "1": 1}


async def test_a_silent_server_is_replaced_where_all_others_are_http_servers(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats()
    await a.claims(0, 1, 2)
    since = 0.0
    while since <= T + GRACE + 5:
        await fleet.clock.advance(5)
        since += 5
        body = await b.beats()
        await quiet(fleet)
        if since < T + GRACE:
            assert set(body["assign"]).isdisjoint({0, 1, 2})
            assert (await b.claims(0))[1] == {0: "owned"}
    body = await b.beats()
    assert {0, 1, 2} <= set(body["assign"])
    assert (await b.claims(0, 1, 2))[0] == {0: 2, 1: 2, 2: 2}
    assert (await a.beat()).code == "fenced"
    assert (await fleet.demo.get(f"{WEB}/nodes/a")).json()["beat"]["state"] == "dead"


async def test_a_drained_server_learns_of_it_gives_back_and_leaves(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats()
    await a.claims(0)
    await fleet.demo.post(f"{WEB}/nodes/a/drain", {"note": "x", "exit": True})
    body = await a.beats()
    assert (body["state"], body["exit"], body["release"]) == ("draining", True, [0])
    assert (await a.release(0, 1)).status == 204
    assert (await a.beats())["release"] == []


async def test_a_server_of_the_library_and_one_that_speaks_http_share_a_fleet(fleet: World, a: Node) -> None:
    session = ServerSession(KEY, "k", "k1")
    drive = fleet.app.runner.run
    assert await drive(membership.register(session, ServerReport(), None, (), T)) == Registered()
    await a.claims(0, 1)
    claims = await drive(takeover.scout(session, range(6)))
    assert [claim.partition for claim in claims] == [2, 3, 4, 5]
    assert isinstance(await drive(membership.beat(session, ServerReport(), "live", claims[:2])), BeatApplied)
    assert (await a.claims(2, 4)) == ({4: 1}, {2: "owned"})
    by_server = await fleet.demo.all(f"{WEB}/leases?by=server")
    assert {each["server"]: each["partitions"] for each in by_server} == {"a": [0, 1, 4], "k": [2, 3]}
    nodes = {each["node"]: each["beat"]["scans"] for each in await fleet.demo.all(f"{WEB}/nodes")}
    assert nodes == {"a": False, "k": True}


async def test_more_servers_than_a_fleet_takes_are_refused_until_an_operator_raises_the_limit(fleet: World, a: Node) -> None:
    assert (await fleet.admin.put("/api/v1/tenants/demo", {"limits": {"servers": 1}})).status == 200
    refused = await Node(fleet.demo, "b", 2).beat()
    assert (refused.status, refused.code) == (409, "too-many-servers")
    assert_text("problem.too-many-servers", refused.json()["detail"])
    await a.beats()
    assert (await fleet.admin.put("/api/v1/tenants/demo", {"limits": {"servers": 2}})).status == 200
    await Node(fleet.demo, "b", 3).beats()


async def test_manual_controls_are_shown_with_their_subjects(fleet: World, a: Node) -> None:
    for path, more in (("leases/1/offline", {}), ("leases/2/prohibit", {"server": "a"}), ("nodes/a/prohibit", {})):
        assert (await fleet.demo.post(f"{WEB}/{path}", {"note": "why", **more})).status == 200
    leases = {each["partition"]: [word["verb"] for word in each["intents"]] for each in await fleet.demo.all(f"{WEB}/leases")}
    assert {number: words for number, words in leases.items() if words} == {1: ["offline"], 2: ["prohibit"]}
    (node,) = await fleet.demo.all(f"{WEB}/nodes")
    assert [(word["verb"], word["target"]) for word in node["intents"]] == [("prohibit", "a")]


async def test_leases_are_seen_by_partition_and_page(fleet: World, a: Node) -> None:
    await a.claims(0, 1, 2)
    await a.release(1, 1)
    await fleet.demo.post(f"{WEB}/leases/4/offline", {"note": "crashes", "expires": "PT1H"})
    await fleet.clock.advance(2)
    pages = await fleet.demo.pages(f"{WEB}/leases?limit=4")
    assert [[lease["partition"] for lease in page] for page in pages] == [[0, 1, 2, 3], [4, 5]]
    leases = [lease for page in pages for lease in page]
    assert [lease["state"] for lease in leases] == ["owned", "released", "owned", "unowned", "offline", "unowned"]
    first = leases[0]
    assert (first["owner"], first["epoch"], first["intents"]) == ("a", 1, [])
    assert first["since"] == to_text(fleet.now - 2000) and first["beat_age_ms"] <= 2000
    assert [intent["verb"] for intent in leases[4]["intents"]] == ["offline"]
    for lease in leases:
        assert (await fleet.demo.get(f"{WEB}/leases/{lease['partition']}")).json() == lease


async def test_a_dead_servers_partitions_are_unowned(fleet: World, a: Node) -> None:
    await a.claims(0)
    await fleet.tables.write(FLEETS, KEY, [Merge(server_key("a"), {"state": "dead"}, ANY)])
    lease = (await fleet.demo.get(f"{WEB}/leases/0")).json()
    assert (lease["state"], lease["owner"], lease["epoch"]) == ("unowned", None, 1)
    assert (await fleet.demo.get(f"{WEB}/routes")).json()["unowned"] == list(range(6))


async def test_routes_are_polled_cheaply(fleet: World, a: Node) -> None:
    await a.claims(0, 3)
    found = await fleet.demo.get(f"{WEB}/routes")
    assert found.json() == {"generation": 1, "owners": {"a": [0, 3]}, "unowned": [1, 2, 4, 5], "taking": None}
    assert found.headers["cache-control"] == "private, max-age=1"
    tag = found.headers["etag"]
    await fleet.clock.advance(2)
    same = await fleet.demo.get(f"{WEB}/routes", {"if-none-match": tag})
    assert (same.status, same.body, same.headers["etag"]) == (304, b"", tag)
    await a.claims(1)
    await fleet.clock.advance(2)
    other = await fleet.demo.get(f"{WEB}/routes", {"if-none-match": tag})
    assert (other.status, other.json()["owners"]) == (200, {"a": [0, 1, 3]})


async def test_the_profile_a_server_registered_under_stays_its_own(fleet: World, a: Node) -> None:
    # As if the fleet had been closed and changed between the server's row and its first answer.
    await fleet.tables.write(FLEETS, KEY, [Merge("fleet", {"beat": 2.0, "validity": 6.0, "takeover": 7.2}, ANY)])
    assert (await a.beat(1)).code == "fenced"
    assert (await a.beat(2)).code == "fenced"
    b = Node(fleet.demo, "a", 2)
    assert (await b.beats())["validity_ms"] == 6000


async def test_servers_that_keep_their_partitions_are_restarted_one_by_one_without_a_move(fleet: World, a: Node) -> None:
    b = Node(fleet.demo, "b", 2)
    await b.beats()
    await a.claims(0, 1, 2)
    await b.claims(3, 4, 5)
    for node, other, kept in ((a, b, {0, 1, 2}), (b, a, {3, 4, 5})):
        body = await node.beats(keep=True)
        assert (body["kept"], set(map(int, body["held"])), body["assign"], body["release"]) == (True, kept, [], [])
        again = await node.beat(node.seq, keep=True)
        assert (again.status, again.json()) == (200, body)
        assert (await node.claim(0)).code == (await node.release(min(kept), 1)).code == (await node.beat()).code == "fenced"
        # The restart takes most of V. The other server goes on, and the app looks at the fleet.
        for _ in range(2):
            await fleet.clock.advance(5)
            assert (await other.beats())["assign"] == []
            await quiet(fleet)
        assert (await other.claims(*kept)) == ({}, dict.fromkeys(kept, "owned"))
        node.incarnation, node.seq = uuid(10 + node.seq), 0
        body = await node.beats()
        assert (set(body["assign"]), "kept" in body) == (kept, False)
        await quiet(fleet)
        assert (await node.claims(*body["assign"])) == (dict.fromkeys(kept, 2), {})
    listed = await fleet.demo.all(f"{WEB}/leases?by=server")
    assert [(each["server"], each["partitions"]) for each in listed] == [("a", [0, 1, 2]), ("b", [3, 4, 5])]


async def test_a_first_beat_has_nothing_to_keep(fleet: World) -> None:
    answer = await Node(fleet.demo, "a").beat(keep=True)
    assert answer.status == 422 and "keep" in str(answer.json())
