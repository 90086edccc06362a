"""Events of the ingest queues after a failover: the second stores none that the first may have, and waits for no other."""

from __future__ import annotations

import json
from collections.abc import Sequence

import azure.functions as func
import pytest
from azure.functions.queue import QueueMessage

from shared.app.poison import PoisonQueues
from shared.app.triggers import queue_functions
from shared.scheduler.timings import CARRIED_FROM_TRY
from shared.storage.names import IDS, QUEUE_INGEST
from shared.storage.ports import Message, Op
from tests.unit.scheduler.harness import DEMO

from .pair import MortalQueues, PairWorld

HOURS = 1
LETTER = json.dumps({"tenant": "demo", "key": DEMO, "event": {"channel": "default", "delay": "PT20S", "payload": 2}})
"""A message of a producer."""


async def fast(world: PairWorld, delay: str = "PT10M") -> str:
    """A new event of durability `fast`; its id."""
    answer = await world.demo.post("/api/v1/events", {"delay": delay, "payload": 1, "durability": "fast"})
    assert answer.status == 202, answer
    return str(answer.json()["id"])


async def peek(queues: MortalQueues) -> str:
    """The only message of the ingest queue; it stays there."""
    [message] = await queues.receive(QUEUE_INGEST)
    await queues.renew(QUEUE_INGEST, message, lease=0.0)
    return message.text


async def cancelled_in_the_first(world: PairWorld) -> tuple[str, str]:
    """An event that the first stored and cancelled, and its message, which its consumer has not deleted."""
    event_id = await fast(world)
    message = await peek(world.first_queues)
    await world.run(5)
    assert world.first.states() == {event_id: "scheduled"}
    assert (await world.demo.delete(f"/api/v1/events/{event_id}")).status == 204
    return event_id, message


def holds(*queues: MortalQueues) -> int:
    """Number of messages in these ingest queues."""
    return sum(len(each._queue(QUEUE_INGEST).messages) for each in queues)


def waiting(world: PairWorld) -> int:
    """Number of messages in both ingest queues."""
    return holds(world.first_queues, world.second_queues)


@pytest.mark.parametrize("waits", [30, HOURS * 3600])
async def test_message_of_an_event_that_was_cancelled_in_the_first_waits_until_the_first_answers(pair: PairWorld, waits: int) -> None:
    event_id, message = await cancelled_in_the_first(pair)
    await pair.fail_over()
    # Its queues come back sooner than its tables.
    pair.first_queues.away = False
    await pair.first_queues.send(QUEUE_INGEST, message)
    await pair.run(waits, step=0.25 if waits < 60 else 5.0)
    assert pair.second.states() == {} and waiting(pair) == 1
    pair.find_first()
    await pair.run(800)
    assert pair.deliveries() == {} and pair.second.states() == {} and waiting(pair) == 0
    assert (await pair.demo.event(event_id))["state"] == "cancelled"


async def test_event_that_waited_for_the_first_and_is_not_there_is_stored_once_the_first_answers(pair: PairWorld) -> None:
    pair.first_queues.hold = pair.first_queues.away = True
    event_id = await fast(pair, "PT30S")
    await pair.fail_over()
    pair.first_queues.hold = pair.first_queues.away = False
    await pair.run(100)
    assert pair.deliveries() == {} and waiting(pair) == 1
    pair.find_first()
    await pair.run(125)
    assert pair.deliveries() == {event_id: 1} and pair.second.states() == {event_id: "delivered"} and waiting(pair) == 0


async def test_events_that_the_second_accepts_wait_for_nothing_while_the_first_is_away_for_hours(pair: PairWorld) -> None:
    await pair.fail_over()
    event_id = await fast(pair, "PT20S")
    await pair.second_queues.send(QUEUE_INGEST, LETTER)
    # Storage refuses them for a while: what is put back is stored without the first all the same.
    pair.second.fails = lambda table, ops: table == IDS and bool(ops)
    await pair.run(15)
    assert pair.second.states() == {} and waiting(pair) > 0
    pair.second.fails = None
    await pair.run(60)
    assert sorted(pair.second.states().values()) == ["delivered", "delivered"] and waiting(pair) == 0
    assert pair.deliveries()[event_id] == 1 and sum(pair.deliveries().values()) == 2
    await pair.run(HOURS * 3600, step=5.0)
    later = await fast(pair, "PT20S")
    await pair.run(30)
    assert pair.deliveries()[later] == 1


async def test_message_of_a_former_failover_counts_as_unknown(pair: PairWorld) -> None:
    await pair.fail_over()
    pair.second_queues.hold = True
    pair.second_queues.away = True
    event_id = await fast(pair)
    message = await peek(pair.second_queues)
    pair.find_first()
    await pair.run(5)
    assert (await pair.admin.post("/api/v1/storage/failback", {})).status == 202
    await pair.run(60)
    assert (await pair.storage_status())["mirror"]["state"] == "serving"
    pair.second_queues.hold = pair.second_queues.away = False
    await pair.run(5)
    assert pair.first.states() == {event_id: "scheduled"}
    assert (await pair.demo.delete(f"/api/v1/events/{event_id}")).status == 204
    await pair.fail_over()
    await pair.second_queues.send(QUEUE_INGEST, message)
    await pair.run(700, step=1.0)
    assert pair.deliveries() == {} and pair.second.states() == {}
    pair.find_first()
    await pair.run(200)
    assert pair.deliveries() == {} and waiting(pair) == 0


async def test_producers_message_left_in_the_firsts_queue_waits_for_the_first(pair: PairWorld) -> None:
    await pair.fail_over()
    pair.first_queues.away = False
    await pair.first_queues.send(QUEUE_INGEST, LETTER)
    await pair.run(60)
    assert pair.deliveries() == {} and waiting(pair) == 1
    pair.find_first()
    await pair.run(125)
    assert list(pair.deliveries().values()) == [1] and waiting(pair) == 0


async def test_cancel_is_not_acknowledged_while_it_is_unknown_whether_the_first_has_the_event(pair: PairWorld) -> None:
    pair.first_queues.hold = pair.first_queues.away = True
    event_id = await fast(pair)
    await pair.fail_over()
    pair.first.away = False
    await pair.run(5)
    asked = 0

    def second_time(table: str, ops: Sequence[Op]) -> bool:
        nonlocal asked
        asked += table == IDS
        return asked > 1

    # The look-up is answered. When the id is to be registered in the second, the first is away.
    pair.first.fails = second_time
    assert (await pair.demo.delete(f"/api/v1/events/{event_id}")).status == 503
    assert pair.second.states() == {} and asked == 2
    pair.first.fails = None
    await pair.run(5)
    assert (await pair.demo.delete(f"/api/v1/events/{event_id}")).status == 204
    pair.find_first()
    pair.first_queues.hold = False
    await pair.run(800, step=1.0)
    assert pair.deliveries() == {} and pair.second.states() == {event_id: "cancelled"}


async def test_event_that_waited_for_almost_seven_days_ends_as_dead(pair: PairWorld) -> None:
    pair.first_queues.hold = pair.first_queues.away = True
    event_id = await fast(pair)
    message = await peek(pair.first_queues)
    await pair.fail_over()
    await pair.clock.advance(7 * 86_400 - 1_800, settle=15)
    serving = await pair.app.serving()
    await pair.do(serving.scheduler.intake.serve(Message("m", "", message, 1, pair.clock.now()), own=False))
    assert pair.second.states() == {event_id: "dead"}


async def test_message_that_fails_often_goes_back_to_the_queue_that_it_came_from(pair: PairWorld) -> None:
    # In the second's queue, a producer's message would look as if it had been sent there.
    await pair.fail_over()
    pair.first_queues.away = False
    app = func.FunctionApp()
    app.register_functions(queue_functions(pair.app_of_first, serving=pair.get_app))
    [failing] = [each.get_user_function() for each in app.get_functions() if each.get_function_name() == "ingest_events"]
    await pair.do(failing(QueueMessage(id="m", body=LETTER.encode(), dequeue_count=CARRIED_FROM_TRY)))
    assert [holds(queues) for queues in (pair.first_queues, pair.second_queues)] == [1, 0]


@pytest.mark.parametrize("side", [0, 1])
async def test_poisoned_message_goes_back_to_the_queue_that_it_came_from_whichever_side_sweeps(pair: PairWorld, side: int) -> None:
    await pair.fail_over()
    pair.first_queues.away = False
    queues = (pair.first_queues, pair.second_queues)
    await queues[side].send(f"{QUEUE_INGEST}-poison", LETTER)
    await pair.do(PoisonQueues((await pair.app.serving()).queue_sides).drain(pair.clock.now()))
    assert [holds(each) for each in queues] == [1 - side, side]
    assert await queues[side].length(f"{QUEUE_INGEST}-poison") == 0
