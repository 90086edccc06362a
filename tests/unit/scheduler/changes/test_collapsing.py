"""Events with `collapse`: the last one under an id wins, within the longest delay, and an ended event gives its id away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from shared.core.clock import to_text
from shared.core.errors import Rejected
from shared.delivery.channels.ports import Verdict
from shared.storage import Storage
from shared.web.local_client import LocalReply
from tests.faults import Faults, Perform, Request

from ..harness import START, World

URL = "/api/v1/events"


async def post(world: World, payload: Any, **more: Any) -> LocalReply:
    """Post an event that collapses, by default due ten seconds from now."""
    given = {"id": "doc", "collapse": "PT1M", "payload": payload} | ({} if "due" in more else {"delay": "PT10S"})
    return await world.demo.post(URL, given | more)


async def test_the_last_of_several_is_delivered_once(world: World) -> None:
    first = await post(world, 1, retry={"schedule": ["PT1S"]}, expires="PT5M")
    assert (first.status, first.json()["collapse"]) == (201, "PT1M")
    await world.run(5)
    second = await post(world, "x" * 50_000)
    assert (second.status, second.json()["id"]) == (200, "doc")
    await world.run(5)
    last = await post(world, 3)
    assert last.status == 200 and last.json()["due"] > second.json()["due"]
    assert not last.json().keys() & {"retry", "expires"}
    await world.run(20)
    assert [(got.id, got.payload) for got in world.receiver.received] == [("doc", 3)]


async def test_the_delay_ends_even_if_more_keep_coming(world: World) -> None:
    for number in range(20):
        assert (await post(world, number)).status in (200, 201)
        await world.run(5)
    first, *_ = world.receiver.received
    assert START + 60_000 <= first.began < START + 62_000
    assert first.payload == 11


async def test_an_event_without_it_is_replaced_too_and_a_changed_due_time_may_be_earlier(world: World) -> None:
    await world.demo.create(id="doc", delay="PT30S", labels={"team": "a"})
    soon = to_text(world.now + 3_000)
    answer = await post(world, 2, due=soon, labels={"team": "b"})
    assert (answer.status, answer.json()["due"], answer.json()["labels"]) == (200, soon, {"team": "a"})
    await world.run(6)
    assert [got.payload for got in world.receiver.of("doc")] == [2]


@pytest.mark.parametrize("end", ["delivered", "cancelled", "dead"])
async def test_an_ended_event_gives_its_id_to_the_next(world: World, end: str) -> None:
    world.receiver.script("doc", Verdict("final", 400) if end == "dead" else Verdict("delivered", 200), Verdict("delivered", 200))
    await post(world, 1, delay="PT6S")
    if end == "cancelled":
        assert (await world.demo.delete(f"{URL}/doc")).status == 204
    else:
        await world.run(9)
    assert (await world.demo.event("doc"))["state"] == end
    assert (await post(world, 2, delay="PT6S")).status == 201
    shown = await world.demo.event("doc")
    assert (shown["state"], shown["payload"]) == ("scheduled", 2)
    # The dead one does not come back beside it.
    assert (await world.demo.post("/api/v1/dead-letters/redrive", {})).json() == {"redriven": 0}
    await world.run(9)
    assert [got.payload for got in world.receiver.of("doc")] == ([2] if end == "cancelled" else [1, 2])


async def test_an_event_under_way_is_not_replaced_and_one_that_failed_is(world: World) -> None:
    world.receiver.takes = 30.0
    world.receiver.script("doc", Verdict("retry", 503), Verdict("delivered", 200))
    await post(world, 1, due=to_text(world.now), retry={"schedule": ["PT1H"]})
    await world.run(5)
    refused = await post(world, 2)
    assert (refused.status, refused.code, refused.headers["retry-after"]) == (409, "already-firing", "1")
    await world.run(30)
    assert (await world.demo.event("doc"))["state"] == "retrying"
    world.receiver.takes = 0.0
    assert (await post(world, 3, due=to_text(world.now + 1_000))).status == 200
    await world.run(5)
    assert [got.payload for got in world.receiver.of("doc")] == [1, 3]


async def test_of_many_at_once_one_event_is_left(world: World) -> None:
    client = world.demo.without_time()
    events = [{"id": "doc", "collapse": "PT1M", "delay": "PT10S", "payload": number} for number in range(8)]
    answers = await world.do(asyncio.wait_for(_all(client.post(URL, event) for event in events), None))
    assert sorted(answer.status for answer in answers) == [200] * 7 + [201]
    await world.run(20)
    assert len(world.receiver.received) == 1


class SlowTables(Faults):
    """Tables whose requests take 20 ms each. They are counted."""

    def __init__(self, world: World) -> None:
        super().__init__(world.tables)
        self._clock, self.count = world.clock, 0
        self.refused = ""
        """A text: a write that has it is refused."""

    async def plan(self, request: Request, perform: Perform) -> Any:
        self.count += 1
        await self._clock.sleep(0.02)
        if self.refused and self.refused in str(request.ops):
            raise Rejected("too large")
        return await perform()


@pytest.fixture
async def slow() -> AsyncIterator[tuple[World, SlowTables]]:
    world = World()
    tables = SlowTables(world)
    world.storage = Storage(tables, world.queues, server_times=world.storage.server_times)  # type: ignore[arg-type]
    await world.do(world.open())
    yield world, tables
    await world.do(world.close())


@pytest.mark.parametrize("waits", [False, True], ids=["none waits", "one waits"])
async def test_of_forty_at_once_the_last_is_stored_and_the_others_write_nothing(slow: tuple[World, SlowTables], waits: bool) -> None:
    world, tables = slow
    client = world.demo.without_time()
    if waits:
        await post(world, "first")
    alone, before = tables.count, world.clock.monotonic()
    events = [{"id": "doc", "collapse": "PT1M", "delay": "PT10S", "payload": number} for number in range(40)]
    answers = await world.do(_all(client.post(URL, event) for event in events))
    assert sorted(answer.status for answer in answers) == [200] * 39 + [200 if waits else 201]
    # Two turns: the first one's, and one for all that waited meanwhile.
    assert tables.count - alone < 60 and world.clock.monotonic() - before < 2
    assert (await world.demo.event("doc"))["payload"] == 39
    assert [answer.json()["payload"] for answer in answers[1:]] == [39] * 39
    assert not world.app.scheduler.collapsing._lines
    await world.run(30)
    assert [got.payload for got in world.receiver.received] == [39]


async def test_those_that_wait_go_on_without_the_last_if_it_is_refused(slow: tuple[World, SlowTables]) -> None:
    world, tables = slow
    client = world.demo.without_time()
    await post(world, "first")
    tables.refused = "too much"
    events = [{"id": "doc", "collapse": "PT1M", "delay": "PT10S", "payload": each} for each in (0, 1, 2, "too much")]
    answers = await world.do(_all(client.post(URL, event) for event in events))
    assert [answer.status for answer in answers] == [200, 200, 200, 500]
    assert (await world.demo.event("doc"))["payload"] == 2


async def test_a_call_that_is_given_up_in_its_turn_leaves_the_turn_to_others(slow: tuple[World, SlowTables]) -> None:
    world, _ = slow
    client = world.demo.without_time()
    await post(world, "first")
    calls = [asyncio.ensure_future(client.post(URL, {"id": "doc", "collapse": "PT1M", "delay": "PT10S", "payload": n})) for n in range(4)]
    await world.clock.advance(0.05)
    calls[0].cancel()
    calls[3].cancel()
    answers = await world.do(_all(calls[1:3]))
    assert [answer.status for answer in answers] == [200, 200]
    assert (await world.demo.event("doc"))["payload"] == 2 and not world.app.scheduler.collapsing._lines


async def test_the_longest_delay_counts_from_the_first_of_those_that_waited(slow: tuple[World, SlowTables]) -> None:
    world, _ = slow
    client = world.demo.without_time()
    event = {"id": "doc", "collapse": "PT10S", "delay": "PT10S"}
    await post(world, "ended")
    assert (await world.demo.delete(f"{URL}/doc")).status == 204
    await world.clock.advance(1)
    calls = [asyncio.ensure_future(client.post(URL, event | {"payload": 0}))]
    began = world.now
    for number in range(1, 4):
        await world.clock.advance(0.02)
        calls.append(asyncio.ensure_future(client.post(URL, event | {"payload": number})))
    answers = await world.do(_all(calls))
    assert answers[-1].json()["due"] <= to_text(began + 10_020)


async def _all(calls: Any) -> list[LocalReply]:
    return list(await asyncio.gather(*calls))


async def test_what_it_does_not_go_with(world: World) -> None:
    for wrong in ({"flex": "PT1M"}, {"id": None}, {"durability": "fast"}):
        assert (await post(world, 1, **wrong)).status == 422
    # It would be claimed before a second post comes, or always be due earlier than it says.
    for delay, collapse in (("PT0S", "PT1M"), ("PT5S", "PT1M"), ("PT1M", "PT59S")):
        refused = await post(world, 1, delay=delay, collapse=collapse)
        assert (refused.status, refused.pointers) == (422, ["/collapse"])
    assert (await post(world, 1, delay="PT5.001S", collapse="PT5.001S")).status == 201
    line = {"id": "doc", "collapse": "PT1M", "delay": "PT10S", "payload": 1}
    [result] = (await world.demo.post(f"{URL}/batch", [line])).json()["results"]
    assert result["problem"]["errors"][0]["pointer"] == "/collapse"
