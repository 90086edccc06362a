"""Lists by searchable labels: what they read, rows that lead to nothing, and events from before the declaration."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from shared.delivery.channels.ports import Verdict
from shared.scheduler.facets.finding import LABEL_ROWS, MARK, SPREAD, label_digest, partition_of
from shared.scheduler.queries.label_index import FRESH_FOR, KNOWN_AFTER, LABELS_ROW, PK_PROGRESS, labels_wanted
from shared.storage.names import EVENTS, PK_TICKS, SWEEPS
from shared.storage.ports import ANY, Delete, Merge, Upsert
from tests.unit.scheduler.harness import World

LIST = "/api/v1/events"
PAGES = {f"labels:{number}-demo" for number in range(SPREAD)}


@pytest.fixture
async def world() -> AsyncIterator[World]:
    opened = await World().open()
    yield opened
    await opened.close()


async def declare(world: World, *names: str, wait: bool = True) -> None:
    assert (await world.admin.put("/api/v1/tenants/demo", {"searchable": list(names)})).status == 200
    if wait:
        await swept(world, KNOWN_AFTER)


async def swept(world: World, after: int) -> None:
    """Sweep after some milliseconds, and wait until every process knows what the sweep has done."""
    await world.run(after / 1000 + 1, 5)
    await world.do(world.app.timers.sweep())
    await world.run(FRESH_FOR + 1)


async def listed(world: World, label: str) -> list[str]:
    found = [each["id"] for each in await world.demo.all(f"{LIST}?label={label}")]
    assert len(found) == len(set(found)), "an event is listed twice"
    return sorted(found)


def label_rows(world: World) -> list[str]:
    return [row.rk for row in world.rows(SWEEPS) if row.pk in PAGES]


async def queries(world: World, label: str) -> int:
    counts = world.tables.transactions
    before = counts["query"]
    await listed(world, label)
    return int(counts["query"] - before)


async def test_list_by_a_searchable_label_reads_no_other_shard(world: World) -> None:
    await declare(world, "order")
    for number in range(8):
        await world.demo.create(id=f"e{number}", due=f"2027-01-15T09:{number:02}:00Z", labels={"order": str(number), "team": "a"})
    assert len(label_rows(world)) == 8
    await listed(world, "order=3")
    assert await queries(world, "order=3") == SPREAD + 1
    assert await listed(world, "order=3") == ["e3"] and await listed(world, "order=3,team=a") == ["e3"]
    assert await listed(world, "order=3,team=b") == [] and await listed(world, "order=33") == []
    assert await listed(world, "team=a") == [f"e{number}" for number in range(8)]


async def test_events_of_a_batch_share_the_rows_of_a_shard(world: World) -> None:
    await declare(world, "order")

    async def writes(minute: str, **fields: object) -> int:
        before = world.tables.transactions["write"]
        events = [{"due": f"2027-01-15T{minute}:00Z", "payload": 0, **fields} for _ in range(50)]
        assert (await world.demo.post(f"{LIST}/batch", events)).json()["accepted"] == 50
        return int(world.tables.transactions["write"] - before)

    await writes("09:00")
    assert await writes("09:02", labels={"order": "17"}) == await writes("09:01") + 1 and len(label_rows(world)) == 1
    assert len(await listed(world, "order=17")) == 50


async def test_events_without_searchable_labels_cost_nothing_more(world: World) -> None:
    async def cost(**fields: object) -> int:
        before = sum(world.tables.transactions.values())
        await world.demo.create(due="2027-01-15T09:00:00Z", **fields)
        return int(sum(world.tables.transactions.values()) - before)

    await world.demo.create(due="2027-01-15T09:00:00Z")
    plain = await cost()
    assert await cost(labels={"team": "a"}) == plain
    await declare(world, "order")
    await world.demo.create(due="2027-01-15T09:00:00Z")
    assert await cost(labels={"team": "a"}) == plain and label_rows(world) == []
    assert not any(MARK in row.props for row in world.rows(EVENTS))


async def test_label_is_found_through_delivery_death_redrive_and_move(world: World) -> None:
    await declare(world, "order")
    for name, delay in (("now", "PT0S"), ("dies", "PT1S"), ("moves", "PT1H"), ("fires", "PT1H"), ("joins", "PT1H")):
        if name == "dies":
            world.receiver.script("dies", Verdict("final", 400, "refused"), Verdict("delivered", 204))
        await world.demo.create(id=name, delay=delay, labels={"order": "17"})
    await world.run(30)
    everything = ["dies", "fires", "joins", "moves", "now"]
    assert await listed(world, "order=17") == everything
    assert (await world.demo.post(f"{LIST}/dies/redrive")).status == 202
    assert (await world.demo.patch(f"{LIST}/moves", {"delay": "PT2H"})).status == 200
    assert (await world.demo.patch(f"{LIST}/joins", {"delay": "PT2H", "payload": "x" * 5000})).status == 200
    assert (await world.demo.post(f"{LIST}/fires/fire")).status == 202
    assert await listed(world, "order=17") == everything
    await world.run(60)
    assert await listed(world, "order=17") == everything
    [letter] = [each for each in await world.demo.all(f"{LIST}?label=order=17&state=scheduled") if each["id"] == "moves"]
    assert letter["due"] > "2027"


async def test_row_that_leads_to_nothing_is_removed_only_when_nothing_can_come(world: World) -> None:
    await declare(world, "order")
    await world.demo.create(id="a", delay="PT1M", labels={"order": "17"})
    [shard] = {row.pk for row in world.rows(EVENTS) if row.props.get("id") == "a"}
    wrong = f"{label_digest('order', '18')}:{shard}"
    await world.tables.write(SWEEPS, partition_of(LABEL_ROWS, shard), (Upsert(wrong, {"bucket": "202701150800"}),))
    assert await listed(world, "order=18") == [] and wrong in label_rows(world), "the shard may still get such an event"
    await world.run(90)
    assert await listed(world, "order=18") == [] and wrong not in label_rows(world)
    assert await listed(world, "order=17") == ["a"]


async def test_events_from_before_the_declaration_are_found_by_the_pass(world: World) -> None:
    await world.demo.create(id="done", delay="PT1S", labels={"order": "17"})
    await world.run(60)
    for number in range(3):
        await world.demo.create(id=f"e{number}", due=f"2027-02-01T09:{number:02}:00Z", labels={"order": "17"})
    await declare(world, "order", wait=False)
    assert await listed(world, "order=17") == ["done", "e0", "e1", "e2"] and label_rows(world) == []
    await swept(world, KNOWN_AFTER)
    assert len(label_rows(world)) == 4
    await listed(world, "order=17")
    assert await listed(world, "order=17") == ["done", "e0", "e1", "e2"]
    assert await queries(world, "order=18") == SPREAD
    # A moved event without a mark gets its row too.
    assert (await world.demo.patch(f"{LIST}/e1", {"due": "2027-02-02T09:00:00Z"})).status == 200
    assert await listed(world, "order=17") == ["done", "e0", "e1", "e2"]
    [progress] = [row for row in world.rows(SWEEPS) if row.pk == PK_PROGRESS]
    [marker] = [row for row in world.rows(SWEEPS) if row.pk == PK_TICKS and row.rk == LABELS_ROW]
    assert progress.props["done"] and not marker.props["wanted"]


async def test_pass_takes_place_although_the_process_ended_before_the_sweep_knew_of_the_declaration(world: World) -> None:
    await world.demo.create(id="old", due="2027-01-15T09:00:00Z", labels={"order": "1"})
    await declare(world, "order", wait=False)
    await world.tables.write(SWEEPS, PK_TICKS, (Delete(LABELS_ROW, ANY),))
    await swept(world, KNOWN_AFTER)
    assert label_rows(world) == [] and await listed(world, "order=1") == ["old"]
    # That list has told the sweep.
    await swept(world, 0)
    assert len(label_rows(world)) == 1 and await listed(world, "order=1") == ["old"]


async def test_pass_is_repeated_after_a_failover(world: World) -> None:
    await declare(world, "order")
    await world.demo.create(id="a", due="2027-02-01T09:00:00Z", labels={"order": "17"})
    # Its copy has no label row.
    for rk in label_rows(world):
        await world.tables.write(SWEEPS, next(row.pk for row in world.rows(SWEEPS) if row.rk == rk), (Delete(rk, ANY),))
    [event] = [row for row in world.rows(EVENTS) if row.props.get("id") == "a"]
    await world.tables.write(EVENTS, event.pk, (Merge(event.rk, {MARK: "order"}, ANY),))
    await world.tables.write(SWEEPS, PK_TICKS, (Upsert(LABELS_ROW, labels_wanted(world.now)),))
    await world.do(world.app.timers.sweep())
    await world.run(FRESH_FOR + 1)
    assert await listed(world, "order=17") == ["a"], "the list looks into every event"
    await swept(world, KNOWN_AFTER)
    assert len(label_rows(world)) == 1 and await listed(world, "order=17") == ["a"]


async def test_label_declared_again_is_searched_again(world: World) -> None:
    await declare(world, "order")
    await declare(world, wait=False)
    await world.run(6)
    await world.demo.create(id="between", due="2027-02-01T09:00:00Z", labels={"order": "17"})
    assert label_rows(world) == []
    await declare(world, "order", wait=False)
    assert await listed(world, "order=17") == ["between"]
    await swept(world, KNOWN_AFTER)
    assert len(label_rows(world)) == 1


async def test_tenant_declares_at_most_eight_labels_each_once(world: World) -> None:
    for names in (["a", "a"], list("abcdefghi"), ["a b"], [""]):
        assert (await world.admin.put("/api/v1/tenants/demo", {"searchable": names})).status == 422
    assert (await world.admin.put("/api/v1/tenants/demo", {"searchable": ["b", "a"]})).json()["searchable"] == ["a", "b"]


async def test_new_tenant_searches_at_once(world: World) -> None:
    assert (await world.admin.put("/api/v1/tenants/new", {"searchable": ["order"]})).status == 201
    assert await world.app.scheduler.label_index.complete("new", ["order", "team"]) == {"order"}
