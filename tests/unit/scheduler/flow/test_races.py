"""Flow control when two things happen at once: a pause while a delivery waits, a resume while a shard goes to rest."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.core.errors import Unavailable
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.storage.names import EVENTS, SHARDS, TENANTS
from shared.storage.ports import Op
from shared.tenants.cache import PK_CHANGES

from ..harness import World
from .flowing import AGAIN, CHANNELS, DEFAULT, DELIVERED


@pytest.fixture
async def narrow() -> AsyncIterator[World]:
    """One delivery at a time, and one slow one."""
    world = await World(deliver_concurrency=1).open()
    yield world
    await world.close()


async def behind_slow_ones(world: World) -> dict[str, Any]:
    """An event of channel `default` that waits, claimed, for a slot of the process: two deliveries to `slow` hold both for 20 s."""

    async def answer(target: Target, _: OutgoingDelivery) -> Verdict:
        await world.clock.sleep(20 if target.name == "slow" else 0)
        return DELIVERED

    world.receiver.otherwise = answer
    assert (await world.admin.put(f"{CHANNELS}/slow", {"type": "http", "url": "http://localhost:7072/"})).status == 201
    for _ in range(2):
        await world.demo.create(delay="PT5S", channel="slow")
    made = await world.demo.create(delay="PT5.5S")
    await world.run(8)
    assert (await world.demo.event(made["id"]))["state"] == "firing" and world.receiver.in_flight == 2
    return made


async def test_a_pause_while_a_delivery_waits_for_a_slot_holds_it(narrow: World) -> None:
    made = await behind_slow_ones(narrow)
    assert (await narrow.admin.post(f"{DEFAULT}/pause")).status == 200
    await narrow.run(60)
    assert narrow.receiver.of(made["id"]) == []
    assert (await narrow.demo.event(made["id"]))["state"] == "scheduled"


async def test_storage_that_is_away_when_a_slot_comes_costs_the_event_no_attempt(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.receiver.takes = 0.01
    await world.demo.create(delay="PT2S")
    await world.run(4)
    lane = world.app.scheduler.flow.lanes.lane("demo", "default")
    lane.most = lane.window = 1
    world.receiver.takes = 5
    await world.demo.create(delay="PT5S")
    made = await world.demo.create(delay="PT5.5S")
    await world.run(7)
    assert (await world.demo.event(made["id"]))["state"] == "firing" and world.receiver.in_flight == 1
    get = world.tables.get

    async def away(table: str, pk: str, rk: str) -> Any:
        # Without the marks of changes, the rows that are cached do not count further.
        if table == TENANTS and (rk.endswith("default") or pk == PK_CHANGES):
            raise Unavailable("throttled")
        return await get(table, pk, rk)

    with monkeypatch.context() as patch:
        patch.setattr(world.tables, "get", away)
        await world.run(10)
        assert world.receiver.of(made["id"]) == []
    at = world.now
    await world.run(10)
    [got] = world.receiver.of(made["id"])
    assert got.delivery.attempt == 1 and got.began <= at + 3_000
    assert not [record for record in caplog.records if getattr(record, "action", "") == "delivery_failed"]


async def test_a_resume_while_a_shard_goes_to_rest_calls_it_back_all_the_same(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = await world.demo.create(delay="PT2S")
    await world.admin.post(f"{DEFAULT}/pause")
    write = world.tables.write
    resumed: list[int] = []

    async def late(table: str, pk: str, ops: Sequence[Op]) -> Any:
        # A resume at this moment finds the shard still owned, and has no waiting owner to wake.
        if table == SHARDS and not resumed and any(getattr(op, "props", {}).get("retries") for op in ops):
            resumed.append(world.now)
            await world.app.directory.channels.pause("demo", "default", False)
            await world.app.resumed("demo")
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", late)
    await world.run(30)
    [got] = world.receiver.of(made["id"])
    assert got.began - resumed[0] <= 3_000


async def test_a_process_that_is_about_to_end_does_not_win_the_probe(world: World) -> None:
    world.receiver.otherwise = AGAIN
    for _ in range(12):
        await world.demo.create(delay="PT2S")
    await world.run(6)
    assert (await world.admin.get(DEFAULT)).json()["flow"]["breaker"] == "open"
    before = world.app.scheduler.counters["breaker_probes"]
    world.app.leave()
    await world.run(30, step=1)
    assert world.app.scheduler.counters["breaker_probes"] == before
    assert (await world.admin.get(DEFAULT)).json()["flow"]["breaker"] == "open"


async def test_an_event_that_cannot_be_read_is_not_the_probe_for_good(world: World) -> None:
    world.receiver.otherwise = AGAIN
    for _ in range(5):
        await world.demo.create(delay="PT2S")
    await world.run(6)
    assert (await world.admin.get(DEFAULT)).json()["flow"]["breaker"] == "open"
    bad = await world.demo.create(delay="PT1S")
    await world.put_props("demo", bad["id"], chunks=3)
    world.receiver.otherwise = DELIVERED
    await world.run(240, step=0.5)
    states = {str(row.props["state"]) for row in world.rows(EVENTS) if row.rk.startswith("e") and row.props["id"] != bad["id"]}
    assert states == {"delivered"}
