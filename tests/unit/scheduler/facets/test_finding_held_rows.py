"""Held rows: their numbers, who writes them and when, and what leads to nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest

from shared.delivery.flow.rules import ClaimHold
from shared.scheduler.facets.finding import BEGUN, HELD, MOST_CHANNELS, REST, SPREAD, count_held, held_numbers, pack_held, recalled, stamp
from shared.scheduler.shard.gate import Gate, parse_gate
from shared.scheduler.timings import CLAIM_AHEAD
from shared.storage.names import EVENTS, SWEEPS
from shared.storage.ports import Insert, Merge, Op, Replace, Row
from tests.unit.scheduler.harness import START, World

DEFAULT = "/api/v1/tenants/demo/channels/default"
LIST = "/api/v1/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


def held_rows(world: World) -> list[Row]:
    return [row for row in world.rows(SWEEPS) if row.rk.startswith(f"{HELD}:")]


async def held(world: World) -> int:
    found: int = (await world.demo.get("/api/v1/stats")).json()["held"]
    return found


async def batch(world: World, count: int, **event: Any) -> None:
    events = [{"due": "2027-01-15T08:00:05Z", "payload": number} | event for number in range(count)]
    assert (await world.demo.post("/api/v1/events/batch", events)).json()["accepted"] == count


def writes_of_held_rows(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    plain = world.tables.write

    async def write(table: str, pk: str, ops: tuple[Op, ...]) -> Any:
        found.extend(op.rk for op in ops if table == SWEEPS and op.rk.startswith(f"{HELD}:"))
        return await plain(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", write)
    return found


def test_numbers_count_from_the_second_at_which_events_are_due() -> None:
    dues = {"a": [START - 50_000, START, START + 5_000, START + 6_000, START + 6_001], "b": [START + 90_000]}
    text = pack_held(dues, START)
    assert [count_held(text, START + after)["a"] for after in (-1, 0, 5_000, 6_000, 7_000)] == [0, 2, 3, 4, 5]
    assert count_held(text, START + 90_000) == Counter(a=5, b=1)
    assert pack_held(dues, START - 1_000) == text, "the same at the next look, if no more events can be claimed"
    assert pack_held({}, START) == "" and count_held("", START) == Counter()


def test_numbers_of_many_channels_fit_one_row() -> None:
    text = pack_held({f"{number:063}": [START + 1_000 * number] * 10 for number in range(990)}, START)
    assert len(text) < 30_000, "a property has 32,767 characters"
    found = count_held(text, START + 1_000_000)
    assert len(found) == MOST_CHANNELS + 1 and found.total() == 9_900 and found[REST] == 10 * (990 - MOST_CHANNELS)


def test_events_that_are_due_before_the_hold_is_looked_at_again_count() -> None:
    def numbers(hold: ClaimHold, **event: Any) -> int:
        props = {"state": "scheduled", "channel": "a", "due": START} | event
        return count_held(held_numbers([props], {"a": hold}, START), START + 600_000).total()

    paused = ClaimHold(START + 300_000, blocked=True)
    assert numbers(paused) == numbers(paused, due=START + 299_999) == numbers(paused, state="retrying", next=START) == 1
    assert numbers(paused, due=START + 300_000) == numbers(paused, state="retrying", next=START + 300_000) == 0
    assert numbers(paused, channel="b") == numbers(paused, state="cancelled") == numbers(paused, state="firing", epoch=1) == 0
    assert numbers(ClaimHold(START + 300_000, full=True)) == 0, "it waits for a rate, which is not shown"
    probe = ClaimHold(START + 2_000, 1, blocked=True)
    assert numbers(probe, due=START + CLAIM_AHEAD) == 1


def test_what_a_gate_says_of_the_row_counts_under_its_epoch_only() -> None:
    rests = Gate("resting", "o1", 7, beside="7 abc")
    assert recalled(Gate("resting", "o1", 7)) == {HELD: ""} and recalled(rests) == {HELD: "abc"}
    assert recalled(replace(rests, beside="7 ")) == {HELD: ""}
    # The last owner was lost, or of a release that does not know the property, or ended while it wrote the row.
    assert recalled(replace(rests, state="owned")) == {}
    assert recalled(replace(rests, epoch=8)) == {}
    assert recalled(replace(rests, beside=BEGUN)) == {}
    assert stamp(Gate("owned", "o1", 8), {HELD: ""}, 8) is None
    assert stamp(rests, {HELD: ""}, 8) == "8 " and stamp(rests, {HELD: "abc"}, 8) == "8 abc" and stamp(rests, {}, 8) == "7 abc"


async def test_a_shard_of_many_held_events_has_one_row_that_is_written_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written = writes_of_held_rows(world, monkeypatch)
    await world.admin.post(f"{DEFAULT}/pause")
    await batch(world, 900)
    await world.run(10)
    assert await held(world) == 900 and len(held_rows(world)) == 1
    began = len(written)
    await world.run(20 * 60, step=10)
    assert await held(world) == 900 and len(written) == began, "looks at an unchanged hold write no row"
    await world.admin.post(f"{DEFAULT}/resume")
    await world.run(60)
    assert await held(world) == 0 and held_rows(world) == [], "the finisher removes it"
    assert len(written) - began <= 2


async def test_a_shard_whose_events_are_not_held_has_no_row_and_a_gate_as_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written = writes_of_held_rows(world, monkeypatch)
    await batch(world, 5)
    await world.run(20)
    assert written == [] and not any("held_row" in row.props for row in world.rows(EVENTS))


async def test_an_event_that_another_channel_keeps_the_owner_busy_with_is_counted(world: World) -> None:
    channel = {"type": "http", "url": "http://localhost:7072/b"}
    assert (await world.admin.put(DEFAULT.replace("default", "b"), channel)).status == 201
    await world.admin.post(f"{DEFAULT}/pause")
    events = [{"due": f"2027-01-15T08:01:{second:02}Z", "payload": 1, "channel": "b"} for second in range(60)]
    events[5]["channel"] = "default"
    assert (await world.demo.post("/api/v1/events/batch", events)).json()["accepted"] == 60
    await world.run(90)
    [gate] = [parse_gate(row.props) for row in world.rows(EVENTS) if row.rk == "gate"]
    assert gate.state == "owned" and await held(world) == 1


async def test_cancelled_events_are_held_no_more(world: World) -> None:
    await world.admin.post(f"{DEFAULT}/pause")
    await batch(world, 2)
    await world.run(10)
    [first, second] = await world.demo.all(LIST)
    assert (await world.demo.delete(f"{LIST}/{first['id']}")).status == 204
    await world.run(5)
    assert await held(world) == 1
    assert (await world.demo.delete(f"{LIST}/{second['id']}")).status == 204
    await world.run(5)
    assert await held(world) == 0 and len(held_rows(world)) == 1
    await world.run(300, step=5)
    assert await held(world) == 0 and held_rows(world) == []


async def test_the_list_of_held_events_reads_the_shards_with_held_rows_only(world: World) -> None:
    await world.do(world.app.timers.sweep())
    for number in range(8):
        await world.demo.create(due=f"2027-01-15T09:{number:02}:00Z")
    assert await world.demo.all(f"{LIST}?held=true") == []
    await world.admin.post(f"{DEFAULT}/pause")
    await batch(world, 3)
    await world.run(10)
    before = world.tables.transactions["query"]
    page = (await world.demo.get(f"{LIST}?held=true&limit=2")).json()
    # The channels, four partitions of state rows, and the one shard.
    assert world.tables.transactions["query"] - before <= 1 + SPREAD + 1
    rest = (await world.demo.get(f"{LIST}?held=true&limit=2&cursor={page['next']}")).json()
    found = page["items"] + rest["items"]
    assert len({each["id"] for each in found}) == len(found) == 3 and rest["next"] is None
    assert {each["held"]["reason"] for each in found} == {"paused"}
    assert await world.demo.all(f"{LIST}?held=true&state=retrying") == []
    assert len(await world.demo.all(f"{LIST}?held=true&state=scheduled")) == 3
    assert (await world.demo.get(f"{LIST}?held=maybe")).status == 422


async def test_the_list_of_held_events_shows_each_only_while_it_is_held_and_removes_what_leads_to_nothing(world: World) -> None:
    await world.do(world.app.timers.sweep())
    await world.admin.post(f"{DEFAULT}/pause")
    await batch(world, 2)
    await world.run(10)
    [row] = held_rows(world)
    [first, second] = await world.demo.all(f"{LIST}?held=true")
    assert (await world.demo.delete(f"{LIST}/{first['id']}")).status == 204
    assert [each["id"] for each in await world.demo.all(f"{LIST}?held=true")] == [second["id"]]
    await world.admin.post(f"{DEFAULT}/resume")
    assert await world.demo.all(f"{LIST}?held=true") == [] and len(held_rows(world)) == 1
    await world.run(20)
    assert held_rows(world) == []
    # As a delayed insert leaves it.
    await world.tables.write(SWEEPS, row.pk, (Insert(row.rk, row.props),))
    await world.admin.post(f"{DEFAULT}/pause")
    assert await held(world) == 0 and await world.demo.all(f"{LIST}?held=true") == []
    assert held_rows(world) == []


async def test_a_row_of_a_later_epoch_does_not_keep_the_owner_of_the_gate_from_resting(world: World) -> None:
    await world.admin.post(f"{DEFAULT}/pause")
    await batch(world, 2)
    await world.run(10)
    [row] = held_rows(world)
    await world.tables.write(SWEEPS, row.pk, (Replace(row.rk, row.props | {"epoch": 99, HELD: ""}, row.etag),))
    # The gate does not know what the row says now.
    [gate] = [each for each in world.rows(EVENTS) if each.rk == "gate"]
    await world.tables.write(EVENTS, gate.pk, (Merge("gate", {"held_row": BEGUN}, gate.etag),))
    assert await held(world) == 0
    await world.run(400, step=5)
    assert await held(world) == 2
