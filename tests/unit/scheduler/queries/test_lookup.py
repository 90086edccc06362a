"""Lists: every event once, however the shards lie and however short the pages are."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.clock import SettableClock
from shared.core.errors import Problem
from shared.engine.async_runner import AsyncRunner
from shared.scheduler.changes.verbs import dead_letters
from shared.scheduler.facets.finding import LISTED, STATE_ROWS, key_of, partition_of
from shared.scheduler.keys import event_row, index_key, index_partition, minute_text, shard_key
from shared.scheduler.queries import lookup
from shared.scheduler.queries.event_filter import EventFilter
from shared.scheduler.queries.lookup import AT_ONCE, START, WAITING, CompleteRows, EventLookup, ListTurns
from shared.scheduler.shard.queued_ids import QueuedIds
from shared.storage.memory import MemoryTables
from shared.storage.names import ALL_TABLES, EVENTS, LEDGER, SHARDS, SWEEPS
from shared.storage.ports import Insert
from tests.faults import Faults, Perform, Request

from ..harness import START as NOW
from ..harness import World

SIZE = 1_000
STATES = ["scheduled", "retrying", "firing", "delivered", "dead", "cancelled", "lapsed", "moved"]


class Shard(NamedTuple):
    tenant: str
    minute: int
    finished: bool
    both: bool
    """In the ledger already, and in the index still: its owner died in between."""
    states: list[str]


shards = st.lists(
    st.builds(
        Shard,
        st.sampled_from(["demo", "demo-2", "d"]),
        st.integers(0, 4),
        st.booleans(),
        st.just(False),
        st.lists(st.sampled_from(STATES), max_size=7),
    ),
    max_size=12,
)


async def build(given: list[Shard], page_rows: int | None, *, state_rows: bool = False) -> tuple[EventLookup, dict[str, set[str]]]:
    """Storage that holds these shards, and the ids that each tenant's list must show. state_rows: every shard has a row of each state."""
    clock = SettableClock(NOW)
    tables = MemoryTables(clock, page_rows=page_rows)
    await tables.ensure(ALL_TABLES)
    ids: dict[str, set[str]] = {"demo": set(), "demo-2": set(), "d": set()}
    for number, each in enumerate(given):
        shard = shard_key(each.tenant, f"{number:016}")
        wake = NOW + each.minute * 60_000
        for row, state in enumerate(each.states):
            props: dict[str, Any] = {"id": f"{number}-{row}", "state": state, "due": wake + row, "created": NOW - 1}
            props |= {"channel": "default", "size": SIZE}
            await tables.write(EVENTS, shard, (Insert(event_row(row), props),))
            if state != "moved":
                ids[each.tenant].add(props["id"])
        if each.finished:
            await tables.write(LEDGER, each.tenant, (Insert(f"{minute_text(wake)}:{shard}", {"shard": shard}),))
        else:
            index = {"state": "sent", "wake": wake, "bucket": minute_text(wake), "tenant": each.tenant}
            await tables.write(SHARDS, index_partition(shard), (Insert(index_key(shard, wake), index),))
        for name in LISTED if state_rows else ():
            await tables.write(SWEEPS, partition_of(STATE_ROWS, shard), (Insert(key_of(name, shard), {"bucket": minute_text(wake)}),))

    async def complete() -> bool:
        return state_rows

    async def none(tenant: str, names: Iterable[str]) -> list[str]:
        return []

    rows = CompleteRows(complete, none)
    return EventLookup(AsyncRunner(tables, clock), tables, QueuedIds("master"), rows), ids


async def walk(found: EventLookup, tenant: str, chosen: EventFilter, limit: int) -> list[str]:
    """Ids of a whole list, page by page."""
    ids: list[str] = []
    place = START
    for _ in range(10_000):
        rows, following = await found.events(tenant, chosen, limit, place)
        assert len(rows) <= limit
        ids += [str(row.props["id"]) for row in rows]
        if following is None:
            return ids
        assert following != place, "a page must get on"
        place = following
    raise AssertionError("a list without end")


@settings(max_examples=150)
@given(shards, st.integers(1, 9), st.none() | st.integers(1, 3), st.integers(1, 4), st.integers(0, 5))
def test_list_shows_each_event_of_its_tenant_once(
    given: list[Shard], limit: int, page_rows: int | None, per_page: int, per_bytes: int
) -> None:
    async def check() -> None:
        found, ids = await build(given, page_rows)
        for tenant, expected in ids.items():
            listed = await walk(found, tenant, EventFilter(), limit)
            assert len(listed) == len(set(listed)) and set(listed) == expected

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "SHARDS_PER_PAGE", per_page)
        patch.setattr(lookup, "INDEX_PAGE", 2)
        patch.setattr(lookup, "PAGE_BYTES", per_bytes * SIZE)
        asyncio.run(check())


@settings(max_examples=150)
@given(shards, st.integers(1, 9), st.integers(-1, 6), st.integers(-1, 6), st.integers(0, 8), st.sampled_from(STATES[:-1]), st.booleans())
def test_list_by_time_and_state_shows_what_it_should(
    given: list[Shard], limit: int, first: int, end: int, off: int, state: str, state_rows: bool
) -> None:
    chosen = EventFilter(NOW + first * 60_000 + off, NOW + end * 60_000 + off)
    if state == "dead" or state == "retrying":
        chosen = replace(chosen, state=state)
    else:
        chosen = replace(chosen, wanted=lambda props: props["state"] == state)

    async def check() -> None:
        found, _ = await build(given, None, state_rows=state_rows)
        listed = await walk(found, "demo", chosen, limit)
        assert sorted(listed) == sorted(
            f"{number}-{row}"
            for number, each in enumerate(given)
            for row, found_state in enumerate(each.states)
            if each.tenant == "demo" and found_state == state
            if first * 60_000 + off <= each.minute * 60_000 + row < end * 60_000 + off
        )

    asyncio.run(check())


def row(**props: Any) -> dict[str, Any]:
    return {"state": "scheduled", "due": NOW, "created": NOW - 1000, "channel": "default"} | props


def test_filter_is_inclusive_at_its_start_and_exclusive_at_its_end() -> None:
    assert EventFilter(NOW, NOW + 1).shows(row())
    assert not EventFilter(NOW + 1).shows(row()) and not EventFilter(None, NOW).shows(row())


def test_event_that_was_overdue_counts_from_when_it_came_in() -> None:
    assert EventFilter(NOW).shows(row(due=0, created=NOW)) and not EventFilter(None, NOW).shows(row(due=0, created=NOW))


def test_move_under_way_counts_at_its_new_time_and_a_moved_event_at_its_new_place_only() -> None:
    assert EventFilter(NOW + 5).shows(row(state="moving", target_due=NOW + 5)) and not EventFilter(NOW + 5).shows(row())
    assert not EventFilter().shows(row(state="moved"))


def test_dead_letters_are_dead_and_not_brought_back() -> None:
    chosen = dead_letters(None, None, "default")
    assert chosen.shows(row(state="dead"))
    for other in (row(), row(state="dead", target="x/e000"), row(state="dead", channel="a")):
        assert not chosen.shows(other)


async def test_list_reads_a_bounded_number_of_shards_for_a_page(world: World) -> None:
    for number in range(lookup.SHARDS_PER_PAGE + 5):
        await world.demo.create(due=f"2027-01-15T09:{number:02}:00Z")
    before = world.tables.transactions["query"]
    page = (await world.demo.get("/api/v1/events?state=cancelled")).json()
    assert page["items"] == [] and page["next"] is not None
    assert world.tables.transactions["query"] - before <= lookup.SHARDS_PER_PAGE + 17
    assert await world.demo.all("/api/v1/events?state=cancelled") == []


async def test_event_is_found_by_its_id_wherever_it_has_moved(world: World) -> None:
    for chosen in ({}, {"id": "mine"}):
        made = await world.demo.create(**chosen)
        for number in range(4):
            answer = await world.demo.patch(f"/api/v1/events/{made['id']}", {"delay": f"PT{number + 2}H"})
            assert answer.status == 200
        found = await world.app.scheduler.lookup.event("demo", made["id"])
        assert found is not None and found.props["state"] == "scheduled"
        assert len([each for each in world.events() if each.props["id"] == made["id"] and each.props["state"] != "moved"]) == 1


async def test_move_that_was_left_half_way_is_finished_by_the_next_reader(world: World) -> None:
    made = await world.demo.create()
    await world.put_props("demo", made["id"], state="moving", target_due=NOW + 7_200_000, moving="n")
    event = await world.demo.event(made["id"])
    assert (event["state"], event["due"]) == ("scheduled", "2027-01-15T10:00:00.000Z")
    assert {each.props["state"] for each in world.events()} == {"moved", "scheduled"}
    assert [each["id"] for each in await world.demo.all("/api/v1/events")] == [made["id"]]


class CountingTables(Faults):
    """Counts the bytes of bodies that reads return."""

    bodies = 0

    async def plan(self, request: Request, perform: Perform) -> Any:
        answer = await perform()
        rows = answer.rows if request.kind == "query" else [answer] if request.kind == "get" and answer is not None else ()
        self.bodies += sum(len(str(value)) for row in rows for name, value in row.props.items() if name.startswith("body"))
        return answer


async def test_filter_that_matches_nothing_reads_no_bodies(world: World) -> None:
    for number in range(30):
        await world.demo.create(id=f"e{number}", delay="PT1H", payload="x" * 50_000)
    cases = (("?state=dead", 0, 0), ("?channel=none", 0, 0), ("?limit=3", 3, 250_000), ("?limit=3&state=scheduled", 3, 160_000))
    for url, items, most in cases:
        counting = CountingTables(world.tables)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(world.app.scheduler.lookup, "_tables", counting)
            page = (await world.demo.get(f"/api/v1/events{url}")).json()
        assert len(page["items"]) == items and counting.bodies <= most, url


async def test_events_that_moved_away_cost_a_list_few_bytes_and_queries(world: World) -> None:
    names = [f"e{number}" for number in range(100)]
    events = [{"id": name, "due": "2027-01-15T09:00:00Z", "payload": "x" * 2_000} for name in names]
    assert (await world.demo.post("/api/v1/events/batch", events)).status == 200
    for name in names:
        assert (await world.demo.patch(f"/api/v1/events/{name}", {"due": "2027-01-16T09:00:00Z"})).status == 200
    counting = CountingTables(world.tables)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.app.scheduler.lookup, "_tables", counting)
        shown: list[str] = []
        cursor = ""
        while True:
            before, counting.bodies = world.tables.transactions["query"], 0
            page = (await world.demo.get(f"/api/v1/events?limit=3{cursor}")).json()
            assert counting.bodies <= 30_000 and world.tables.transactions["query"] - before <= 20
            shown += [item["id"] for item in page["items"]]
            if page["next"] is None:
                break
            cursor = f"&cursor={page['next']}"
    assert sorted(shown) == sorted(names)


async def test_page_ends_after_a_bounded_number_of_rows(world: World) -> None:
    for number in range(6):
        await world.demo.create(due=f"2027-01-15T09:{number:02}:00Z")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "ROWS_PER_PAGE", 2)
        page = (await world.demo.get("/api/v1/events?state=cancelled")).json()
        assert page["items"] == [] and page["next"] is not None
        assert len(await world.demo.all("/api/v1/events?state=scheduled")) == 6


async def test_tenants_lists_take_turns_and_do_not_hold_up_others() -> None:
    turns, go, reading = ListTurns(), asyncio.Event(), 0

    async def read(tenant: str) -> None:
        nonlocal reading
        async with turns.turn(tenant):
            reading += 1
            await go.wait()

    tasks = [asyncio.create_task(read("a")) for _ in range(AT_ONCE + WAITING)]
    other = asyncio.create_task(read("b"))
    for _ in range(10):
        await asyncio.sleep(0)
    assert reading == AT_ONCE + 1
    with pytest.raises(Problem) as refused:
        await read("a")
    assert refused.value.status == 429 and reading == AT_ONCE + 1
    go.set()
    await asyncio.gather(other, *tasks)
    await read("a")
