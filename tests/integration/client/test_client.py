"""Both clients and the documented receivers against the running app: real HTTP, real storage."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from azure.data.tables import TableClient

import shared as tocsin
from devhost.azurite import ROOT, free_ports
from devhost.receiver import DevhostReceiver
from tests.integration.devhost.conftest import Process
from tests.integration.scheduler.conftest import ADMIN_KEY, System, Tenant, eventually
from tests.integration.scheduler.receiver import status

from . import generated, typescript
from .conftest import EXAMPLES
from .pages import run, shell_blocks
from .receivers import STRANGER, fastapi, make_channel, read, send, unsigned

HOUR = timedelta(hours=1)
SOON = timedelta(seconds=1)
MERGES = ROOT / "tests" / "data" / "merged_definitions.json"
FIRST_STEPS = EXAMPLES.parent / "start" / "first-steps.md"


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


async def test_a_receiver_completes_an_event_later(client: tocsin.Client, system: System, tenant: Tenant) -> None:
    secret = await tenant.channel("works", "/client-works", long_work={"within": "PT1H"})
    tenant.receiver.script("/client-works", status(202, Tocsin_Complete="later"))
    event = client.schedule({"order": 17}, delay=timedelta(0), channel="works")
    await eventually(lambda: client.get(event.id).state == "working", "the state working")
    [hit] = tenant.receiver.at("/client-works")
    found = tocsin.verify(hit.headers, hit.body, secret, tolerance=3600).work
    assert found is not None and found.within == HOUR
    assert found.url.startswith(f"{system.host.url}/api/v1/work/{tenant.name}/")
    work = tocsin.Work.load(found.save())
    assert (await asyncio.to_thread(work.heartbeat)).state == "working"
    assert (await asyncio.to_thread(work.complete)).event == "delivered" and client.get(event.id).state == "delivered"
    with pytest.raises(tocsin.Conflict, match="work-over"):
        await asyncio.to_thread(work.fail)
    with pytest.raises(tocsin.Unauthenticated):
        await asyncio.to_thread(tocsin.Work(work.url, work.token[:-1] + ("A" if work.token[-1] != "A" else "B")).complete)


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


@pytest.mark.devhost("it shows failed deliveries in the terminal")
async def test_dead_event_is_seen_in_the_terminal_found_and_brought_back(client: tocsin.Client, system: System, tenant: Tenant) -> None:
    tenant.receiver.script(tenant.path, status(422), status(204))
    event = client.schedule(1, delay=HOUR)
    assert client.fire(event.id).id == event.id
    await eventually(lambda: client.get(event.id).state == "dead", "the dead letter")
    [log_line] = [line for line in system.host.text.splitlines() if event.id in line and "it is dead" in line]
    assert f" {tenant.name}/default " in log_line and "422" in log_line
    assert log_line.endswith(f"see GET {system.host.url}/api/v1/events/{event.id}")
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
    cron = f"0 {(datetime.now(ZoneInfo('Europe/Berlin')) + 12 * HOUR).hour} * * *"  # no occurrence within the hour whose load is asked for
    made = client.schedules.put("daily", {"n": 1}, cron=cron, timezone="Europe/Berlin", jitter=timedelta(minutes=1))
    assert (made.cron, made.jitter, made.paused) == (cron, timedelta(minutes=1), False)
    assert len(client.schedules.preview("daily", 3)) == 3 and client.schedules.pause("daily").paused
    assert [each.id for each in client.schedules.list()] == ["daily"]
    client.schedules.delete("daily")
    with pytest.raises(tocsin.NotFound):
        client.schedules.get("daily")
    client.batch([{"payload": 1, "delay": timedelta(minutes=30)}] * 5)
    assert sum(minute.scheduled for minute in client.load()) == 5


def test_what_is_set_up_is_read_changed_and_removed(client: tocsin.Client, system: System) -> None:
    made = client.channels.put("hook", type="http", url=system.receiver.url("/hook"), headers={"x-team": "blue"}, per_key={"ordered": True})
    changed = client.channels.set("hook", timeout=timedelta(seconds=9))
    assert changed.definition == {**made.definition, "timeout": "PT9S"} and changed.etag != made.etag
    assert {each.name for each in client.channels.list()} >= {"default", "hook"}
    key = client.keys.create(["events"], note="the web shop")
    with tocsin.Client(system.host.url, key.key) as user:
        own = user.keys.own()
        assert (own.prefix, own.scopes) == (key.prefix, ("events",))
        assert client.calendars.put("holidays", [datetime(2026, 12, 25, tzinfo=UTC).date()]) == user.calendars.get("holidays")
    client.fleets.put("web", partitions=4)
    fleet = client.fleets.set("web", servers={"minimum": 2})
    assert (fleet.partitions, fleet.definition["servers"]) == (4, {"minimum": 2, "spare": 0})
    client.fleets.delete("web")
    client.channels.delete("hook", if_match=changed.etag)
    with pytest.raises(tocsin.NotFound):
        client.channels.get("hook")
    with tocsin.Client(system.host.url, ADMIN_KEY) as admin:
        settings = admin.tenants.set(own.tenant or "", searchable=["order"], limits={"open_events": 900})
        assert settings == admin.tenants.get(settings.name) and settings.definition["searchable"] == ["order"]


UNEXPECTED = ["water the plants", {}, {"text": 1}, None]
"""Payloads that are signed as they should be, and are no reminders."""


async def set_up(system: System, example: str, folder: Path, hook: str) -> str:
    """Make the channel as the example's page says; its secret."""
    page = EXAMPLES / example / "README.md"
    [log_line] = re.findall(r'"url": "(http://[^"]+)"', page.read_text())
    addresses = {"http://localhost:7071": system.host.url, log_line: hook}
    return (await run(shell_blocks(page)[0] + 'printf %s "$TOCSIN_SECRET"\n', folder, addresses)).splitlines()[-1]


async def try_it(system: System, example: str, folder: Path) -> str:
    """Schedule a reminder as the example's page says, wait until it is delivered; its id."""
    made = await run(shell_blocks(EXAMPLES / example / "README.md")[1], folder, {"http://localhost:7071": system.host.url})
    async with tocsin.AsyncClient(system.host.url, ADMIN_KEY, tenant="demo") as client:

        async def ended() -> tocsin.Event | None:
            found = await client.get(json.loads(made)["id"])
            return found if found.final else None

        done = await eventually(ended, "the delivery")
        assert done.state == "delivered", done
        return str(done.id)


async def test_fastapi_receiver_takes_each_reminder_once_and_refuses_strangers(system: System, as_installed: Path, tmp_path: Path) -> None:
    port = free_ports("127.0.0.1", 1)[0]
    hook = f"http://127.0.0.1:{port}/hooks/reminders"
    secret = await set_up(system, "receiver_fastapi", tmp_path, hook)
    with fastapi(tmp_path, as_installed, f"{STRANGER[:-4]} {secret}", port) as url:
        id = await try_it(system, "receiver_fastapi", tmp_path)
        assert read(f"{url}/reminders") == ["water the plants"]
        assert send(hook, id, {"text": "again"}, secret) == 204
        assert send(hook, "forged", {"text": "transfer money"}, STRANGER) == 401
        assert unsigned(hook) == 401
        assert [send(hook, "odd", payload, secret) for payload in UNEXPECTED] == [422] * len(UNEXPECTED)
        assert read(f"{url}/reminders") == ["water the plants"]


async def test_functions_receiver_takes_each_reminder_once_and_refuses_strangers(
    system: System, as_installed: Path, tmp_path: Path
) -> None:
    port = free_ports("127.0.0.1", 1)[0]
    hook = f"http://127.0.0.1:{port}/api/reminders"
    secret, storage = await set_up(system, "receiver_functions", tmp_path, hook), system.azurite.connection_string
    spec = {"type": "http", "url": f"http://127.0.0.1:{port}/api/reports", "long_work": {"within": "PT10M"}}
    secrets = f"{secret} {make_channel(f'{system.host.url}/api/v1/tenants/demo/channels/reports', ADMIN_KEY, spec)}"
    settings = {"AZURITE": "off", "AzureWebJobsStorage": storage, "TOCSIN_SECRET": secrets, "PYTHONPATH": str(as_installed)}
    process = Process(tmp_path, "--no-receiver", app=EXAMPLES / "receiver_functions", PORT=str(port), **settings)
    try:
        process.ready()
        id = await try_it(system, "receiver_functions", tmp_path)
        assert send(hook, id, {"text": "again"}, secret) == 204
        assert send(hook, "forged", {"text": "transfer money"}, STRANGER) == 401
        assert unsigned(hook) == 401
        assert [send(hook, "odd", payload, secret) for payload in UNEXPECTED] == [422] * len(UNEXPECTED)
        with TableClient.from_connection_string(storage, "Reminders") as table:
            assert [(row["RowKey"], row["text"]) for row in table.list_entities()] == [(id, "water the plants")]
        async with tocsin.AsyncClient(system.host.url, ADMIN_KEY, tenant="demo") as client:
            report = await client.schedule({"of": "sales"}, delay=timedelta(0), channel="reports")

            async def written() -> bool:
                return (await client.get(report.id)).state == "delivered"

            await eventually(written, "the completion of the report")
        with TableClient.from_connection_string(storage, "Reports") as table:
            assert [(row["RowKey"], json.loads(row["text"])) for row in table.list_entities()] == [(report.id, {"of": "sales"})]
        assert all(each not in process.text for each in (STRANGER, *secrets.split()))
    finally:
        process.signal(signal.SIGINT)
        process.exit_code()


async def test_producer_on_the_page_is_the_file_and_its_events_come_in_through_the_queue(system: System, tmp_path: Path) -> None:
    page = EXAMPLES.parent / "how-to" / "ingest.md"
    [code] = re.findall(r"<!-- docs/examples/ingest/send.py -->\n```python\n(.*?)```", page.read_text(), re.DOTALL)
    assert code == (EXAMPLES / "ingest" / "send.py").read_text()
    install, ask = shell_blocks(page)
    named = [line for file in ROOT.glob("requirements*.in") for line in file.read_text().splitlines()]
    pin = next(line for line in named if line.startswith("azure-storage-queue"))
    started = {f"pip install {pin}\npython docs": f"STORAGE='{system.azurite.connection_string}' {sys.executable} {ROOT / 'docs'}"}
    await run(install, tmp_path, started)
    await eventually(lambda: b'{"order": 17}' in [hit.body for hit in system.receiver.at("/demo")], "the good event")

    async def rejected() -> str | None:
        printed = await run(ask, tmp_path, {"http://localhost:7071": system.host.url})
        return printed if json.loads(printed)["items"] else None

    [reject] = json.loads(await eventually(rejected, "the reject", pause=0.5))["items"]
    assert "order" in reject["message"] and reject["problem"]["errors"][0]["pointer"] == "/delay"


async def test_tour_of_the_api_goes_as_the_page_says_and_goes_again(system: System, tmp_path: Path) -> None:
    _, tour, rotate, *_ = shell_blocks(FIRST_STEPS)
    here = {"http://localhost:7071/receiver": system.receiver.url("/shop"), "http://localhost:7071": system.host.url}
    for first in (True, False):
        printed = [json.loads(line) for line in (await run(tour, tmp_path, here)).splitlines() if line]
        tenant, channel, made, moved, batch, redriven = printed
        assert (tenant["name"], channel["name"], "secret" in channel) == ("shop", "default", first)
        assert made["state"] == moved["state"] == "scheduled" and moved["due"] > made["due"]
        assert (batch["accepted"], redriven) == (1, {"redriven": 0})
        # The page's id is the second's.
        await eventually(lambda begun=made["id"]: f"hello-{int(time.time())}" > begun, "the next second")
    secret = json.loads(await run(rotate, tmp_path, {"http://localhost:7071": system.host.url}))
    assert secret["secret"].startswith("whsec_") and secret["previous_until"]


async def test_first_schedule_dead_letter_redrive_and_callback_go_as_the_page_says(system: System, tmp_path: Path) -> None:
    _, _, _, repeat, dies, look, mend, again = shell_blocks(FIRST_STEPS)
    app = {"http://localhost:7071": system.host.url}
    nightly, triggered, preview = map(json.loads, (await run(repeat, tmp_path, app)).splitlines())
    assert nightly["next"] == preview["items"][0]["at"] and len(preview["items"]) == 3 and triggered["payload"] == {"job": "report"}
    receiver = DevhostReceiver()
    try:
        both = {"http://localhost:7071/receiver": f"http://127.0.0.1:{await receiver.start('127.0.0.1', 0)}"} | app
        _, made = map(json.loads, (await run(dies, tmp_path, both)).splitlines())
        head = "\n".join(dies.splitlines()[:2]).replace("dies-$(date +%s)", made["id"]) + "\n"

        async def printed(block: str, addresses: dict[str, str]) -> list[dict[str, Any]]:
            return [json.loads(line) for line in (await run(head + block, tmp_path, addresses)).splitlines()]

        async def dead_letters() -> list[dict[str, Any]]:
            return list((await printed(look, app))[0]["items"])

        def told() -> bool:
            found = [json.loads(hit.body) for hit in list(system.receiver.hits) if b'"event.' in hit.body]
            return {each["type"] for each in found if each["event"] == made["id"]} == {"event.dead", "event.delivered"}

        [dead] = await eventually(dead_letters, "the dead letter")
        assert (dead["id"], dead["attempts"][0]["status"], dead["attempts"][0]["outcome"]) == (made["id"], 400, "final")
        assert (await printed(mend, both))[1] == {"redriven": 1}

        async def delivered() -> dict[str, Any] | None:
            [event] = await printed(again, app)
            return event if event["state"] == "delivered" else None

        event = await eventually(delivered, "the delivery")
        assert [each["status"] for each in event["attempts"]] == [400, 204]
        assert {(each["path"], each["status"]) for each in receiver.deliveries} == {("/status/400", 400), ("/", 204)}
        await eventually(told, "both callbacks, on the channel default")
    finally:
        await receiver.close()


def test_a_client_that_openapi_python_client_makes_creates_an_event(system: System, tenant: Tenant, tmp_path: Path) -> None:
    # It knows neither JSON lines nor files of any type.
    assert generated.generate(tmp_path) == ["GET /api/dashboard/{asset} within operations.", "POST /api/v1/events/batch within events."]
    generated.type_check(tmp_path, generated.PROGRAM)
    generated.run(tmp_path, "program.py", system.host.url, ADMIN_KEY, tenant.name)
    with tocsin.Client(system.host.url, ADMIN_KEY, tenant=tenant.name) as client:
        assert client.get("generated").payload == {"order": 17}


def test_typescript_client_and_generated_types_against_the_service(system: System, tenant: Tenant, tmp_path: Path) -> None:
    compiled = typescript.compiled(tmp_path)
    tests = compiled / "tests"
    (tmp_path / "signatures.json").write_text(json.dumps(typescript.signed_requests()))
    there = {"TOCSIN_URL": system.host.url, "TOCSIN_KEY": ADMIN_KEY, "TOCSIN_TENANT": tenant.name}
    typescript.node(tests / "generated.js", **there)
    files = sorted(tests.glob("*.test.js"))
    assert len(files) == 3
    printed = typescript.node("--test", *files, SIGNATURES=str(tmp_path / "signatures.json"), MERGES=str(MERGES), **there)
    assert "fail 0" in printed and "skipped 0" in printed
    assert typescript.node(compiled / "cookbook" / "orders.js", **there) == "Order 17 is cancelled, order 18 is paid.\n"
    assert typescript.node(compiled / "cookbook" / "prices.js", **there).splitlines()[-1] == "The price is tea in Asia/Tokyo: 349."


def test_types_of_the_typescript_client_are_those_of_the_document() -> None:
    committed = (typescript.SOURCES / "src" / "openapi.ts").read_text(encoding="utf-8")
    assert typescript.node(typescript.SOURCES / "generate.mjs", "--stdout") == committed, "run `make openapi`"


def test_the_typescript_client_needs_nothing_of_node() -> None:
    for source in (typescript.SOURCES / "src").glob("*.ts"):
        assert not re.search(r'\bBuffer\b|\bprocess\.|"node:|\brequire\(', source.read_text(encoding="utf-8")), source
