"""Totals from the counts on index rows: what they read, and when only the gate knows."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.delivery.channels.ports import Verdict
from shared.ops.metrics.service import Metrics
from shared.scheduler.ingest import shard_filler
from shared.scheduler.protocol.ingest import counts_of_row, counts_props
from shared.scheduler.queries import stats
from shared.scheduler.shard.gate import Counts, Tally
from shared.scheduler.timings import NOTE_AFTER
from shared.storage.memory import MemoryTables
from shared.storage.names import SHARDS
from shared.storage.ports import ANY, Merge, Page, Props, Row, RowQuery
from tests.unit.scheduler.harness import World

NOON = "2027-01-15T12:00:00Z"
LOAD = "/api/v1/load?from=2027-01-15T12:00:00Z"


@pytest.fixture
async def world(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(shard_filler, "NOTE_FROM", 3)
    opened = await World(shard_events=4).open()
    yield opened
    await opened.close()


async def full_shards(world: World, count: int) -> None:
    events = [{"due": NOON, "payload": number} for number in range(4 * count)]
    assert (await world.demo.post("/api/v1/events/batch", events)).json()["accepted"] == 4 * count
    await world.run(NOTE_AFTER + 1)


async def figures(world: World) -> tuple[int, int]:
    """Open events by `/stats`, and those planned for noon by `/load`."""
    found, load = (await world.demo.get("/api/v1/stats")).json(), (await world.demo.get(LOAD)).json()
    assert "incomplete" not in found and "incomplete" not in load
    return found["open"], load["items"][0]["scheduled"]


async def test_totals_of_shards_at_rest_read_no_gate(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await full_shards(world, 30)

    async def no_gate(self: object, shard: str) -> None:
        raise AssertionError(f"the gate of {shard} is read")

    monkeypatch.setattr(stats.TenantStats, "_gate", no_gate)
    monkeypatch.setattr(Metrics, "_gate", no_gate)
    assert await figures(world) == (120, 120)
    text = (await world.admin.get("/api/metrics")).body.decode()
    assert 'tocsin_events{state="scheduled",tenant="demo"} 120.0' in text and "tocsin_shards_read 30.0" in text


async def test_totals_read_no_properties_that_they_do_not_add_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await full_shards(world, 3)
    plain, read = MemoryTables.query, set[str]()

    async def query(self: MemoryTables, asked: RowQuery) -> Page:
        page = await plain(self, asked)
        if asked.table == SHARDS:
            read.update(name for row in page.rows for name in row.props)
        return page

    monkeypatch.setattr(MemoryTables, "query", query)
    assert await figures(world) == (12, 12)
    assert read == {"state", "wake", "counts"}, "and the number of rounds, where there is one"
    await world.admin.get("/api/metrics")
    assert read == {"state", "wake", "counts", "tenant"}


async def test_events_that_join_and_leave_later_are_counted(world: World) -> None:
    noted = []
    for number in range(1, 8):
        await world.demo.create(due=NOON)
        assert await figures(world) == (number, number)
        await world.run(4 * NOTE_AFTER)
        assert await figures(world) == (number, number)
        noted.append(sum(bool(row.props.get("counts")) for row in world.rows(SHARDS)))
    # A shard of four is noted from its third event on: before the fourth the number is taken off, and noted again after it.
    assert noted == [0, 0, 1, 1, 1, 1, 2]


async def test_a_shard_that_rests_has_the_counts_of_its_owner(world: World) -> None:
    retrying = (await world.demo.create(delay="PT1S"))["id"]
    world.receiver.script(retrying, *[Verdict("retry", 503, "busy")] * 3)
    await world.run(40)
    [row] = world.rows(SHARDS)
    assert row.props["state"] == "resting" and counts_of_row(row, world.now) == Tally(Counts(accepted=1, retrying=1))
    found = (await world.demo.get("/api/v1/stats")).json()
    assert (found["open"], found["retrying"]) == (1, 1)


async def test_answers_say_when_not_all_gates_were_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await world.demo.create(due=NOON)
    monkeypatch.setattr(stats, "READ_FOR", 0.0)
    found, load = (await world.demo.get("/api/v1/stats")).json(), (await world.demo.get(LOAD)).json()
    assert (found["open"], found["incomplete"], load["incomplete"]) == (0, True, True)


async def test_answers_say_when_not_all_index_rows_were_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    # 17 shards in 16 partitions: one has two pages.
    await full_shards(world, 17)
    monkeypatch.setattr(stats, "INDEX_PAGE", 1)
    assert await figures(world) == (68, 68)
    monkeypatch.setattr(stats, "READ_FOR", 0.0)
    await world.admin.post("/api/v1/tenants/demo/channels/default/pause")
    found, load = (await world.demo.get("/api/v1/stats")).json(), (await world.demo.get(LOAD)).json()
    assert 0 < found["open"] < 68 and found["incomplete"] and load["incomplete"] and found["held_partial"]


WAKE = 1_800_000_060_000


@pytest.mark.parametrize(
    ("change", "known"),
    [
        ({}, True),
        ({"state": "resting"}, True),
        ({"state": "sent"}, False),
        # A former version has filed the shard for another wake-up, and kept the property.
        ({"wake": WAKE + 1}, False),
    ],
)
def test_counts_are_known_while_nobody_serves_the_shard(change: Props, known: bool) -> None:
    props = {"state": "pending", "wake": WAKE, **counts_props(WAKE, Tally(Counts(9, 1), 0b101)), **change}
    row = Row("00", "", props, "", 0, 0)
    assert counts_of_row(row, WAKE - 1) == (Tally(Counts(9, 1), 0b101) if known else None)
    assert counts_of_row(row, WAKE) is None, "its owner may be at work"
    assert counts_of_row(Row("00", "", {"state": "pending", "wake": WAKE}, "", 0, 0), 0) is None


async def test_a_row_that_has_changed_since_it_was_filed_keeps_no_counts(world: World) -> None:
    await world.demo.create(due=NOON)
    [row] = world.rows(SHARDS)
    await world.tables.write(SHARDS, row.pk, (Merge(row.rk, {"state": "sent"}, ANY),))
    for _ in range(3):
        await world.demo.create(due=NOON)
    await world.run(NOTE_AFTER + 1)
    [row] = world.rows(SHARDS)
    assert "counts" not in row.props and await figures(world) == (4, 4)
