"""A facet that is added as a class and one more line in the table: the scheduler calls it at each point, and is not changed for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from shared.delivery.channels.ports import Verdict
from shared.scheduler.facets import FACETS, facets_for
from shared.scheduler.keys import FIRST_EVENT
from shared.storage.names import BULK_JOBS, EVENTS, SWEEPS
from shared.storage.ports import MAX_EGT_ROWS, Op
from tests.added_facet import JOURNAL, NOTED, Journal, added, broken, is_note, unfinished

from .harness import World

LIST = "/api/v1/events"


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """The application with the journal."""
    with added(Journal()):
        opened = await World().open()
        yield opened
        await opened.close()


def stored(world: World) -> dict[tuple[str, str, str], Any]:
    return {(table, row.pk, row.rk): row.props for table in (EVENTS, SWEEPS) for row in world.rows(table)}


def notes(world: World) -> dict[str, str]:
    """Return the noted ends, by event."""
    return {str(row.props["event"]): str(row.props["end"]) for row in world.rows(EVENTS) if is_note(row.rk)}


async def test_an_added_facet_sees_the_whole_life_of_each_event(world: World) -> None:
    ids = {name: str((await world.demo.create(delay="PT5S"))["id"]) for name in ("delivered", "moved", "cancelled", "dead")}
    world.receiver.script(ids["dead"], Verdict("final", 400), Verdict("delivered", 200))
    assert (await world.demo.patch(f"{LIST}/{ids['moved']}", {"delay": "PT20M"})).status == 200
    assert (await world.demo.delete(f"{LIST}/{ids['cancelled']}")).status == 204
    await world.run(10)
    assert notes(world) == {ids["delivered"]: "delivered", ids["dead"]: "dead"}
    late = await world.demo.create(due="2027-01-15T07:00:00Z", expires="PT1S")
    assert (await world.demo.post(f"{LIST}/{ids['dead']}/redrive")).status == 202
    await world.run(1_300)
    found = Counter(str(row.props[NOTED]) for row in world.rows(EVENTS) if NOTED in row.props)
    assert found == {"delivered": 3, "dead": 1, "cancelled": 1, "lapsed": 1}
    assert notes(world)[str(late["id"])] == "lapsed"
    assert (broken(stored(world)), unfinished(stored(world))) == ("", "")


async def test_nothing_of_an_added_facet_is_left_when_its_shards_are_removed(world: World) -> None:
    made = await world.demo.create(delay="PT1S")
    await world.demo.create(delay="PT1S")
    world.receiver.script(made["id"], Verdict("final", 400))
    await world.run(5)
    assert notes(world) and world.rows(SWEEPS, JOURNAL)
    await world.clock.advance(31 * 86_400)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert world.rows(EVENTS) == [] and world.rows(SWEEPS, JOURNAL) == []


async def test_transactions_have_room_for_the_rows_that_a_facet_adds(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = world.tables.write

    async def watch(table: str, pk: str, ops: Sequence[Op]) -> Any:
        if table == EVENTS:
            written.append(len(ops))
        return await write(table, pk, ops)

    monkeypatch.setattr(world.tables, "write", watch)
    batch = await world.demo.post(f"{LIST}/batch", [{"due": "2027-01-15T08:00:05Z", "payload": 1}] * 300)
    assert batch.json()["accepted"] == 300
    await world.run(20)
    assert Counter(notes(world).values()) == {"delivered": 300}
    assert MAX_EGT_ROWS // 2 < max(written) <= MAX_EGT_ROWS


async def test_events_that_a_job_cancels_together_are_shown_to_an_added_facet(world: World) -> None:
    due = {"due": "2027-01-16T09:00:00Z", "payload": 1, "labels": {"order": "17"}}
    assert (await world.demo.post(f"{LIST}/batch", [due] * 5)).json()["accepted"] == 5
    job = (await world.demo.post("/api/v1/jobs", {"action": "cancel", "filter": {"labels": {"order": "17"}}})).json()
    confirmed = await world.demo.post(f"/api/v1/jobs/{job['id']}/confirm", {"confirmation": job["confirmation"]})
    assert confirmed.status == 202
    await world.do(world.app.timers.run_once(BULK_JOBS))
    assert [row.props.get(NOTED) for row in world.rows(EVENTS) if row.rk.startswith(FIRST_EVENT)] == ["cancelled"] * 5


async def test_the_table_is_as_before_when_a_test_with_a_further_facet_ends() -> None:
    before = FACETS.each
    with added(Journal()):
        assert [type(each) for each in facets_for(("order",), notices=True).each] == [*map(type, before), Journal]
        assert FACETS.own > {NOTED}
    assert FACETS.each == before and NOTED not in FACETS.own and facets_for() is FACETS
