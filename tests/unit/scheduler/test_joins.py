"""Events that are moved into the same minute share a shard, and a move that its process leaves half-way is finished by whoever meets it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Unavailable
from shared.scheduler.ingest.writer import JoinedPlace, Writer
from shared.scheduler.shard.gate import parse_gate
from shared.scheduler.timings import DAY, KEEP_FINISHED
from shared.storage.names import EVENTS, LEDGER, QUEUE_SHARDS, SHARDS

from .harness import START, World

URL = "/api/v1/events"
HOUR = 3_600_000


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = await World().open()
    yield world
    await world.close()


async def moved(world: World, event_id: str, due: int, **more: Any) -> dict[str, Any]:
    answer = await world.demo.patch(f"{URL}/{event_id}", {"due": to_text(due), **more})
    assert answer.status == 200, answer
    found: dict[str, Any] = answer.json()
    return found


def homes(world: World) -> set[str]:
    """Return the shards of the events that are alive."""
    return {row.pk for row in world.events() if row.props["state"] == "scheduled"}


async def test_events_moved_into_one_minute_share_a_shard_its_index_row_and_its_message(world: World) -> None:
    made = [(await world.demo.create(delay=f"PT{hours}H"))["id"] for hours in range(1, 9)]
    before = len(world.rows(SHARDS)), await world.queues.length(QUEUE_SHARDS)
    for number, event_id in enumerate(made):
        shown = await moved(world, event_id, START + 30_000 + 100 * number)
        assert (shown["state"], shown["due"]) == ("scheduled", to_text(START + 30_000 + 100 * number))
    assert len(homes(world)) == 1
    assert (len(world.rows(SHARDS)), await world.queues.length(QUEUE_SHARDS)) == (before[0] + 1, before[1] + 1)
    await world.run(45)
    assert world.receiver.delivered() == made
    assert all(0 <= got.began - got.delivery.due <= 20 for got in world.receiver.received)


async def test_moved_events_and_posted_ones_share_a_shard(world: World) -> None:
    far = (await world.demo.create(delay="PT5H"))["id"]
    posted = (await world.demo.create(due=to_text(START + 90_000)))["id"]
    await moved(world, far, START + 90_500)
    assert len(homes(world)) == 1
    assert [(await world.demo.event(name))["due"] for name in (far, posted)] == [to_text(START + 90_500), to_text(START + 90_000)]


async def test_event_may_move_on_and_back_into_the_shard_that_it_came_from(world: World) -> None:
    event_id = (await world.demo.create(due=to_text(START + 90_000)))["id"]
    for due in (START + 95_000, START + 150_000, START + 96_000):
        assert (await moved(world, event_id, due))["due"] == to_text(due)
    await world.run(170)
    assert world.receiver.delivered() == [event_id]
    # Its pointers lead through one shard twice; no shard is kept for them once the event need not be found any more.
    await world.clock.advance((KEEP_FINISHED + 2 * DAY) / 1000)
    for _ in range(2):
        await world.do(world.app.timers.run_once("retention_scan"))
    assert not world.events() and not world.rows(LEDGER)


async def test_shard_is_kept_while_an_event_that_began_in_it_is_to_be_found(world: World) -> None:
    event_id = (await world.demo.create(due=to_text(START + 10_000)))["id"]
    await moved(world, event_id, START + 20 * DAY)
    await world.run(20)
    await world.clock.advance((KEEP_FINISHED + DAY) / 1000)
    await world.do(world.app.timers.run_once("retention_scan"))
    assert (await world.demo.event(event_id))["state"] == "scheduled"
    assert len({row.pk for row in world.events()}) == 2


@pytest.mark.parametrize(
    ("headers", "status"), [({"if-match": '"another"'}, 412), ({}, 409)], ids=["another version", "an event that has ended"]
)
async def test_refused_move_opens_no_shard(world: World, headers: dict[str, str], status: int) -> None:
    event_id = (await world.demo.create(delay="PT5H"))["id"]
    if status == 409:
        assert (await world.demo.delete(f"{URL}/{event_id}")).status == 204
    before = len(world.rows(SHARDS))
    assert (await world.demo.patch(f"{URL}/{event_id}", {"delay": "PT1H"}, headers)).status == status
    assert len(world.rows(SHARDS)) == before


@pytest.fixture
def half_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process of a move ends, for the store, before it has stored the copy."""

    async def join(self: Writer, tenant: str, place: JoinedPlace, props: Any) -> str | None:
        raise Unavailable("the process has ended")

    monkeypatch.setattr(Writer, "join", join)


async def left_half_way(world: World, delay: str) -> str:
    event_id = str((await world.demo.create(delay=delay))["id"])
    assert (await world.demo.patch(f"{URL}/{event_id}", {"due": to_text(START + 30_000)})).status == 503
    [row] = [row for row in world.events() if row.props["state"] == "joining"]
    assert row.props["id"] == event_id
    return event_id


@pytest.mark.usefixtures("half_way")
async def test_reader_finishes_a_move_that_was_left_half_way(world: World) -> None:
    event_id = await left_half_way(world, "PT5H")
    [shown] = await world.demo.all(URL)
    assert (shown["state"], shown["due"]) == ("scheduled", to_text(START + 30_000)), "the list shows it as it will be"
    assert (await world.demo.event(event_id))["due"] == to_text(START + 30_000)
    assert sorted(str(row.props["state"]) for row in world.events()) == ["moved", "scheduled"]
    # The shard that was meant for it is sealed: its writer, if it is only slow, stores nothing in it any more.
    assert "" in [parse_gate(row.props).holder for row in world.rows(EVENTS) if row.rk == "gate"]
    await world.run(45)
    assert world.receiver.delivered() == [event_id]


@pytest.mark.usefixtures("half_way")
async def test_owner_of_the_former_shard_finishes_a_move_that_was_left_half_way(world: World) -> None:
    event_id = await left_half_way(world, "PT10S")
    await world.run(100)
    assert world.receiver.delivered() == [event_id]
    assert world.receiver.received[0].began >= START + 30_000
    assert not world.rows(SHARDS)


async def test_event_whose_shard_is_shut_in_between_moves_into_one_of_its_own(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def join(self: Writer, tenant: str, place: JoinedPlace, props: Any) -> str | None:
        return None

    monkeypatch.setattr(Writer, "join", join)
    event_id = (await world.demo.create(delay="PT5H"))["id"]
    assert (await moved(world, event_id, START + 30_000))["due"] == to_text(START + 30_000)
    assert await world.queues.length(QUEUE_SHARDS) == 2, "a message for the shard that stays empty, too: it does not wait for repair"
    await world.run(45)
    assert world.receiver.delivered() == [event_id]
