"""Both clients and the documented receivers against the running app: real HTTP, real storage."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from azure.data.tables import TableClient

import shared as tocsin
from tests.integration.devhost.conftest import Process
from tests.integration.scheduler.conftest import ADMIN_KEY, System, Tenant, eventually
from tests.integration.scheduler.receiver import status

from .conftest import EXAMPLES
from .receivers import STRANGER, fastapi, read, send, unsigned

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=1)


@pytest.fixture
def client(system: System, tenant: Tenant) -> Iterator[tocsin.Client]:
    with tocsin.Client(system.host.url, ADMIN_KEY, tenant=tenant.name) as client:
        yield client


async def test_event_goes_from_schedule_to_a_delivery_that_verifies(client: tocsin.Client, tenant: Tenant) -> None:
    secret = await tenant.channel("signed", "/client-signed")
    payload = {"order": 17, "sum": 1.1, "big": 2**70, "text": "Grüße"}
    due = datetime.now(UTC) + SOON
    event = client.schedule(payload, due=due, channel="signed", expires=HOUR, labels={"team": "orders"}, retry={"attempts": 2})
    assert (event.state, event.tenant, event.channel, event.expires) == ("scheduled", tenant.name, "signed", HOUR)
    assert timedelta(0) <= event.due - due < timedelta(milliseconds=1)
    done = await eventually(lambda: found if (found := client.get(event.id)).final else None, "a final state")
    [hit] = tenant.receiver.at("/client-signed")
    delivery = tocsin.verify(hit.headers, hit.body, secret)
    assert (delivery.id, delivery.payload, delivery.due, delivery.attempt) == (event.id, payload, event.due, 1)
    assert (delivery.tenant, delivery.channel) == (tenant.name, "signed") and delivery.late >= timedelta(0)
    [attempt] = done.attempts
    assert (done.state, done.payload, done.labels) == ("delivered", payload, {"team": "orders"}) and attempt.at == delivery.fired
    with pytest.raises(tocsin.BadDelivery):
        tocsin.verify(hit.headers, hit.body + b" ", secret)


def test_same_id_and_content_again_is_the_same_event_and_other_content_a_conflict(client: tocsin.Client) -> None:
    event = client.schedule(1, id="twice", delay=HOUR)
    assert client.schedule(1, id="twice", delay=HOUR) == event
    with pytest.raises(tocsin.Conflict) as refused:
        client.schedule(2, id="twice", delay=HOUR)
    assert refused.value.code == "id-conflict"


def test_changes_are_made_only_to_the_version_that_was_seen(client: tocsin.Client) -> None:
    event = client.schedule(1, delay=HOUR)
    changed = client.change(event.id, payload=[2], delay=2 * HOUR, if_match=event.etag)
    assert changed.payload == [2] and changed.due > event.due and changed.etag != event.etag
    with pytest.raises(tocsin.Changed):
        client.change(event.id, payload=3, if_match=event.etag)
    client.cancel(event.id, if_match=changed.etag)
    assert client.get(event.id).state == "cancelled"
    with pytest.raises(tocsin.Conflict) as refused:
        client.cancel(event.id)
    assert refused.value.code == "already-final"


async def test_dead_event_is_found_and_brought_back(client: tocsin.Client, tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(404), status(204))
    event = client.schedule(1, delay=HOUR)
    assert client.fire(event.id).id == event.id
    await eventually(lambda: client.get(event.id).state == "dead", "the dead letter")
    assert [dead.id for dead in client.dead_letters()] == [event.id]
    client.redrive(event.id)
    await eventually(lambda: client.get(event.id).state == "delivered", "the redriven event")
    assert client.stats().delivered == 1


async def test_batch_lists_and_errors_through_both_clients(client: tocsin.Client, system: System, tenant: Tenant) -> None:
    events: list[tocsin.NewEvent] = [{"payload": n, "delay": HOUR} for n in range(403)]
    events[3]["channel"] = "no-such"
    batch = client.batch(events)
    assert batch.accepted == 402 and [(line.index, line.status) for line in batch.rejected] == [(3, 422)]
    ids = {line.id for line in batch.results if line.ok}
    assert {event.id for event in client.list(state="scheduled")} == ids
    async with tocsin.AsyncClient(system.host.url, ADMIN_KEY, tenant=tenant.name) as other:
        more = await other.batch(({"payload": n, "delay": HOUR} for n in range(100)), make_ids=True)
        assert more.accepted == 100
        found = {event.id async for event in other.list(since=datetime.now(UTC), until=datetime.now(UTC) + 2 * HOUR)}
        assert found == ids | {line.id for line in more.results} and (await other.stats()).open == 502
        with pytest.raises(tocsin.NotFound):
            await other.get("nothing-here")
        with pytest.raises(tocsin.Invalid) as invalid:
            await other.schedule(1, delay=HOUR, channel="no-such")
        assert [fault.pointer for fault in invalid.value.errors] == ["/channel"]
    async with tocsin.AsyncClient(system.host.url, "no-valid-key") as stranger:
        with pytest.raises(tocsin.Unauthenticated):
            await stranger.stats()
    with tocsin.Client(f"{system.host.url}/elsewhere", ADMIN_KEY) as lost, pytest.raises(tocsin.NotFound, match="URL"):
        lost.stats()


async def test_fast_events_are_queued_and_found_at_once(client: tocsin.Client) -> None:
    event = client.schedule(1, delay=HOUR, durability="fast")
    assert client.get(event.id).state in ("queued", "scheduled")
    await eventually(lambda: client.get(event.id).state == "scheduled", "the stored event")
    client.cancel(event.id)


def test_schedules_and_load(client: tocsin.Client) -> None:
    made = client.schedules.put("daily", {"n": 1}, cron="0 9 * * *", timezone="Europe/Berlin", jitter=timedelta(minutes=1))
    assert (made.cron, made.jitter, made.paused) == ("0 9 * * *", timedelta(minutes=1), False)
    assert len(client.schedules.preview("daily", 3)) == 3 and client.schedules.pause("daily").paused
    assert [each.id for each in client.schedules.list()] == ["daily"]
    client.schedules.delete("daily")
    with pytest.raises(tocsin.NotFound):
        client.schedules.get("daily")
    client.batch([{"payload": 1, "delay": timedelta(minutes=30)}] * 5)
    assert sum(minute.scheduled for minute in client.load()) == 5


async def reminders(tenant: Tenant) -> str:
    """Make the tenant's channel `reminders`, which leads nowhere yet; its secret."""
    return await tenant.channel("reminders", "/nowhere")


async def remind(system: System, tenant: Tenant, hook: str, text: str) -> str:
    """Let the channel lead to `hook`, schedule a reminder, wait until it is delivered; its id."""
    answer = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/reminders", {"type": "http", "url": hook})
    assert answer.status == 200, answer
    async with tocsin.AsyncClient(system.host.url, ADMIN_KEY, tenant=tenant.name) as client:
        event = await client.schedule({"text": text}, delay=timedelta(0), channel="reminders")

        async def ended() -> tocsin.Event | None:
            found = await client.get(event.id)
            return found if found.final else None

        done = await eventually(ended, "the delivery")
        assert done.state == "delivered", done
        return event.id


async def test_fastapi_receiver_takes_each_reminder_once_and_refuses_strangers(
    system: System, tenant: Tenant, as_installed: Path, tmp_path: Path
) -> None:
    secret = await reminders(tenant)
    with fastapi(tmp_path, as_installed, f"{STRANGER[:-4]} {secret}") as url:
        hook = f"{url}/hooks/reminders"
        id = await remind(system, tenant, hook, "water the plants")
        assert read(f"{url}/reminders") == ["water the plants"]
        assert send(hook, id, "again", secret) == 204
        assert send(hook, "forged", "transfer money", STRANGER) == 401
        assert unsigned(hook) == 401
        assert read(f"{url}/reminders") == ["water the plants"]


async def test_functions_receiver_takes_each_reminder_once_and_refuses_strangers(
    system: System, tenant: Tenant, as_installed: Path, tmp_path: Path
) -> None:
    secret, storage = await reminders(tenant), system.azurite.connection_string
    settings = {"AZURITE": "off", "AzureWebJobsStorage": storage, "TOCSIN_SECRET": secret, "PYTHONPATH": str(as_installed)}
    process = Process(tmp_path, "--no-receiver", app=EXAMPLES / "receiver_functions", **settings)
    try:
        hook = f"{process.ready()}/api/reminders"
        id = await remind(system, tenant, hook, "water the plants")
        assert send(hook, id, "again", secret) == 204
        assert send(hook, "forged", "transfer money", STRANGER) == 401
        assert unsigned(hook) == 401
        with TableClient.from_connection_string(storage, "Reminders") as table:
            assert [(row["RowKey"], row["text"]) for row in table.list_entities()] == [(id, "water the plants")]
        assert STRANGER not in process.text and secret not in process.text
    finally:
        process.popen.terminate()
        process.exit_code()
