"""Totals have cancels, moves and completions at once: the gate's counts have them only when an owner comes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.delivery.channels.ports import Verdict
from shared.scheduler.changes.verbs import ChangeRequest
from shared.scheduler.keys import GATE, MINUTE
from shared.scheduler.protocol.user_ends import PARTITIONS, UserEnds, with_ends
from shared.scheduler.queries import end_notes, stats
from shared.scheduler.shard.gate import Counts, Tally
from shared.scheduler.timings import ENDS_NOTED_WITHIN, OPEN_COUNT_FRESH_FOR
from shared.storage.memory import MemoryTables
from shared.storage.names import BULK_JOBS, EVENTS, SWEEPS
from shared.storage.ports import Applied, Op, Row, WriteRefused
from tests.unit.scheduler.harness import START, Client, World

EVENTS_URL = "/api/v1/events"
FAR = to_text(START + 30 * MINUTE)


async def shown(world: World, client: Client) -> dict[str, int]:
    """The figures that each place gives of events planned for `FAR`, once a change is five seconds old."""
    await world.run(5)
    stats = (await client.get("/api/v1/stats")).json()
    load = (await client.get("/api/v1/load")).json()["items"]
    history = (await client.get(f"/api/v1/history?from={to_text(START)}&to={to_text(START + 60 * MINUTE)}")).json()["items"]
    metrics = (await world.admin.get("/api/metrics")).body.decode()
    [scheduled] = [line for line in metrics.splitlines() if line.startswith('tocsin_events{state="scheduled",tenant="acme"}')] or ["0 0"]
    sums: Counter[str] = Counter()
    for minute in history:
        sums.update({name: minute[name] for name in ("open", "cancelled", "moved", "delivered")})
    assert sums["open"] == stats["open"] == round(float(scheduled.rpartition(" ")[2])) + stats["retrying"]
    assert stats["cancelled"] == sums["cancelled"] and stats["delivered"] == sums["delivered"]
    return {**sums, "load": sum(minute["scheduled"] for minute in load), "retrying": stats["retrying"], "working": stats["working"]}


async def batch(client: Client, count: int, **event: Any) -> list[str]:
    answer = await client.post(f"{EVENTS_URL}/batch", [{"due": FAR, "payload": number, **event} for number in range(count)])
    assert answer.json()["accepted"] == count
    return [each["id"] for each in answer.json()["results"]]


async def test_cancelled_events_are_out_of_every_total_and_of_the_limit_within_five_seconds(world: World) -> None:
    client = await world.tenant(limits={"open_events": 50})
    for event_id in await batch(client, 40):
        assert (await client.delete(f"{EVENTS_URL}/{event_id}")).status == 204
    assert await shown(world, client) == {"open": 0, "cancelled": 40, "moved": 0, "delivered": 0, "load": 0, "retrying": 0, "working": 0}
    await batch(client, 20)


async def test_moved_events_count_at_their_new_place_alone(world: World) -> None:
    client = await world.tenant(limits={"open_events": 50})
    for event_id in await batch(client, 40):
        assert (await client.patch(f"{EVENTS_URL}/{event_id}", {"due": to_text(START + 40 * MINUTE)})).status == 200
    found = await shown(world, client)
    assert (found["open"], found["load"], found["moved"]) == (40, 40, 40)
    await batch(client, 10)


async def test_fired_events_are_delivered_and_open_no_more(world: World) -> None:
    client = await world.tenant(limits={"open_events": 50})
    for event_id in await batch(client, 40):
        assert (await client.post(f"{EVENTS_URL}/{event_id}/fire")).status == 202
    await world.run(10)
    found = await shown(world, client)
    assert (found["open"], found["load"], found["delivered"]) == (0, 0, 40)
    await batch(client, 50)


async def test_an_event_that_is_put_off_time_and_again_is_one_open_event(world: World) -> None:
    client = await world.tenant(limits={"open_events": 20})
    event_id = (await client.create(due=FAR))["id"]
    for number in range(30):
        assert (await client.patch(f"{EVENTS_URL}/{event_id}", {"due": to_text(START + (31 + number) * MINUTE)})).status == 200
    await world.run(5)
    assert (await client.get("/api/v1/stats")).json()["open"] == 1
    await batch(client, 19)


async def test_a_cancelled_retry_is_no_retry(world: World) -> None:
    client = await world.tenant()
    retried = (await client.create(due=to_text(START + 1_000)))["id"]
    world.receiver.script(retried, Verdict("retry", 503, retry_after=1_500.0))
    await world.run(10)
    assert (await shown(world, client))["retrying"] == 1
    assert (await client.delete(f"{EVENTS_URL}/{retried}")).status == 204
    found = await shown(world, client)
    assert (found["open"], found["retrying"], found["cancelled"]) == (0, 0, 1)


async def test_counts_stay_right_when_owners_count_again(world: World) -> None:
    client = await world.tenant()
    first = await batch(client, 3)
    second = (await client.create(due=to_text(START + 30 * MINUTE + 59_000)))["id"]
    assert (await client.delete(f"{EVENTS_URL}/{first[0]}")).status == 204
    await world.run(1_803)
    # The owner of the shard has delivered two, counted the cancelled one, and rests or stays for the last.
    assert (await client.delete(f"{EVENTS_URL}/{second}")).status in (204, 409)
    await world.run(120)
    stats = (await client.get("/api/v1/stats")).json()
    assert stats["open"] == 0 and stats["delivered"] + stats["cancelled"] == 4 and stats["cancelled"] >= 1


async def test_many_cancels_are_noted_in_few_transactions(world: World) -> None:
    client = await world.tenant()
    ids = await batch(client, 60)
    await world.run(5)
    before = world.tables.transactions["write"]
    for event_id in ids[:30]:
        assert (await client.without_time().delete(f"{EVENTS_URL}/{event_id}")).status == 204
    plain = world.tables.transactions["write"] - before
    await world.clock.advance(ENDS_NOTED_WITHIN)
    await world.clock.advance(1)
    assert (plain, world.tables.transactions["write"] - before - plain) == (30, 1)
    [row] = notes(world)
    assert row.props["cancelled"] and not row.props["moved"]


def notes(world: World) -> list[Row]:
    return [row for row in world.rows(SWEEPS) if row.pk in PARTITIONS]


async def test_a_change_writes_no_gate(world: World) -> None:
    client = await world.tenant()
    ids = await batch(client, 3)
    gates = {row.pk: row.etag for row in world.rows(EVENTS) if row.rk == GATE}
    assert (await client.delete(f"{EVENTS_URL}/{ids[0]}")).status == 204
    assert (await client.patch(f"{EVENTS_URL}/{ids[1]}", {"delay": "PT2H"})).status == 200
    await world.run(5)
    assert {row.pk: row.etag for row in world.rows(EVENTS) if row.rk == GATE and row.pk in gates} == gates


async def test_a_note_that_was_lost_with_its_process_is_made_good_by_the_next_owner(world: World) -> None:
    client = await world.tenant()
    ids = await batch(client, 2)
    later = await client.create(due=to_text(START + 30 * MINUTE), retry={"first": "PT10M", "attempts": 3, "within": "P1D"})
    world.receiver.script(later["id"], *[Verdict("retry", 503, "busy")] * 2)
    await world.app.scheduler.changes.cancel(ChangeRequest("acme"), ids[0])
    # The process is killed before it has stored the note.
    world.app.scheduler.end_notes._waiting.clear()
    await world.clock.advance(5)
    assert (await client.get("/api/v1/stats")).json()["open"] == 3
    await world.run(1_830)
    stats = (await client.get("/api/v1/stats")).json()
    assert (stats["open"], stats["cancelled"], stats["retrying"]) == (1, 1, 1)
    # And what comes after that is counted once, too.
    assert (await client.delete(f"{EVENTS_URL}/{later['id']}")).status == 204
    await world.run(5)
    stats = (await client.get("/api/v1/stats")).json()
    assert (stats["open"], stats["cancelled"], stats["retrying"]) == (0, 2, 0)


async def test_notes_of_finished_shards_are_removed_and_those_of_others_stay(world: World) -> None:
    client = await world.tenant()
    ids = await batch(client, 2)
    far = (await client.create(delay="P2D"))["id"]
    for event_id in (ids[0], far):
        assert (await client.delete(f"{EVENTS_URL}/{event_id}")).status == 204
    await world.run(5)
    assert len(notes(world)) == 2
    await world.run(31 * 60)
    await world.clock.advance(end_notes.OLD / 1000)
    assert await world.app.scheduler.end_notes.tidy(world.now) == {"removed": 1, "kept": 1}
    assert len(notes(world)) == 1 and (await client.get("/api/v1/stats")).json()["open"] == 0


async def test_an_answer_says_when_not_all_notes_were_read(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await world.tenant()
    for minute in range(6):
        made = await client.create(due=to_text(START + (10 + minute) * MINUTE))
        assert (await client.delete(f"{EVENTS_URL}/{made['id']}")).status == 204
    await world.run(5)
    assert len(notes(world)) == 6 and (await client.get("/api/v1/stats")).json()["open"] == 0
    monkeypatch.setattr(end_notes, "PAGE", 1)
    monkeypatch.setattr(stats, "NOTE_PAGES", 1)
    found = (await client.get("/api/v1/stats")).json()
    assert found["incomplete"] and 0 < found["open"] < 6
    assert await world.app.scheduler.stats.open_events("acme") == 0, "the limit counts all"


async def test_jobs_cost_at_most_two_hundredths_of_a_transaction_an_event(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    plain, noted = MemoryTables.write, 0

    async def write(self: MemoryTables, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        nonlocal noted
        noted += pk in PARTITIONS
        return await plain(self, table, pk, ops)

    monkeypatch.setattr(MemoryTables, "write", write)
    client = await world.tenant()
    await batch(client, 400)
    for action in ({"action": "move", "later": "PT1H"}, {"action": "cancel"}):
        noted = 0
        job = (await client.post("/api/v1/jobs", {"filter": {}, **action})).json()
        assert (await client.post(f"/api/v1/jobs/{job['id']}/confirm", {"confirmation": job["confirmation"]})).status == 202
        await world.do(world.app.timers.run_once(BULK_JOBS))
        await world.run(5)
        job = (await client.get(f"/api/v1/jobs/{job['id']}")).json()
        assert (job["state"], job["done"]) == ("done", 400), job
        assert 0 < noted <= 0.02 * 400
    assert (await client.get("/api/v1/stats")).json()["open"] == 0


async def test_the_process_that_ends_stores_its_notes(world: World) -> None:
    client = await world.tenant()
    ids = await batch(client, 1)
    assert (await client.delete(f"{EVENTS_URL}/{ids[0]}")).status == 204
    assert notes(world) == []
    await world.app.scheduler.end_notes.close()
    assert len(notes(world)) == 1


async def test_the_process_that_ends_does_not_wait_for_silent_storage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    client = await world.tenant()
    ids = await batch(client, 1)
    assert (await client.delete(f"{EVENTS_URL}/{ids[0]}")).status == 204
    asked = asyncio.Event()

    async def write(self: MemoryTables, table: str, pk: str, ops: Sequence[Op]) -> Applied | WriteRefused:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")

    monkeypatch.setattr(MemoryTables, "write", write)
    monkeypatch.setattr(end_notes, "LAST_STORE", 0.05)
    await world.app.scheduler.end_notes.close()
    assert asked.is_set() and notes(world) == []


def test_the_oldest_count_in_use_is_younger_than_five_seconds() -> None:
    assert ENDS_NOTED_WITHIN + OPEN_COUNT_FRESH_FOR <= 4


@pytest.mark.parametrize(
    ("tally", "ends", "counts"),
    [
        (Tally(Counts(5)), UserEnds(cancelled=0b1, moved=0b10), Counts(5, cancelled=1, moved=1)),
        (Tally(Counts(5, cancelled=1), 0b1), UserEnds(cancelled=0b101), Counts(5, cancelled=2)),
        # One that was lost before its note, and that the gate has.
        (Tally(Counts(5, cancelled=2), 0b1001), UserEnds(cancelled=0b101), Counts(5, cancelled=3)),
        (Tally(Counts(5, retrying=2)), UserEnds(delivered=0b100, retried=0b100), Counts(5, delivered=1, retrying=1)),
        (Tally(Counts(5, 1), 0b1), UserEnds(delivered=0b1), Counts(5, 1)),
    ],
)
def test_an_end_counts_once_whoever_knows_it(tally: Tally, ends: UserEnds, counts: Counts) -> None:
    assert with_ends(tally, ends) == counts
