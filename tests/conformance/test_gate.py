"""The gate of a shard on each store: if writers, sealers and owners act at the same time, the store lets exactly one of them decide."""

from __future__ import annotations

import asyncio
from typing import Any

from shared.core.clock import SystemClock
from shared.core.ids import SystemIds
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.facets import FACETS
from shared.scheduler.keys import END_EVENTS, FIRST_EVENT, GATE, MINUTE, event_row, index_key, minute_start, shard_key
from shared.scheduler.protocol import owning
from shared.scheduler.protocol.ingest import Appended, Entry, OpenShard, append, file_shard
from shared.scheduler.protocol.owning import OwnerSession, ShardBusy
from shared.scheduler.rules import RowOutcome
from shared.scheduler.shard.gate import Gate, parse_gate, seal
from shared.storage.names import EVENTS, LEDGER, SHARDS
from shared.storage.ports import Row, RowQuery
from tests.waiting import eventually

from .conftest import Store

WAKE = minute_start(SystemClock().now()) + MINUTE


class Shard:
    """A shard of the test's own, in an index of its own minute."""

    def __init__(self, store: Store) -> None:
        self.tables = store.tables
        self.key = shard_key("gate", "0" + SystemIds().name()[1:])
        self.index = index_key(self.key, WAKE)
        self.runner = AsyncRunner(store.tables, store.clock or SystemClock())

    def writer(self, name: str) -> OpenShard:
        return OpenShard(self.key, name, WAKE, FACETS)

    async def append(self, opened: OpenShard, first: int, count: int = 3) -> Appended:
        props: dict[str, Any] = {"state": "scheduled", "due": WAKE}
        entries = [Entry(event_row(number), dict(props), 50) for number in range(first, first + count)]
        return await self.runner.run(append(opened, entries))

    async def take(self, owner: str, ended: str = "", seen: Row | None = None) -> owning.TakeResult:
        return await self.runner.run(owning.take(self.key, self.index, owner, FACETS, seen, ended=ended))

    async def gate(self) -> Gate:
        row = await self.tables.get(EVENTS, self.key, GATE)
        assert row is not None
        return parse_gate(row.props)

    async def events(self) -> list[Row]:
        return (await self.tables.query(RowQuery(EVENTS, self.key, first=FIRST_EVENT, end=END_EVENTS))).rows


async def filed(store: Store) -> Shard:
    await store.tables.ensure([EVENTS, SHARDS, LEDGER])
    shard = Shard(store)
    await shard.runner.run(file_shard(shard.key, WAKE, sent=True))
    return shard


async def test_of_owners_that_take_a_shard_at_once_one_has_it(store: Store) -> None:
    shard = await filed(store)
    await shard.append(shard.writer("w"), 0)
    seen = await store.tables.get(EVENTS, shard.key, GATE)
    found = await asyncio.gather(*(shard.take(f"owner{number}", seen=seen) for number in range(8)))
    [session] = [each for each in found if isinstance(each, OwnerSession)]
    assert sum(isinstance(each, ShardBusy) for each in found) == 7
    gate = await shard.gate()
    assert (gate.state, gate.holder, gate.epoch, gate.counts.accepted) == ("owned", session.owner, 1, 3)


async def test_a_writer_stores_nothing_once_an_owner_has_the_gate(store: Store) -> None:
    shard = await filed(store)
    opened = shard.writer("w")
    assert len((await shard.append(opened, 0)).stored) == 3
    assert isinstance(await shard.take("owner"), OwnerSession)
    assert await shard.append(opened, 3) == Appended({})
    assert opened.lost and len(await shard.events()) == 3


async def test_batches_that_race_an_owner_are_whole_or_absent_and_counted(store: Store) -> None:
    shard = await filed(store)
    opened = shard.writer("w")

    async def fill() -> int:
        stored = 0
        for first in range(0, 60, 3):
            answer = await shard.append(opened, first)
            assert len(answer.stored) in (0, 3)
            stored += len(answer.stored)
            if opened.lost:
                break
        return stored

    async def take_later() -> owning.TakeResult:
        await eventually(shard.events, "an event", pause=0.0)
        return await shard.take("owner")

    stored, session = await asyncio.gather(fill(), take_later())
    assert isinstance(session, OwnerSession)
    gate = await shard.gate()
    assert (gate.state, gate.holder) == ("owned", "owner")
    assert len(await shard.events()) == stored == gate.counts.accepted > 0


async def test_a_seal_and_a_first_batch_at_once_are_ordered_by_the_gate(store: Store) -> None:
    for _ in range(4):
        shard = await filed(store)
        opened = shard.writer("w")
        answer, _ = await asyncio.gather(shard.append(opened, 0), shard.runner.run(seal(shard.key)))
        gate = await shard.gate()
        assert (gate.state, gate.holder) == ("open", "")
        assert len(await shard.events()) == len(answer.stored) == gate.counts.accepted
        assert await shard.append(shard.writer("late"), 3) == Appended({})


async def test_a_former_owner_settles_and_claims_nothing(store: Store) -> None:
    shard = await filed(store)
    await shard.append(shard.writer("w"), 0)
    former = await shard.take("former")
    assert isinstance(former, OwnerSession) and await shard.runner.run(owning.load(former))
    assert await shard.runner.run(owning.step(former, {}, [event_row(0)]))
    later = await shard.take("later", ended="former")
    assert isinstance(later, OwnerSession) and later.epoch == 2
    assert await shard.runner.run(owning.load(later))
    assert await shard.runner.run(owning.step(later, {}, [event_row(1)]))
    settled = {event_row(0): RowOutcome("delivered", {})}
    before = await shard.events()
    assert not await shard.runner.run(owning.step(former, settled, [event_row(2)]))
    assert [row.etag for row in await shard.events()] == [row.etag for row in before]
    assert [row.props["state"] for row in before] == ["firing", "firing", "scheduled"]


async def test_a_finished_shard_is_in_the_ledger_and_no_longer_in_the_index(store: Store) -> None:
    shard = await filed(store)
    await shard.append(shard.writer("w"), 0, 2)
    session = await shard.take("owner")
    assert isinstance(session, OwnerSession) and await shard.runner.run(owning.load(session))
    rows = [event_row(0), event_row(1)]
    assert await shard.runner.run(owning.step(session, {}, rows))
    assert await shard.runner.run(owning.step(session, dict.fromkeys(rows, RowOutcome("delivered", {})), []))
    assert await shard.runner.run(owning.finish(session, {"kind": "test"}))
    assert (await shard.gate()).state == "done"
    assert await shard.take("late") == "done"
    listed = await store.tables.query(RowQuery(LEDGER, "gate", end="~"))
    [entry] = [row for row in listed.rows if row.props["shard"] == shard.key]
    assert (entry.props["accepted"], entry.props["delivered"]) == (2, 2)
    assert await store.tables.get(SHARDS, owning.index_partition(shard.key), shard.index) is None
