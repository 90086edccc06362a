"""Bad input about turns: each has its status and its words, and changes nothing."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.scheduler.harness import Client, World

from ..calls import changes_nothing
from ..test_bad_input import refused
from .replicas import DB, Replica, turns


@pytest.fixture
async def b(world: World) -> Replica:
    """A replica that takes turn 1."""
    assert (await world.demo.put(DB, {"partitions": 1})).status == 201
    replica = Replica(world.demo, "b")
    assert await replica.takes() == 1
    return replica


GOOD = {"seq": 1, "role": "secondary", "term": 7, "applied": 5, "last_checkpoint": 0, "taking": None, "mono_ms": 5}
WRONG_REPORTS: list[tuple[str, dict[str, Any], str]] = [
    ("a seq of 0", {"seq": 0}, "/seq"),
    ("a negative term", {"term": -1}, "/term"),
    ("a role of its own", {"role": "leader"}, "/role"),
    ("a negative sequence", {"last_checkpoint": -1}, "/last_checkpoint"),
    ("a negative applied", {"applied": -1}, "/applied"),
    ("a negative lag", {"lag": -1}, "/lag"),
    ("a negative load", {"load": -0.1}, "/load"),
    ("a clock of words", {"mono_ms": "soon"}, "/mono_ms"),
    ("a turn 0", {"taking": {"epoch": 0}}, "/taking/epoch"),
    ("a turn that is a number", {"taking": 4}, "/taking"),
    ("something unknown", {"leader": True}, "/leader"),
    ("more than a number holds", {"applied": 2**60}, "/applied"),
]


@pytest.mark.parametrize(("change", "pointer"), [each[1:] for each in WRONG_REPORTS], ids=[each[0] for each in WRONG_REPORTS])
async def test_a_report_with(b: Replica, change: dict[str, Any], pointer: str) -> None:
    code, pointers = await refused(b.client, "POST", f"{DB}/replicas/c/report", GOOD | change)
    assert (code, pointers) == ("invalid-content", [pointer])


@pytest.mark.parametrize("name", ["seq", "role", "term", "applied", "last_checkpoint", "taking", "mono_ms"])
async def test_a_report_says_all_that_safety_rests_on(b: Replica, name: str) -> None:
    body = {key: value for key, value in GOOD.items() if key != name}
    assert (await refused(b.client, "POST", f"{DB}/replicas/c/report", body))[1] == [f"/{name}"]


async def conflicts(client: Client, url: str, body: Any) -> str:
    answer = await changes_nothing(client, "POST", url, body)
    assert answer.status == 409, answer
    return str(answer.code)


async def test_a_report_of_an_unknown_replica(b: Replica) -> None:
    assert await conflicts(b.client, f"{DB}/replicas/c/report", GOOD | {"seq": 2}) == "unknown-replica"


async def test_a_report_that_comes_after_a_later_one(b: Replica) -> None:
    await b.reports()
    assert await conflicts(b.client, f"{DB}/replicas/b/report", b.body(seq=2)) == "stale-seq"
    d = Replica(b.client, "d", incarnation="named")
    await d.reports()
    await d.reports()
    assert await conflicts(b.client, f"{DB}/replicas/d/report", d.body(seq=1)) == "stale-seq", "its own registration, late"


async def test_a_report_of_a_run_of_the_replica_that_is_over(b: Replica) -> None:
    former = Replica(b.client, "d", incarnation="former")
    await former.reports()
    new = Replica(b.client, "d", incarnation="new", born=900)
    await new.reports()
    url = f"{DB}/replicas/d/report"
    assert await conflicts(b.client, url, former.body(seq=7)) == "unknown-replica"
    assert await conflicts(b.client, url, new.body(seq=7, mono_ms=899)) == "unknown-replica", "its clock would have gone back"


async def test_two_primaries_of_one_term_and_a_stale_term(b: Replica) -> None:
    await Replica(b.client, "a", "primary").reports()
    for term, code in ((7, "term-conflict"), (6, "stale-term")):
        assert await conflicts(b.client, f"{DB}/replicas/c/report", GOOD | {"role": "primary", "term": term}) == code
        b.role, b.term = "primary", term
        assert await conflicts(b.client, f"{DB}/replicas/b/report", b.body(seq=3)) == code


async def test_a_publish_with_an_old_epoch_or_by_another_node_or_of_no_turn(b: Replica) -> None:
    await b.done(1, 100)
    assert await b.takes() == 2
    publish: dict[str, Any] = {"node": "b", "sequence": 200, "location": "x", "bytes": 1}
    answer = await b.publish(1, 200)
    assert (answer.status, answer.code) == (409, "late")
    latest = (await b.client.get(f"{DB}/checkpoints/latest")).json()
    assert latest["sequence"] == 100, "only its mark changed"
    assert await conflicts(b.client, f"{DB}/turns/1/publish", publish) == "late"
    assert await conflicts(b.client, f"{DB}/turns/1/publish", publish | {"node": "c"}) == "late", "an old epoch, whoever had it"
    assert await conflicts(b.client, f"{DB}/turns/2/publish", publish | {"node": "c"}) == "not-holder"
    for epoch in ("3", "0", "-1", "99999999999999999999"):
        assert (await changes_nothing(b.client, "POST", f"{DB}/turns/{epoch}/publish", publish)).status == 404


async def test_a_publish_for_a_turn_so_old_that_it_is_forgotten(b: Replica, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.checkpoints.protocol.KEEP_TURNS", 0)
    for epoch in (2, 3):
        await b.done(epoch - 1, epoch)
        await b.takes()
    await world.do(world.app.checkpoints.retain(world.now))
    assert [turn["epoch"] for turn in await turns(b.client)] == [3]
    publish = {"node": "b", "sequence": 200, "location": "x", "bytes": 1}
    assert await conflicts(b.client, f"{DB}/turns/1/publish", publish) == "late"


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"sequence": -1}, "/sequence"),
        ({"sequence": 0}, "/sequence"),
        ({"bytes": -1}, "/bytes"),
        ({"location": ""}, "/location"),
        ({"location": "x" * 2049}, "/location"),
        ({"location": "a\nb"}, "/location"),
        ({"node": "-"}, "/node"),
        ({"more": 1}, "/more"),
    ],
)
async def test_a_publish_that_makes_no_sense(b: Replica, change: dict[str, Any], pointer: str) -> None:
    body = {"node": "b", "sequence": 5, "location": "x", "bytes": 1} | change
    assert (await refused(b.client, "POST", f"{DB}/turns/1/publish", body))[1] == [pointer]


async def test_a_turn_that_was_granted_but_never_handed_out_has_no_holder_yet(b: Replica, world: World) -> None:
    c = Replica(world.demo, "c")
    await c.reports()
    await b.done(1, 100)
    await world.do(world.app.checkpoints.run_once(world.now))
    holder = (await world.demo.get(f"{DB}/turns")).json()["items"][0]["holder"]
    publish = {"node": holder, "sequence": 200, "location": "x", "bytes": 1}
    assert await conflicts(world.demo, f"{DB}/turns/2/publish", publish) == "not-holder"


async def test_a_revocation_of_a_turn_that_is_over_or_was_never_there(b: Replica) -> None:
    await b.done(1, 100)
    assert await conflicts(b.client, f"{DB}/turns/1/revoke", {"note": "x"}) == "already-ended"
    assert (await changes_nothing(b.client, "POST", f"{DB}/turns/2/revoke", {"note": "x"})).status == 404
    assert (await refused(b.client, "POST", f"{DB}/turns/1/revoke", {}))[1] == ["/note"]
    assert (await refused(b.client, "POST", f"{DB}/turns/1/revoke", {"note": ""}))[1] == ["/note"]


async def test_what_is_not_there_is_404(world: World) -> None:
    for method, url, body in (
        ("POST", "replicas/b/report", GOOD),
        ("POST", "turns/1/publish", {"node": "b", "sequence": 5, "location": "x", "bytes": 1}),
        ("POST", "turns/1/revoke", {"note": "x"}),
        ("GET", "turns", None),
        ("GET", "checkpoints/latest", None),
    ):
        assert (await changes_nothing(world.demo, method, f"{DB}/{url}", body)).status == 404


@pytest.mark.parametrize(
    ("checkpoints", "pointer"),
    [
        ({"timeout": {"initial": "PT2H"}}, "/checkpoints/timeout"),
        ({"timeout": {"min": "PT20M"}}, "/checkpoints/timeout"),
        ({"timeout": {"min": "PT59S"}}, "/checkpoints/timeout/min"),
        ({"timeout": {"max": "P8D"}}, "/checkpoints/timeout/max"),
        ({"drift": 0.91}, "/checkpoints/drift"),
        ({"drift": -0.1}, "/checkpoints/drift"),
        ({"silence": "PT0.5S"}, "/checkpoints/silence"),
        ({"max_lag": -1}, "/checkpoints/max_lag"),
        ({"interval": "P8D"}, "/checkpoints/interval"),
    ],
)
async def test_a_fleet_with_terms_that_cannot_be(world: World, checkpoints: dict[str, Any], pointer: str) -> None:
    assert (await refused(world.demo, "PUT", DB, {"partitions": 1, "checkpoints": checkpoints}))[1] == [pointer]


async def test_an_agents_key_speaks_for_its_node_alone(b: Replica, world: World) -> None:
    agent = await world.key("demo", ["agent"], fleet="db", node="c")
    own = Replica(agent, "c")
    await own.reports()
    publish = {"node": "b", "sequence": 200, "location": "x", "bytes": 1}
    for method, url, body in (
        ("POST", "replicas/b/report", b.body(seq=3)),
        ("POST", "turns/1/publish", publish),
        ("POST", "turns/1/revoke", {"note": "x"}),
        ("GET", "turns", None),
        ("GET", "checkpoints/latest", None),
    ):
        assert (await changes_nothing(agent, method, f"{DB}/{url}", body)).status == 403
    assert await conflicts(agent, f"{DB}/turns/1/publish", publish | {"node": "c"}) == "not-holder"


async def test_another_tenants_turns_are_not_there(b: Replica, world: World) -> None:
    acme = await world.tenant("acme", ["fleets"])
    assert (await acme.get(f"{DB}/turns")).status == 404
    assert (await acme.post(f"{DB}/turns/1/revoke", {"note": "x"})).status == 404


async def test_a_fleet_has_so_many_replicas_and_no_more(b: Replica, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shared.checkpoints.rules.MAX_REPLICAS", 2)
    await Replica(b.client, "c").reports()
    assert await conflicts(b.client, f"{DB}/replicas/d/report", GOOD) == "too-many-replicas"
    await Replica(b.client, "c", born=7).reports()
