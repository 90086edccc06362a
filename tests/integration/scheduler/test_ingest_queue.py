"""The ingest queue over real storage: producers with the SDK, events acknowledged from the queue, poison, and processes that are killed."""

from __future__ import annotations

import asyncio
import base64
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from azure.storage.queue import TextBase64EncodePolicy
from azure.storage.queue.aio import QueueClient, QueueServiceClient

from devhost.azurite import Azurite
from shared.storage.names import ALL_QUEUES, POISON_QUEUES

from .conftest import Api, System, Tenant, eventually, now_ms, text_of
from .receiver import Receiver

QUEUE, POISON = "tocsin-ingest", "tocsin-ingest-poison"


def sdk(azurite: Azurite, queue: str = QUEUE) -> QueueClient:
    """A producer's client."""
    return QueueClient.from_connection_string(azurite.connection_string, queue, message_encode_policy=TextBase64EncodePolicy())


@pytest.fixture(scope="module")
def environment() -> dict[str, str]:
    """The functions of the queue run in a process of their own, as on Azure."""
    return {"SPLIT": "1"}


@pytest.fixture
async def producer(system: System) -> AsyncIterator[QueueClient]:
    async with sdk(system.azurite) as client:
        yield client


@pytest.fixture
async def key(tenant: Tenant) -> str:
    made = await tenant.admin.post(f"tenants/{tenant.name}/keys", {"scopes": ["events"]})
    return str(made.json()["key"])


def letter(tenant: Tenant, key: str, *events: Any) -> str:
    return json.dumps({"tenant": tenant.name, "key": key, "events": events})


async def rejects(api: Api, query: str = "") -> list[dict[str, Any]]:
    return await api.all(f"rejects{query}")


async def test_messages_of_the_sdk_become_events_or_rejects(tenant: Tenant, producer: QueueClient, key: str) -> None:
    for number in range(20):
        good = {"id": f"n-{number}", "due": text_of(now_ms() + 4_000), "payload": {"n": number}}
        await producer.send_message(letter(tenant, key, good, {"delay": "PT1S"}, {"delay": "PT4S", "payload": number}))
    await producer.send_message(letter(tenant, "tsn_not-a-key", {"delay": "PT1S", "payload": 1}))
    await eventually(lambda: len(tenant.hits) == 40, "40 deliveries")
    assert (await tenant.api.drained())["delivered"] == 40
    assert {hit.json()["n"] for hit in tenant.hits if isinstance(hit.json(), dict)} == set(range(20))

    async def all_rejects() -> list[dict[str, Any]] | None:
        found = await rejects(tenant.api)
        return found if len(found) == 20 else None

    found = await eventually(all_rejects, "20 rejects")
    assert {reject["problem"]["errors"][0]["pointer"] for reject in found} == {"/payload"}
    assert all(key not in reject["message"] for reject in found)
    assert len({hit.id for hit in tenant.hits}) == 40

    async def unattributed() -> bool:
        return any(tenant.name in reject["message"] for reject in await rejects(tenant.admin))

    await eventually(unattributed, "the reject of the wrong key")
    assert "tsn_not-a-key" not in json.dumps(await rejects(tenant.admin))
    assert (await tenant.api.call("DELETE", f"rejects/{found[0]['id']}")).status == 204
    assert len(await rejects(tenant.api)) == 19


async def test_a_message_that_is_not_text_becomes_a_reject(system: System, tenant: Tenant) -> None:
    former = {reject["id"] for reject in await rejects(tenant.admin)}
    async with QueueClient.from_connection_string(system.azurite.connection_string, QUEUE) as raw:
        await raw.send_message(base64.b64encode(b'{"events": "\xff\xfe"}').decode())

    async def rejected() -> dict[str, Any] | None:
        return next((reject for reject in await rejects(tenant.admin) if reject["id"] not in former), None)

    found = await eventually(rejected, "the reject")
    assert "not UTF-8" in found["problem"]["detail"]


async def test_every_queue_exists_from_the_first_start_on(system: System) -> None:
    async with QueueServiceClient.from_connection_string(system.azurite.connection_string) as service:
        found = {queue.name async for queue in service.list_queues()}
    assert found >= {*ALL_QUEUES, *POISON_QUEUES}


async def test_fast_events_are_looked_up_at_once_and_fire(tenant: Tenant) -> None:
    async def one(number: int) -> str:
        event_id = await tenant.api.create(delay="PT6S", payload=number, durability="fast")
        # It is found at once. On a slow machine it may be due already.
        assert (await tenant.api.event(event_id))["state"] in ("queued", "scheduled", "firing", "delivered")
        return event_id

    ids = await asyncio.gather(*map(one, range(100)))
    batch = [{"delay": "PT6S", "payload": number, "durability": "fast"} for number in range(100, 400)]
    answer = await tenant.api.post("events/batch", batch)
    assert {line["status"] for line in answer.json()["results"]} == {202}
    ids += [line["id"] for line in answer.json()["results"]]
    await eventually(lambda: len(tenant.hits) >= 400, "400 deliveries")
    assert (await tenant.api.drained())["delivered"] == 400
    events = {event["id"]: event for event in await tenant.api.all("events?limit=1000")}
    assert [events[event_id]["payload"] for event_id in ids] == list(range(400))
    assert {event_id: len(hits) for event_id, hits in tenant.by_id().items()} == dict.fromkeys(ids, 1)


async def cancel(api: Api, event_id: str) -> None:
    """Cancel an event that is due much later. Repeated while storage is too slow, and one of those cancels may have been made."""
    repeated = False
    while (answer := await api.call("DELETE", f"events/{event_id}")).status == 503:
        repeated = True
        await asyncio.sleep(1)
    assert answer.status == 204 or (repeated and answer.code == "already-final"), answer


async def test_a_cancel_that_races_the_queue_is_kept(tenant: Tenant, producer: QueueClient) -> None:
    chance = random.Random(4)

    async def one(number: int) -> tuple[str, bool]:
        # However slow the machine is, none is due before its cancellation.
        event_id = await tenant.api.create(delay="PT1H", payload=number, durability="fast")
        await asyncio.sleep(chance.uniform(0.0, 2.5))
        if number % 4:
            await cancel(tenant.api, event_id)
        return event_id, bool(number % 4)

    outcomes = dict(await asyncio.gather(*map(one, range(200))))
    kept = [event_id for event_id, cancelled in outcomes.items() if not cancelled]
    for event_id in kept:
        await tenant.api.in_state(event_id, "scheduled")
        assert (await tenant.api.post(f"events/{event_id}/fire")).status == 202

    async def consumed() -> bool:
        # The count includes messages that are hidden or being worked on.
        return not (await producer.get_queue_properties()).approximate_message_count

    await eventually(consumed, "an empty queue")
    events = [await tenant.api.event(event_id) for event_id, cancelled in outcomes.items() if cancelled]
    assert {event["state"] for event in events} == {"cancelled"}
    print(f"\n{sum('payload' not in event for event in events)} of {len(events)} were cancelled while queued")
    assert {(await tenant.api.post(f"events/{event['id']}/fire")).code for event in events} == {"already-final"}
    await eventually(lambda: len(tenant.hits) >= len(kept), "the deliveries of those that were kept")
    assert {event_id: len(hits) for event_id, hits in tenant.by_id().items()} == dict.fromkeys(kept, 1)


async def test_what_lies_in_the_poison_queue_is_taken_in_after_all(system: System, tenant: Tenant, key: str) -> None:
    async with sdk(system.azurite, POISON) as poison:
        await poison.send_message(letter(tenant, key, {"id": "late", "delay": "PT1S", "payload": 1}))

    async def waits() -> bool:
        async with sdk(system.azurite) as client:
            return (await client.get_queue_properties()).approximate_message_count == 1

    await eventually(waits, "the message back in the ingest queue, hidden for a minute")
    assert (await tenant.api.get("events/late")).status == 404


async def test_what_was_acknowledged_just_before_the_app_ended_fires_after_its_next_start(tmp_path: Path, receiver: Receiver) -> None:
    with Azurite(memory=True) as azurite:
        running = System(tmp_path, azurite, receiver)
        try:
            running.host.start()
            async with running.tenant() as tenant:
                events = [{"delay": "PT6S", "payload": number, "durability": "fast"} for number in range(200)]
                answers = await asyncio.gather(*(tenant.api.post("events", event) for event in events))
                ids = [str(answer.json()["id"]) for answer in answers]
                assert {answer.status for answer in answers} == {202}
                assert running.host.terminate() == 0
                running.host.start()
                await eventually(lambda: len(tenant.hits) >= len(ids), "all deliveries")
                await tenant.api.drained()
                assert {event_id: len(hits) for event_id, hits in tenant.by_id().items()} == dict.fromkeys(ids, 1)
        finally:
            running.host.end()
