"""The other channels: messages in a storage queue, and events in an Event Grid topic.

Event Grid's endpoint must be https, so the fake one has a certificate which the devhost trusts. An endpoint that is not Azure's
own gets a placeholder key in place of the identity's token.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from ssl import CERT_REQUIRED, PROTOCOL_TLS_SERVER, SSLContext
from threading import Event
from typing import Any
from urllib.parse import quote_plus

import pytest
from aiohttp import web
from azure.storage.queue import QueueClient
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from shared.core.version import version

from ..conftest import Api, System, Tenant, eventually, now_ms, text_of
from ..receiver import Receiver, after, status


def certify(path: Path) -> Path:
    """Write a self-signed certificate of 127.0.0.1 and localhost, and its key, into one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1")), x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path.write_bytes(made.public_bytes(serialization.Encoding.PEM) + private)
    return path


def server_side(certificate: Path) -> SSLContext:
    tls = SSLContext(PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate)
    return tls


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that the devhost trusts."""
    return certify(tmp_path_factory.mktemp("tls") / "trusted.pem")


@pytest.fixture(scope="module")
def client_certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The one that the tenant `mutual` may present."""
    return certify(tmp_path_factory.mktemp("client") / "client.pem")


@pytest.fixture(scope="module")
def environment(certificate: Path, client_certificate: Path) -> dict[str, str]:
    return {"SSL_CERT_FILE": str(certificate), "TOKENS": "1", "TOCSIN_CLIENT_CERTIFICATES": f"mutual/bank=file:{client_certificate}"}


@pytest.fixture(scope="module")
def grid(certificate: Path) -> Iterator[Receiver]:
    """Stands in for Event Grid, over TLS."""
    running = Receiver(server_side(certificate)).start()
    yield running
    running.stop()


@pytest.fixture
def queue(system: System, tenant: Tenant) -> Iterator[QueueClient]:
    """A queue of the test's own, not created yet."""
    with QueueClient.from_connection_string(system.azurite.connection_string, f"alarms-{tenant.name}") as client:
        yield client


def events_in(queue: QueueClient) -> list[dict[str, Any]]:
    """The messages that can be seen, as base64 of JSON."""
    return [json.loads(base64.b64decode(message.content)) for message in queue.peek_messages(max_messages=32)]


async def test_queue_channel_puts_a_cloudevent_as_json(tenant: Tenant, queue: QueueClient) -> None:
    queue.create_queue()
    await tenant.channel("alarms", type="queue", queue=queue.queue_name)
    due = now_ms() + 1_000
    event_id = await tenant.api.create(due=text_of(due), channel="alarms", payload={"text": "ü", "n": [1, None]})
    event = await tenant.api.ended(event_id, "delivered")
    [message] = events_in(queue)
    assert message["tocsinfired"] == event["attempts"][0]["at"] >= text_of(due)
    assert message.pop("tocsinuptimems") >= 0 and message.pop("tocsinversion") == version()
    assert {name: value for name, value in message.items() if name not in ("tocsinfired", "tocsinlatems", "time")} == {
        "specversion": "1.0",
        "id": event_id,
        "source": f"/tenants/{tenant.name}/channels/alarms",
        "type": "tocsin.event.due",
        "datacontenttype": "application/json",
        "tocsindue": text_of(due),
        "tocsinattempt": 1,
        "data": {"text": "ü", "n": [1, None]},
    }
    assert message["tocsinlatems"] == event["late_ms"]


async def test_missing_queue_is_refused_for_a_channel_and_an_event_waits_for_it(tenant: Tenant, queue: QueueClient) -> None:
    url, spec = f"tenants/{tenant.name}/channels/alarms", {"type": "queue", "queue": queue.queue_name}
    refused = await tenant.admin.call("PUT", url, spec)
    assert (refused.status, refused.json()["errors"][0]["pointer"]) == (422, "/queue")
    assert "does not exist" in refused.json()["errors"][0]["detail"]
    queue.create_queue()
    await tenant.channel("alarms", **spec)
    queue.delete_queue()
    event_id = await tenant.api.create(delay="PT0S", channel="alarms", retry={"first": "PT0.05S", "attempts": 60})
    event = await tenant.api.in_state(event_id, "retrying")
    assert "does not exist" in event["attempts"][0]["error"]
    queue.create_queue()
    await tenant.api.ended(event_id, "delivered")
    [message] = events_in(queue)
    assert message["id"] == event_id and message["tocsinattempt"] > 1


async def test_queue_channel_refuses_what_does_not_fit_and_the_services_own_queues(tenant: Tenant, queue: QueueClient) -> None:
    queue.create_queue()
    await tenant.channel("alarms", type="queue", queue=queue.queue_name)
    answer = await tenant.api.post("events", {"delay": "PT1H", "channel": "alarms", "payload": "x" * 41_000})
    assert (answer.status, answer.code) == (413, "payload-too-large")
    own = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/own", {"type": "queue", "queue": "tocsin-shards"})
    assert own.status == 422


async def test_eventgrid_channel_publishes_batches_of_cloudevents(tenant: Tenant, grid: Receiver) -> None:
    path = f"/{tenant.name}/api/events"
    await tenant.channel("topic", type="eventgrid", endpoint=grid.url(path))
    due = now_ms() + 2_500
    ids = await tenant.api.batch([{"due": text_of(due), "channel": "topic", "payload": {"n": n}} for n in range(150)])
    assert (await tenant.api.drained())["delivered"] == 150
    hits = grid.at(path)
    assert len(hits) < 75 and all(hit.headers["content-type"].startswith("application/cloudevents-batch+json") for hit in hits)
    published = {event["id"]: event for hit in hits for event in hit.json()}
    assert sum(len(hit.json()) for hit in hits) == 150 and set(published) == set(ids)
    for number, event_id in enumerate(ids):
        event = published[event_id]
        assert event["data"] == {"n": number} and event["type"] == "tocsin.event.due"
        assert event["source"] == f"/tenants/{tenant.name}/channels/topic"
        assert event["tocsindue"] == text_of(due) and event["tocsinattempt"] == 1 and event["tocsinfired"] >= text_of(due)
    assert all(hit.at >= due and "authorization" not in hit.headers for hit in hits)


async def test_servicebus_channel_sends_a_signed_message_and_hides_its_key(tenant: Tenant, grid: Receiver) -> None:
    path = f"/{tenant.name}/messages"
    grid.script(path, status(503), status(201))
    namespace, channels = grid.url("").removeprefix("https://"), f"tenants/{tenant.name}/channels"
    spec = {"type": "servicebus", "namespace": namespace, "entity": tenant.name, "sessions": True, "key_name": "sender", "key": "s3cret"}
    made = await tenant.admin.call("PUT", f"{channels}/bus", spec)
    assert made.status == 201 and made.json()["key"] == "***"
    event_id = await tenant.api.create(delay="PT0S", channel="bus", payload={"n": 1}, ordering_key="machine 7", retry={"first": "PT0.05S"})
    event = await tenant.api.ended(event_id, "delivered")
    assert [attempt["status"] for attempt in event["attempts"]] == [503, 201]
    hit = grid.at(path)[-1]
    assert json.loads(hit.headers["brokerproperties"]) == {"MessageId": event_id, "SessionId": "machine 7"}
    assert (hit.headers["cloudevents_id"], hit.headers["cloudevents_tocsinattempt"], hit.json()) == (f'"{event_id}"', "2", {"n": 1})
    resource, signature = hit.headers["authorization"].split("&sig=")
    assert resource == f"SharedAccessSignature sr={quote_plus(grid.url('/' + tenant.name))}" and "s3cret" not in signature
    evil = {"type": "servicebus", "namespace": "evil.servicebus.windows.net", "entity": "q"}
    refused = await tenant.admin.call("PUT", f"{channels}/other", evil)
    assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == "/namespace"


async def test_ordered_key_has_one_delivery_at_a_time_and_other_keys_do_not_wait(tenant: Tenant) -> None:
    root, wait = f"/{tenant.name}/keys", Event()

    async def held(request: web.BaseRequest) -> web.StreamResponse:
        while not wait.is_set():  # noqa: ASYNC110 - it is set in another thread
            await asyncio.sleep(0.02)
        return web.Response(status=503)

    answers = after(0.05, status(204))
    tenant.receiver.script(f"{root}/blocked", held, answers)
    tenant.receiver.script(f"{root}/ordered", answers)
    await tenant.channel("keys", root, per_key={"ordered": True})

    def event(name: str, key: str | None, due: int, path: str = "/ordered", **more: Any) -> dict[str, Any]:
        keyed = {"ordering_key": key} if key is not None else {}
        return {"id": name, "due": text_of(due), "payload": 1, "channel": "keys", "target": {"path": path}, **keyed, **more}

    # The first event of the key is under way, so its successors wait, whenever they are stored and in whatever order.
    now = now_ms()
    await tenant.api.batch([event("first", "machine 7", now, "/blocked", retry={"schedule": ["PT0.1S"]})])
    await eventually(lambda: tenant.receiver.at(f"{root}/blocked"), "the first delivery")
    await tenant.api.batch([event(f"next-{n}", "machine 7", now + n) for n in (3, 1, 2)])
    await tenant.api.batch([event("other", "machine 8", now, "/other"), event("plain", None, now, "/other")])
    await tenant.api.ended("other", "delivered")
    await tenant.api.ended("plain", "delivered")

    async def waits() -> bool:
        return (await tenant.api.event("next-1")).get("held", {}).get("reason") == "ordering-key"

    await eventually(waits, "an event that shows what it waits for")
    assert not tenant.receiver.at(f"{root}/ordered")
    wait.set()
    for name in ("first", "next-1", "next-2", "next-3"):
        await tenant.api.ended(name, "delivered")
    # A failed event blocks its key.
    keyed = [hit.id for hit in tenant.receiver.hits if hit.path in (f"{root}/blocked", f"{root}/ordered")]
    assert keyed == ["first", "first", "next-1", "next-2", "next-3"]
    assert tenant.receiver.most_at_once[f"{root}/ordered"] == 1


async def test_concurrency_of_a_key_is_kept(tenant: Tenant) -> None:
    root = f"/{tenant.name}/few"
    tenant.receiver.script(f"{root}/a", after(0.1, status(204)))
    await tenant.channel("few", root, per_key={"concurrency": 2})
    keyed = {"channel": "few", "payload": 1, "ordering_key": "a", "target": {"path": "/a"}}
    await tenant.api.batch([{**keyed, "delay": "PT2.5S"} for _ in range(8)])
    assert (await tenant.api.drained())["delivered"] == 8
    assert len(tenant.receiver.at(f"{root}/a")) == 8 and tenant.receiver.most_at_once[f"{root}/a"] <= 2


async def test_http_channel_presents_its_tenants_client_certificate(
    system: System, tenant: Tenant, certificate: Path, client_certificate: Path
) -> None:
    demanding = server_side(certificate)
    demanding.verify_mode = CERT_REQUIRED
    demanding.load_verify_locations(client_certificate)
    bank = Receiver(demanding).start()
    try:
        spec = {"type": "http", "url": bank.url("/pay"), "client_certificate": "bank"}
        refused = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/bank", spec)
        assert refused.status == 422 and refused.json()["errors"][0]["pointer"] == "/client_certificate"
        await tenant.admin.call("PUT", "tenants/mutual", {})
        made = await tenant.admin.call("PUT", "tenants/mutual/channels/bank", spec)
        assert made.status == 201 and made.json()["client_certificate"] == "bank"
        key = await tenant.admin.post("tenants/mutual/keys", {"scopes": ["events"]})
        async with Api(system.host.url, key.json()["key"]) as api:
            await api.ended(await api.create(delay="PT0S", channel="bank", payload={"n": 1}), "delivered")
        [hit] = bank.at("/pay")
        assert hit.json() == {"n": 1} and hit.headers["ce-source"] == "/tenants/mutual/channels/bank"
    finally:
        bank.stop()


async def test_eventgrid_that_is_busy_is_tried_again_and_its_refusal_is_final(tenant: Tenant, grid: Receiver) -> None:
    path = f"/{tenant.name}/api/events"
    await tenant.channel("topic", type="eventgrid", endpoint=grid.url(path))
    grid.script(path, status(503), status(200), status(400))
    quick = {"first": "PT0.05S"}
    first = await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="topic", retry=quick), "delivered")
    assert [attempt["outcome"] for attempt in first["attempts"]] == ["retry", "delivered"]
    second = await tenant.api.ended(await tenant.api.create(delay="PT0S", channel="topic", retry=quick), "dead")
    assert "400" in second["error"]


async def test_eventgrid_endpoint_must_be_https_and_allowed(tenant: Tenant, grid: Receiver) -> None:
    for endpoint in (grid.url("/").replace("https:", "http:"), "https://10.0.0.1/api/events"):
        spec = {"type": "eventgrid", "endpoint": endpoint}
        answer = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/topic", spec)
        assert answer.status == 422 and answer.json()["errors"][0]["pointer"] == "/endpoint"


async def test_https_receiver_whose_certificate_nobody_vouches_for_is_refused(tenant: Tenant, tmp_path: Path) -> None:
    other = Receiver(server_side(certify(tmp_path / "stranger.pem"))).start()
    try:
        await tenant.channel("strange", type="http", url=other.url("/hook"))
        event_id = await tenant.api.create(delay="PT0S", channel="strange")
        event = await tenant.api.in_state(event_id, "retrying")
        assert "TLS failure" in event["attempts"][0]["error"] and other.hits == []
    finally:
        other.stop()


async def test_https_receiver_with_a_good_certificate_is_reached(tenant: Tenant, grid: Receiver) -> None:
    await tenant.channel("safe", type="http", url=grid.url(f"/{tenant.name}/hook"))
    event_id = await tenant.api.create(delay="PT0S", channel="safe")
    await tenant.api.ended(event_id, "delivered")
    await eventually(lambda: [hit.id for hit in grid.at(f"/{tenant.name}/hook")] == [event_id], "the delivery")


@pytest.mark.devhost("its fake identity gives tokens")
async def test_deliveries_carry_a_token_of_entra_while_the_operator_lists_the_host(tenant: Tenant, grid: Receiver) -> None:
    path = f"/{tenant.name}/token"
    host = grid.url(path).partition("//")[2].partition("/")[0].replace("127.0.0.1", "localhost")
    spec = {"type": "http", "url": f"https://{host}{path}", "entra_audience": "api://orders", "answers": "all"}
    unlisted = await tenant.admin.call("PUT", f"tenants/{tenant.name}/channels/api", spec)
    assert (unlisted.status, unlisted.json()["errors"][0]["pointer"]) == (422, "/entra_audience")
    for audience, expected in (("https://vault.azure.net", 422), ("https://acc.blob.core.windows.net", 422), ("api://orders", 200)):
        rules = [{"audience": audience, "hosts": [host]}]
        assert (await tenant.admin.call("PUT", f"tenants/{tenant.name}", {"entra_audiences": rules})).status == expected
    assert (await tenant.api.call("PUT", f"tenants/{tenant.name}", {"entra_audiences": []})).status == 403
    await tenant.channel("api", **spec)

    event_id = await tenant.api.create(delay="PT0S", channel="api")
    await tenant.api.ended(event_id, "delivered")
    (hit,) = grid.at(path)
    scheme, _, token = hit.headers["authorization"].partition(" ")
    claims = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "=="))
    assert (scheme, claims["aud"]) == ("Bearer", "api://orders")
    assert token not in json.dumps(await tenant.api.event(event_id))

    assert (await tenant.admin.call("PUT", f"tenants/{tenant.name}", {})).status == 200

    async def refused() -> dict[str, Any] | None:
        # The former rules may hold for a second.
        event = await tenant.api.event(await tenant.api.create(delay="PT0S", channel="api"))
        while event["state"] not in ("retrying", "delivered"):
            await asyncio.sleep(0.05)
            event = await tenant.api.event(event["id"])
        return event if event["state"] == "retrying" else None

    event = await eventually(refused, "a delivery that is refused")
    assert "token of Entra" in event["attempts"][-1]["error"]
