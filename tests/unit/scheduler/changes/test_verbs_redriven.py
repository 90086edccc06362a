"""A redriven event is one event: in every list once, and in totals as a look-up shows it. Whatever its durability, account and API."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.engine.effects import Steps, write
from shared.scheduler.changes import verbs as changes
from shared.scheduler.keys import GATE
from shared.scheduler.queries.state_pass import StatePass
from shared.storage.memory import MemoryTables
from shared.storage.names import EVENTS as STORED
from shared.storage.ports import Delete
from tests.unit.scheduler.harness import World
from tests.unit.scheduler.ingest.test_accounts import Accounts
from tests.unit.scheduler.mirror.pair import PairWorld

EVENTS = "/api/v1/events"
REFUSED, DELIVERED = Verdict("final", 400, "refused"), Verdict("delivered", 204)


@pytest.fixture(autouse=True, params=[False, True], ids=["every shard", "state rows"])
def by_state_rows(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists of dead events read every shard, as before the pass over copied shards has ended, or the state rows."""

    async def complete(_: StatePass) -> bool:
        return bool(request.param)

    monkeypatch.setattr(StatePass, "complete", complete)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


@pytest.fixture
async def pair() -> AsyncIterator[PairWorld]:
    opened = PairWorld()
    await opened.open()
    yield opened
    await opened.close()


async def figures(world: World) -> dict[str, int]:
    """Check that every list has each event once, in the state that a look-up shows, and that totals agree. Return the events by state."""
    shown = await world.demo.all(f"{EVENTS}?limit=1000")
    states = {each["id"]: each["state"] for each in shown}
    assert len(states) == len(shown), "an event is listed twice"
    for event_id, state in states.items():
        assert (await world.demo.event(event_id))["state"] == state
    by_state: dict[str, list[str]] = {}
    for event_id, state in states.items():
        by_state.setdefault(state, []).append(event_id)
    for state in ("dead", "delivered", "scheduled"):
        listed = [each["id"] for each in await world.demo.all(f"{EVENTS}?state={state}")]
        assert sorted(listed) == sorted(by_state.get(state, [])), state
    letters = [each["id"] for each in await world.demo.all("/api/v1/dead-letters")]
    assert sorted(letters) == sorted(by_state.get("dead", []))
    counts = Counter(states.values())
    stats = (await world.demo.get("/api/v1/stats")).json()
    assert {name: stats[name] for name in ("dead", "delivered")} == {name: counts[name] for name in ("dead", "delivered")}
    minutes = (await world.demo.get("/api/v1/history?from=2027-01-15T07:00:00Z&to=2027-01-15T12:00:00Z")).json()["items"]
    assert {name: sum(each[name] for each in minutes) for name in ("dead", "delivered")} == {
        name: stats[name] for name in ("dead", "delivered")
    }
    return dict(counts)


async def dead(world: World, *ids: str) -> None:
    """Let the events die; from then on the receiver takes them."""
    for event_id in ids:
        world.receiver.script(event_id, REFUSED)
    await world.run(40)
    for event_id in ids:
        world.receiver.script(event_id, DELIVERED)


async def redrive(world: World, event_id: str) -> None:
    answer = await world.demo.post(f"{EVENTS}/{event_id}/redrive", {})
    assert answer.status == 202, answer


async def check_one_of_three(world: World, ids: list[str]) -> None:
    """Three dead events, of which one is redriven, dies again, and is redriven again."""
    await dead(world, *ids)
    assert await figures(world) == {"dead": 3}
    world.receiver.script(ids[0], REFUSED)
    await redrive(world, ids[0])
    assert (await figures(world)).get("dead") == 2
    await world.run(40)
    assert await figures(world) == {"dead": 3}
    world.receiver.script(ids[0], DELIVERED)
    await redrive(world, ids[0])
    await world.run(40)
    assert await figures(world) == {"dead": 2, "delivered": 1}
    # By filter: all that are dead, and none twice.
    assert (await world.demo.post("/api/v1/dead-letters/redrive", {})).json()["redriven"] == 2
    await world.run(40)
    assert await figures(world) == {"delivered": 3}


async def create(world: World, durability: str, count: int = 3) -> list[str]:
    made = []
    for _ in range(count):
        answer = await world.demo.post(EVENTS, {"payload": 1, "delay": "PT5S", "durability": durability})
        assert answer.status in (201, 202), answer
        made.append(answer.json()["id"])
    return made


@pytest.mark.parametrize("durability", ["standard", "fast"])
async def test_redriven_event_is_one_event(world: World, durability: str) -> None:
    await check_one_of_three(world, await create(world, durability))


async def check_cost_of_the_fortieth(world: World, ids: list[str], accounts: list[MemoryTables]) -> None:
    """Forty dead events of one shard are redriven one after the other."""

    def transactions() -> int:
        return sum(tables.transactions[kind] for tables in accounts for kind in ("get", "query", "write"))

    await dead(world, *ids)
    taken = []
    for event_id in ids:
        before = transactions()
        await redrive(world, event_id)
        taken.append(transactions() - before)
        await world.run(5)
    assert taken[39] == taken[1], taken
    assert await figures(world) == {"delivered": 40}


async def test_redrive_of_a_shards_fortieth_event_takes_as_many_transactions_as_of_the_second(world: World) -> None:
    ids = await create(world, "standard", 40)
    assert len({row.pk for row in world.rows(STORED)}) == 1
    await check_cost_of_the_fortieth(world, ids, [world.tables])


async def test_redrive_of_a_mirrored_shards_fortieth_event_takes_as_many_transactions_as_of_the_second(pair: PairWorld) -> None:
    ids = await create(pair, "mirrored", 40)
    assert len({row.pk for row in pair.events_of(pair.first)}) == 1
    await check_cost_of_the_fortieth(pair, ids, [pair.first.inner, pair.second.inner])


async def test_redriven_events_of_one_call_share_a_shard(world: World) -> None:
    await dead(world, *await create(world, "standard", 5))
    before = {row.pk for row in world.rows(STORED)}
    assert (await world.demo.post("/api/v1/dead-letters/redrive", {})).json()["redriven"] == 5
    assert len({row.pk for row in world.rows(STORED)} - before) == 1
    await world.run(40)
    assert await figures(world) == {"delivered": 5}


async def test_redrive_of_an_event_that_retention_removes_meanwhile_is_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    [event_id] = await create(world, "standard", 1)
    await dead(world, event_id)
    [row] = [row for row in world.rows(STORED) if row.rk != GATE]
    plain = changes.redrive

    def late(source: str, rows: Any, *given: Any) -> Any:
        yield from write(STORED, row.pk, Delete(row.rk, row.etag))
        return (yield from plain(source, rows, *given))

    monkeypatch.setattr(changes, "redrive", late)
    answer = await world.demo.post(f"{EVENTS}/{event_id}/redrive", {})
    assert answer.status == 404, answer
    await world.run(40)
    assert not [each for each in world.rows(STORED) if each.rk != GATE]


async def test_event_that_is_cancelled_after_its_redriver_ended_early_is_one_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def ends_before_the_note(shard: str) -> Steps[None]:
        yield from ()

    [event_id] = await create(world, "standard", 1)
    await dead(world, event_id)
    monkeypatch.setattr(changes, "note_of", ends_before_the_note)
    await redrive(world, event_id)
    assert (await world.demo.delete(f"{EVENTS}/{event_id}")).status == 204
    await world.run(5)
    assert await figures(world) == {"cancelled": 1}


async def test_redriven_mirrored_event_is_one_event_on_either_account(pair: PairWorld) -> None:
    await check_one_of_three(pair, await create(pair, "mirrored"))
    await pair.fail_over()
    pair.find_first()
    await pair.run(10)
    assert await figures(pair) == {"delivered": 3}


async def test_mirrored_event_that_is_redriven_after_a_failover_is_one_event(pair: PairWorld) -> None:
    ids = await create(pair, "mirrored")
    await dead(pair, *ids)
    assert await figures(pair) == {"dead": 3}
    await redrive(pair, ids[0])
    await pair.run(40)
    await pair.fail_over()
    pair.find_first()
    await pair.run(10)
    assert await figures(pair) == {"dead": 2, "delivered": 1}
    await redrive(pair, ids[1])
    await pair.run(40)
    assert await figures(pair) == {"dead": 1, "delivered": 2}


async def test_redriven_event_of_any_account_is_one_event() -> None:
    accounts = Accounts(3)
    world = await accounts.open()
    try:
        ids = await create(world, "standard")
        for _ in range(2):
            # One event a minute: their shards go to all accounts in turn.
            await world.run(60)
        ids = [(await world.demo.create(delay=f"PT{60 * minute}S"))["id"] for minute in (1, 2, 3)]
        assert len({each[0] for each in ids}) == 3
        for event_id in ids:
            world.receiver.script(event_id, REFUSED)
        await world.run(240)
        for event_id in ids:
            world.receiver.script(event_id, DELIVERED)
        assert await figures(world) == {"delivered": 3, "dead": 3}
        for left, event_id in zip((2, 1, 0), ids, strict=True):
            await redrive(world, event_id)
            await world.run(40)
            counts: dict[str, Any] = {"dead": left} if left else {}
            assert await figures(world) == {"delivered": 6 - left, **counts}
    finally:
        await world.close()


async def test_redriven_event_of_bigbens_api_is_one_event(world: World) -> None:
    given = {"tenant": "demo", "payload": "P", "eventTime": to_text(world.now + 5_000)}
    answer = await world.demo.post("/api/bigben/events/schedule", [{"id": name, **given} for name in ("one", "two", "three")])
    assert answer.status == 200, answer
    await check_one_of_three(world, ["one", "two", "three"])
    found = await world.demo.get("/api/bigben/events/find?id=one&tenant=demo")
    assert found.json()["eventStatus"] == "PROCESSED"


async def test_event_of_bigbens_api_that_takes_the_id_of_a_redriven_one_is_another(world: World) -> None:
    """BigBen's API schedules an id again after its event has ended: the former event, redriven, stays one of its own."""
    given = {"id": "one", "tenant": "demo", "payload": "P"}
    await world.demo.post("/api/bigben/events/schedule", [{**given, "eventTime": to_text(world.now + 5_000)}])
    await dead(world, "one")
    await redrive(world, "one")
    await world.run(40)
    assert await figures(world) == {"delivered": 1}
    answer = await world.demo.post("/api/bigben/events/schedule", [{**given, "eventTime": to_text(world.now + 5_000)}])
    assert answer.status == 200, answer
    await world.run(40)
    assert await figures(world) == {"delivered": 2}
