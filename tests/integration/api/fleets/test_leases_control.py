"""Operators' verbs, the plan, and what is wrong with a fleet, over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.leases.protocol import membership, takeover
from shared.leases.protocol.membership import BeatApplied, Registered, ServerReport
from shared.leases.rows import INDEX, Fleet, MoveLimits, fleet_key
from shared.leases.rules import ServerSession
from shared.storage.names import FLEETS
from shared.storage.ports import Insert
from tests.paths import ROOT
from tests.unit.scheduler.harness import Client, World

AT = "/api/v1/fleets/web"
HOUR = 3_600_000
VERBS = ("offline", "online", "bump", "prohibit", "permit", "pin", "unpin", "drain", "undrain")
NOTIFY = '{"notify": {"channel": "default", "kinds": ["stale", "dead"]}}'


@pytest.fixture
async def fleet(world: World) -> str:
    key = fleet_key("demo", "web")
    await world.tables.write(FLEETS, INDEX, [Insert(key, {"created": world.now, "ending": False})])
    assert await world.app.runner.run(takeover.create_fleet(key, Fleet(4, limits=MoveLimits(max_per_server=4), rest=NOTIFY)))
    return key


async def join(world: World, key: str, name: str) -> ServerSession:
    session = ServerSession(key, name, f"{name}1")
    assert await world.app.runner.run(membership.register(session, ServerReport(), None, (), 18.0)) == Registered()
    return session


async def say(client: Client, path: str, **body: Any) -> dict[str, Any]:
    answer = await client.post(f"{AT}/{path}", {"note": "an incident"} | body)
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()["intent"]
    return found


async def test_every_verb_and_its_undoing(world: World, fleet: str) -> None:
    await join(world, fleet, "a")
    common = {"note": "an incident", "author": "local-demo", "created": to_text(world.now), "expires": None}
    assert await say(world.demo, "leases/1/offline") == {"verb": "offline", "target": 1, **common}
    assert await say(world.demo, "leases/1/prohibit", server="a") == {"verb": "prohibit", "target": 1, "server": "a", **common}
    assert await say(world.demo, "leases/2/pin", server="a") == {"verb": "pin", "target": 2, "server": "a", **common}
    assert await say(world.demo, "nodes/a/drain", exit=True) == {"verb": "drain", "target": "a", "exit": True, **common}
    assert await say(world.demo, "nodes/b/prohibit") == {"verb": "prohibit", "target": "b", **common}
    listed = (await world.demo.get(f"{AT}/leases/intents")).json()
    assert [(item["verb"], item["target"]) for item in listed["items"]] == [
        ("drain", "a"),
        ("offline", 1),
        ("pin", 2),
        ("prohibit", 1),
        ("prohibit", "b"),
    ]
    for path, body in {
        "leases/1/online": {},
        "leases/1/permit": {"server": "a"},
        "leases/2/unpin": {},
        "nodes/a/undrain": {},
        "nodes/b/permit": {},
    }.items():
        undone = await say(world.demo, path, **body)
        assert undone["verb"] == path.rpartition("/")[2] and undone["author"] == "local-demo"
    assert (await world.demo.get(f"{AT}/leases/intents")).json() == {"items": [], "next": None}


async def test_expires_is_a_time_or_a_duration_from_now(world: World, fleet: str) -> None:
    later = to_text(world.now + HOUR)
    assert (await say(world.demo, "leases/0/offline", expires="PT1H"))["expires"] == later
    assert (await say(world.demo, "leases/1/offline", expires=later))["expires"] == later
    for wrong in ("PT0S", to_text(world.now), "tomorrow", 5, "P1M"):
        answer = await world.demo.post(f"{AT}/leases/2/offline", {"note": "x", "expires": wrong})
        assert (answer.status, answer.pointers) == (422, ["/expires"]), answer
    answer = await world.demo.post(f"{AT}/leases/2/offline", {"note": "x", "expires": "-PT5M"})
    assert "or a duration like PT1H" in answer.json()["detail"]


@pytest.mark.parametrize(
    ("path", "body", "pointers"),
    [
        ("leases/1/offline", {}, ["/note"]),
        ("leases/1/offline", {"note": ""}, ["/note"]),
        ("leases/1/offline", {"note": "a\nb"}, ["/note"]),
        ("leases/1/offline", {"note": "x" * 201}, ["/note"]),
        ("leases/1/offline", {"note": "x", "server": "a"}, ["/server"]),
        ("leases/1/online", {"note": "x", "expires": "PT1H"}, ["/expires"]),
        ("leases/1/prohibit", {"note": "x"}, ["/server"]),
        ("leases/1/prohibit", {"note": "x", "server": "a/b"}, ["/server"]),
        ("leases/1/permit", {"note": "x"}, ["/server"]),
        ("leases/1/pin", {"note": "x", "server": None}, ["/server"]),
        ("nodes/a/drain", {"note": "x", "exit": "yes"}, ["/exit"]),
        ("nodes/a/prohibit", {"note": "x", "exit": True}, ["/exit"]),
        ("leases/plan", {"dry_run": "no"}, ["/dry_run"]),
        ("leases/plan", {"moves": 1}, ["/moves"]),
    ],
)
async def test_bad_manual_controls_are_refused_and_change_nothing(
    world: World, fleet: str, path: str, body: dict[str, Any], pointers: list[str]
) -> None:
    before = world.dump()
    answer = await world.demo.post(f"{AT}/{path}", body)
    assert (answer.status, answer.pointers) == (422, pointers), answer
    assert world.without_caches(world.dump()) == world.without_caches(before)


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("leases/1/online", {}, 409, "not-offline"),
        ("leases/1/bump", {}, 409, "not-owned"),
        ("nodes/a/permit", {}, 409, "not-prohibited"),
        ("leases/4/offline", {}, 404, "not-found"),
        ("leases/-1/offline", {}, 404, "not-found"),
        ("leases/2147483647/offline", {}, 404, "not-found"),
        ("nodes/a/drain", {}, 404, "not-found"),
        ("nodes/-a/prohibit", {}, 404, "not-found"),
    ],
)
async def test_impossible_settings_are_reported_clearly(
    world: World, fleet: str, path: str, body: dict[str, Any], status: int, code: str
) -> None:
    answer = await world.demo.post(f"{AT}/{path}", {"note": "x"} | body)
    assert (answer.status, answer.code) == (status, code), answer
    if path == "leases/4/offline":
        assert "0 to 3" in answer.json()["detail"]


async def test_fleets_of_others_and_keys_without_the_scope_are_refused(world: World, fleet: str) -> None:
    other = await world.tenant("acme", ["fleets"])
    assert (await other.post(f"{AT}/leases/1/offline", {"note": "x"})).status == 404
    assert (await other.get(f"{AT}/leases/stale")).status == 404
    events = await world.key("demo", ["events"])
    agent = await world.key("demo", ["agent"], fleet="web", node="a")
    for client in (events, agent):
        assert (await client.post(f"{AT}/leases/1/offline", {"note": "x"})).code == "missing-scope"
        assert (await client.get(f"{AT}/leases/intents")).code == "missing-scope"
    assert (await world.admin.post(f"{AT}/leases/1/offline?tenant=demo", {"note": "x"})).json()["intent"]["author"] == "bootstrap"


async def test_the_plan_shows_what_would_move_and_does_it_when_asked(world: World, fleet: str) -> None:
    await join(world, fleet, "a")
    answer = (await world.demo.post(f"{AT}/leases/plan", {})).json()
    assert answer["applied"] is False
    assert answer["moves"][0] == {"partition": 0, "from": None, "to": "a", "reason": "unowned"} and len(answer["moves"]) == 4
    answer = (await world.demo.post(f"{AT}/leases/plan", {"dry_run": False})).json()
    assert answer["applied"] is True and answer["unplaced"] == []
    row = await world.tables.get(FLEETS, fleet, "s:a")
    assert row is not None and row.props["take"] == "0,1,2,3"
    await say(world.demo, "nodes/a/prohibit")
    answer = (await world.demo.post(f"{AT}/leases/plan", {"dry_run": True})).json()
    assert answer["unplaced"][0] == {"partition": 0, "reason": "no server"}


async def test_stale_shows_what_is_wrong_page_by_page_and_alarms_reach_the_channel(world: World, fleet: str) -> None:
    nothing = (await world.demo.get(f"{AT}/leases/stale")).json()
    assert nothing == {
        "items": [],
        "next": None,
        "servers": {"live": 0, "needed": 1, "used": False, "silent": [], "late": []},
        "forgotten": [],
        "alarms": [],
    }
    await join(world, fleet, "s7")
    await say(world.demo, "leases/3/offline")
    for _ in range(3):
        await world.clock.advance(60)
        await world.do(world.app.timers.run_once("lease_scan"))
        await world.do(world.app.timers.run_once("stale_scan"))
    await world.run(20)
    stale = (await world.demo.get(f"{AT}/leases/stale?limit=2")).json()
    assert stale["items"][0] == {"partition": 0, "reason": "unowned", "owner": None, "age_ms": 200_000} and len(stale["items"]) == 2
    rest = (await world.demo.get(f"{AT}/leases/stale?limit=2&cursor={stale['next']}")).json()
    assert [item["partition"] for item in rest["items"]] == [2] and rest["next"] is None
    assert [(alarm["alarm"], alarm["count"]) for alarm in stale["alarms"]] == [("unserved", 3), ("servers", 1)]
    alarms = {(got.payload["alarm"], got.payload["kind"], got.payload["state"]) for got in world.receiver.received}
    assert alarms == {("unserved", "stale", "raised"), ("servers", "dead", "raised")} and len(world.receiver.received) == 2
    text = (await world.do(world.app.metrics.text())).decode()
    assert 'tocsin_lease_partitions_stale{fleet="web",tenant="demo"} 3.0' in text
    assert 'tocsin_lease_alarm{alarm="servers",fleet="web",tenant="demo"} 1.0' in text
    assert 'tocsin_lease_servers_needed{fleet="web",tenant="demo"} 1.0' in text


async def test_a_fleet_without_servers_that_never_had_one_raises_no_alarm(world: World, fleet: str) -> None:
    """It may be there for turns or maintenance alone."""
    for _ in range(4):
        await world.clock.advance(60)
        await world.do(world.app.timers.run_once("lease_scan"))
        await world.do(world.app.timers.run_once("stale_scan"))
    stale = (await world.demo.get(f"{AT}/leases/stale")).json()
    assert stale["alarms"] == [] and len(stale["items"]) == 4


async def test_the_calls_in_the_documentation_do_what_they_say(world: World, fleet: str) -> None:
    session = await join(world, fleet, "s7")
    for name in ("s8", "s1", "s2", "spare"):
        await join(world, fleet, name)
    claims = await world.app.runner.run(takeover.scout(session, [3]))
    assert await world.app.runner.run(membership.beat(session, ServerReport(), "live", claims)) == BeatApplied(tuple(claims))
    text = (ROOT / "docs/how-to/control-partitions.md").read_text()
    calls = re.findall(r"`say (\S+) '(\{.*?\})'`", text)
    assert len(calls) >= 15
    for path, body in calls:
        answer = await world.demo.post(f"{AT}/{path.replace('leases/5/', 'leases/3/')}", json.loads(body))
        assert answer.status == 200, (path, answer)
    assert {verb for path, _ in calls for verb in [path.rpartition("/")[2]]} >= set(VERBS) | {"plan"}


async def test_a_drain_to_a_server_lists_what_it_ends_and_refuses_what_cannot_be_a_destination(world: World, fleet: str) -> None:
    for name in ("a", "b"):
        await join(world, fleet, name)
    await say(world.demo, "nodes/b/drain")
    answer = (await world.demo.post(f"{AT}/nodes/a/drain", {"note": "x", "to": "b"})).json()
    assert (answer["intent"]["to"], [each["target"] for each in answer["ended"]]) == ("b", ["b"])
    assert [each["to"] for each in (await world.demo.get(f"{AT}/leases/intents")).json()["items"]] == ["b"]
    itself = await world.demo.post(f"{AT}/nodes/a/drain", {"note": "x", "to": "a"})
    assert (itself.status, itself.json()["errors"][0]["pointer"]) == (422, "/to")
    unknown = await world.demo.post(f"{AT}/nodes/a/drain", {"note": "x", "to": "c"})
    assert (unknown.status, unknown.json()["type"].rpartition("/")[2]) == (409, "no-destination")
    await say(world.demo, "nodes/b/prohibit")
    refused = await world.demo.post(f"{AT}/nodes/a/drain", {"note": "again", "to": "b"})
    assert (refused.status, refused.json()["type"].rpartition("/")[2]) == (409, "prohibited")


async def test_a_cursor_of_another_list_is_refused(world: World, fleet: str) -> None:
    assert (await world.demo.get(f"{AT}/leases/stale?cursor=abc")).pointers == ["?cursor"]


class Remote:
    """A server that speaks HTTP, and does what the answers to its beats say."""

    def __init__(self, world: World, name: str, incarnation: str) -> None:
        self.client, self.name, self.incarnation, self.seq = world.demo, name, incarnation, 0
        self.answer: dict[str, Any] = {}

    @property
    def has(self) -> set[int]:
        return set(map(int, self.answer["held"]))

    async def beat(self) -> None:
        self.seq += 1
        alarms = await self.client.post(f"{AT}/nodes/{self.name}/beat", {"incarnation": self.incarnation, "seq": self.seq})
        assert alarms.status == 200, alarms
        self.answer = alarms.json()
        who = {"node": self.name, "incarnation": self.incarnation}
        for number in self.answer["release"]:
            epoch = self.answer["held"].pop(str(number))
            assert (await self.client.post(f"{AT}/leases/{number}/release", {**who, "epoch": epoch})).status == 204
        if self.answer["assign"]:
            claimed = await self.client.post(f"{AT}/leases/claim", {**who, "partitions": self.answer["assign"]})
            self.answer["held"] |= {str(each["partition"]): each["epoch"] for each in claimed.json()["claimed"]}


async def until(world: World, what: Callable[[], bool], *nodes: Remote) -> float:
    """Have them beat every five seconds until it is so; the seconds it took, by the clock."""
    began = world.clock.monotonic()
    for _ in range(20):
        for node in nodes:
            await node.beat()
        if what():
            return world.clock.monotonic() - began
        await world.clock.advance(5)
    raise AssertionError("it never was")


async def test_servers_that_speak_http_share_obey_operators_and_fail_over_within_t_and_5_s_and_two_beats(world: World) -> None:
    fleet = {"partitions": 4, "limits": {"max_per_server": 4}}
    assert (await world.demo.put(AT, fleet)).status == 201
    a, b = Remote(world, "a", "0b2f7a52-3c1d-4a5e-9f60-7d8e9fa0b1c2"), Remote(world, "b", "1b2f7a52-3c1d-4a5e-9f60-7d8e9fa0b1c2")
    await until(world, lambda: (len(a.has), len(b.has)) == (2, 2), a, b)
    await say(world.demo, "nodes/a/drain", exit=True)
    await a.beat()
    assert (a.answer["state"], a.answer["exit"], a.has) == ("draining", True, set())
    await b.beat()
    assert b.has == {0, 1, 2, 3}
    await say(world.demo, "nodes/a/undrain")
    await until(world, lambda: (len(a.has), len(b.has)) == (2, 2) and a.answer["state"] == "live", b, a)
    assert await until(world, lambda: b.has == {0, 1, 2, 3}, b) <= 18 + 5 + 2 * 5
