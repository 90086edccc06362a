"""Lists of dead and retrying events by state rows: what they read, rows that lead to nothing, and copied events without state rows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.delivery.channels.ports import Verdict
from shared.scheduler.facets import FACETS
from shared.scheduler.facets.finding import LISTED, SPREAD
from shared.scheduler.keys import GATE, event_row, index_partition, shard_key
from shared.scheduler.protocol.ingest import Entry, OpenShard, append, file_shard
from shared.scheduler.queries import state_pass
from shared.scheduler.queries.state_pass import FRESH_FOR, STATES_ROW, StatePassProgress
from shared.storage.names import EVENTS, PK_TICKS, SHARDS, SWEEPS
from shared.storage.ports import ANY, Delete, RowQuery, Upsert
from tests.unit.scheduler.harness import World

LIST = "/api/v1/events"
REFUSED, BUSY, DELIVERED = Verdict("final", 400, "refused"), Verdict("retry", 503, "busy"), Verdict("delivered", 204)
PAGES = {f"{number}-demo" for number in range(SPREAD)}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


async def listed(world: World, state: str) -> set[str]:
    found = [each["id"] for each in await world.demo.all(f"{LIST}?state={state}")]
    assert len(found) == len(set(found)), "an event is listed twice"
    return set(found)


def state_rows(world: World) -> set[str]:
    return {row.rk.partition(":")[0] for row in world.rows(SWEEPS) if row.pk in PAGES}


async def troubled(world: World) -> tuple[str, str]:
    """One dead event and one that waits for its next attempt, each in a shard of its own."""
    dead, retrying = (await world.demo.create(delay="PT1S"))["id"], (await world.demo.create(delay="PT2M"))["id"]
    world.receiver.script(dead, REFUSED)
    world.receiver.script(retrying, BUSY, DELIVERED)
    await world.run(122)
    return dead, retrying


async def as_copies(world: World) -> None:
    """Leave what a failover finds: events without state rows, and the row that asks for a pass."""
    await world.tables.write(SWEEPS, PK_TICKS, (Upsert(STATES_ROW, StatePassProgress().props()),))
    for row in [row for row in world.rows(SWEEPS) if row.pk in PAGES]:
        await world.tables.write(SWEEPS, row.pk, (Delete(row.rk, ANY),))


async def test_lists_by_state_read_no_shard_without_such_events(world: World) -> None:
    for number in range(8):
        await world.demo.create(due=f"2027-01-15T09:{number:02}:00Z")
    counts = world.tables.transactions
    for path in (f"{LIST}?state=dead", f"{LIST}?state=retrying", "/api/v1/dead-letters"):
        assert (await world.demo.get(path)).json() == {"items": [], "next": None}
        before = counts["query"], counts["rows_read"]
        assert (await world.demo.get(path)).json() == {"items": [], "next": None}
        assert (counts["query"] - before[0], counts["rows_read"] - before[1]) == (SPREAD, 0)


async def test_events_have_state_rows_while_they_need_them(world: World) -> None:
    dead, retrying = await troubled(world)
    assert state_rows(world) == set(LISTED)
    assert (await listed(world, "dead"), await listed(world, "retrying")) == ({dead}, {retrying})
    await world.run(30)
    assert (await world.demo.event(retrying))["state"] == "delivered"
    assert (await listed(world, "dead"), await listed(world, "retrying")) == ({dead}, set())
    assert state_rows(world) == {"dead"}, "the finisher removes the other one"
    assert (await world.demo.post(f"{LIST}/{dead}/redrive", {})).status == 202
    assert await listed(world, "dead") == set() and state_rows(world) == set(), "a list removes what leads to nothing"


async def test_events_delivered_at_the_first_attempt_get_no_state_row(world: World) -> None:
    await world.demo.create(delay="PT1S")
    await world.run(20)
    assert state_rows(world) == set() and world.rows(SHARDS) == []


async def test_a_cancelled_retry_is_not_listed_and_its_row_stays_until_the_shard_is_finished(world: World) -> None:
    _, retrying = await troubled(world)
    assert (await world.demo.delete(f"{LIST}/{retrying}")).status == 204
    assert await listed(world, "retrying") == set() and "retrying" in state_rows(world)


async def test_lists_read_every_shard_until_the_pass_over_copied_ones_is_complete(world: World) -> None:
    dead, retrying = await troubled(world)
    await as_copies(world)
    assert (await listed(world, "dead"), await listed(world, "retrying")) == ({dead}, {retrying})
    assert state_rows(world) == set()
    await world.do(world.app.timers.sweep())
    assert state_rows(world) == set(LISTED)
    assert (await listed(world, "dead"), await listed(world, "retrying")) == ({dead}, {retrying})


async def test_another_failover_is_followed_by_another_pass(world: World) -> None:
    dead, retrying = await troubled(world)
    for _ in range(2):
        await as_copies(world)
        await world.clock.advance(FRESH_FOR)
        assert (await listed(world, "dead"), await listed(world, "retrying")) == ({dead}, {retrying})
        await world.do(world.app.timers.sweep())
        assert state_rows(world) == set(LISTED)


async def test_the_pass_goes_on_where_it_was_and_is_over_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await troubled(world)
    await as_copies(world)
    monkeypatch.setattr(state_pass, "RUN_FOR", 0.0)
    places = []
    while True:
        await world.do(world.app.timers.sweep())
        [row] = [row for row in world.rows(SWEEPS, PK_TICKS) if row.rk == STATES_ROW]
        if row.props["done"]:
            break
        places.append((row.props["phase"], row.props["place"]))
    # Each index partition, and the ledger of the only tenant: a page each.
    assert len(places) == len(set(places)) == 16 and places[-1][0] == "ledger"
    before = row.etag
    await world.do(world.app.timers.sweep())
    assert [row.etag for row in world.rows(SWEEPS, PK_TICKS) if row.rk == STATES_ROW] == [before]


async def test_a_failover_during_a_pass_is_not_overwritten_by_its_progress(world: World) -> None:
    await as_copies(world)
    states = world.app.scheduler.state_pass
    states.watch((await world.tables.query(RowQuery(SWEEPS, PK_TICKS))).rows)
    await as_copies(world)
    await world.do(states.run_once(world.now))
    assert not await world.do(states.complete())


async def test_a_state_row_stays_while_its_shard_is_filed_and_has_no_gate(world: World) -> None:
    # A writer is about to store an event that waited in the ingest queue for too long.
    shard, run = shard_key("demo", "0000000000000000"), world.app.scheduler.runner.run
    opened = OpenShard(shard, "w", world.now, FACETS)
    props = {"id": "late", "state": "dead", "due": world.now, "created": world.now, "channel": "default", "body": "1", "size": 1}
    late = Entry(event_row(0), props, 1)
    index = await run(file_shard(shard, world.now, sent=True))
    await run(FACETS.before_store(opened.filing, [late.props]))
    assert await listed(world, "dead") == set() and state_rows(world) == {"dead"}
    await run(append(opened, [late]))
    assert await listed(world, "dead") == {"late"}
    # Without both, no event can come.
    for table, pk, rk in ((SHARDS, index_partition(shard), opened.index), (EVENTS, shard, GATE)):
        await world.tables.write(table, pk, (Delete(rk, ANY),))
    await world.tables.write(EVENTS, shard, (Delete(late.row, ANY),))
    assert index and await listed(world, "dead") == set() and state_rows(world) == set()
