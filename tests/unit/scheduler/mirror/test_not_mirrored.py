"""Events of a pair that are not mirrored: owners of either side serve them, and requests to either side change them."""

from __future__ import annotations

from shared.delivery.channels.ports import Verdict
from shared.scheduler.protocol.dispatch import ShardMessage
from shared.scheduler.protocol.mirroring import ELSEWHERE_PK
from shared.storage.names import EVENTS, QUEUE_SHARDS, SHARDS, SWEEPS
from tests.unit.scheduler.flow.flowing import channel

from .pair import PairWorld
from .test_failover_way_back import back

REFUSED = Verdict("final", 400, "refused")


async def serve_on_second(pair: PairWorld) -> None:
    """Let owners of the second have the only shard; the first's queue is not read any more."""
    pair.first_queues.away = pair.first_queues.hold = True
    [index] = pair.rows_of(pair.first, SHARDS)
    [shard] = {row.pk for row in pair.rows_of(pair.first, EVENTS)}
    await pair.second_queues.send(QUEUE_SHARDS, ShardMessage(shard, index.rk).text())


async def test_callback_of_an_event_that_an_owner_on_the_second_ends_is_stored_by_the_side_that_serves(pair: PairWorld) -> None:
    await channel(pair, "told")
    made = await pair.demo.create(delay="PT2S", on_delivered="told")
    await serve_on_second(pair)
    await pair.run(10)
    event = await pair.demo.event(made["id"])
    assert event["state"] == "delivered"
    assert (await pair.demo.event(event["callback"]))["callback_of"] == made["id"]
    pair.first_queues.away = False
    await pair.run(40)
    assert pair.deliveries() == {made["id"]: 1, event["callback"]: 1}
    assert pair.rows_of(pair.first, SHARDS) == [], "both shards are finished"


async def test_callback_of_an_event_that_an_owner_on_the_first_ends_is_stored_by_the_side_that_serves(pair: PairWorld) -> None:
    await channel(pair, "told")
    made = await pair.demo.create(delay="PT70S", on_delivered="told")
    await pair.fail_over()
    pair.find_first()
    pair.second_queues.away = pair.second_queues.hold = True
    await pair.run(60)
    event = await pair.demo.event(made["id"])
    assert event["callback"] in pair.second.states()
    pair.second_queues.away = False
    await pair.run(40)
    await back(pair)
    assert pair.deliveries() == {made["id"]: 1, event["callback"]: 1}


async def test_event_that_dies_on_the_first_and_is_redriven_by_the_second_is_counted_once_after_the_way_back(pair: PairWorld) -> None:
    async def figures() -> tuple[int, int]:
        stats = (await pair.demo.get("/api/v1/stats")).json()
        return stats["dead"], stats["delivered"]

    made = await pair.demo.create(delay="PT5S")
    pair.receiver.script(made["id"], REFUSED)
    await pair.run(40)
    assert await figures() == (1, 0)
    await pair.fail_over()
    pair.find_first()
    await pair.run(10)
    pair.receiver.script(made["id"], Verdict("delivered", 204))
    assert (await pair.demo.post(f"/api/v1/events/{made['id']}/redrive", {})).status == 202
    await pair.run(30)
    await back(pair)
    # The next run of the sweep.
    await pair.run(60)
    assert await figures() == (0, 1)
    await pair.run(400)
    assert not pair.second._tables[SWEEPS].get(ELSEWHERE_PK)
