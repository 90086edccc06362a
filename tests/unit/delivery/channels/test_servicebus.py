"""The Service Bus sender, against a namespace in memory and against the same one behind a real server with TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.core.exceptions import ClientAuthenticationError
from pydantic import TypeAdapter, ValidationError

from shared.core.clock import SettableClock
from shared.core.errors import UnsafeSettings
from shared.core.http1.pool import Place
from shared.core.settings import Settings
from shared.delivery.channels.guarded_client import Client, Exchange, GuardedClient
from shared.delivery.channels.model import MAX_BUS_PAYLOAD, Channel, QueueChannel, ServiceBusChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target, Verdict
from shared.delivery.channels.servicebus import ServiceBusSender, judge, message_id
from shared.delivery.channels.validation import find_faults, mask_secrets, restore_secrets
from shared.delivery.egress_guard import Egress
from shared.delivery.identity_tokens import IdentityTokens, NoIdentityToken
from shared.delivery.listed_tenants import TenantIdentity
from shared.delivery.service_bus import parse_grants, sign_access
from shared.testing.service_bus import BusAnswer, FakeBusClient, FakeNamespace
from tests.certificates import make_certificate
from tests.texts import assert_text

from .conftest import NOW, Listen, Request, deployed_settings, make_delivery

HOST = "orders.servicebus.windows.net"
KEY = {"key_name": "sender", "key": "c2VjcmV0+/=="}


def to_bus(tenant: str = "demo", **spec: Any) -> Target:
    given = {"type": "servicebus", "namespace": HOST, "entity": "alarms/north"} | spec
    return Target(tenant, "bus", ServiceBusChannel(**given))


def make_settings(**given: str) -> Settings:
    return Settings(storage="UseDevelopmentStorage=true", **{"egress_allow": HOST, "service_bus": HOST} | given)


class GivenTokens:
    """Gives the same token always."""

    def __init__(self, token: str = "s3cret-token") -> None:
        self.token, self.refusals, self.asked, self.closed = token, 0, 0, False

    async def get(self) -> str:
        self.asked += 1
        return self.token

    def refused(self) -> None:
        self.refusals += 1

    async def close(self) -> None:
        self.closed = True


class OtherPort:
    """Sends what goes to the port of https to that of a test's server, over the real client."""

    def __init__(self, client: GuardedClient, port: int) -> None:
        self._client, self._port = client, port

    async def send(self, exchange: Exchange, delivery: OutgoingDelivery) -> Verdict:
        exchange.plan.place = Place(exchange.place.host, self._port, tls=True)  # type: ignore[attr-defined]
        return await self._client.send(exchange, delivery)

    async def close(self) -> None:
        await self._client.close()


class World:
    def __init__(self, client: Client, namespace: FakeNamespace, clock: SettableClock) -> None:
        self.client, self.namespace, self.clock, self.tokens = client, namespace, clock, GivenTokens()
        self.sender = ServiceBusSender(make_settings(), clock, client=client, tokens=self.tokens)

    async def send(self, target: Target, delivery: OutgoingDelivery | None = None) -> Verdict:
        return await self.sender.send(target, delivery or make_delivery())


@pytest.fixture(params=["memory", "server"])
async def world(request: pytest.FixtureRequest, listen: Listen, tmp_path: Path) -> AsyncIterator[World]:
    clock = SettableClock(NOW)
    namespace = FakeNamespace(HOST, clock, keys={KEY["key_name"]: KEY["key"]}, tokens=["s3cret-token"])
    namespace.add("alarms/north")
    client: Client = FakeBusClient(namespace)
    if request.param == "server":
        pem = make_certificate(tmp_path, HOST)
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(pem)

        async def handle(request: Request, writer: asyncio.StreamWriter) -> None:
            writer.write(namespace.answer(request.line, request.headers, request.body).encode())

        async def loopback(host: str, port: int) -> list[str]:
            return ["127.0.0.1"]

        receiver = await listen(handle, tls=server)
        trusting = ssl.create_default_context(cafile=str(pem))
        client = OtherPort(GuardedClient(Egress([HOST]), clock, 4, lookup=loopback, tls=trusting), receiver.port)
    made = World(client, namespace, clock)
    yield made
    await made.sender.close()


@pytest.mark.parametrize("credentials", [{}, KEY], ids=["identity", "key"])
async def test_a_message_has_payload_id_and_attributes(world: World, credentials: dict[str, str]) -> None:
    spec = {"subject": "früh", "time_to_live": "PT90.5S", **credentials}
    assert await world.send(to_bus(**spec), make_delivery(attempt=2, traceparent="00-ab-cd-01")) == Verdict("delivered", 201)
    [message] = world.namespace.received("alarms/north")
    assert (message.id, message.session, message.subject, message.seconds) == ("ev-1", None, "früh", 91)
    assert (message.content_type, message.body) == ("application/json", b'{"n": 1.0}')
    assert message.properties == {
        "cloudevents_specversion": "1.0",
        "cloudevents_type": "tocsin.event.due",
        "cloudevents_source": "/tenants/demo/channels/bus",
        "cloudevents_id": "ev-1",
        "cloudevents_time": "2027-01-15T08:00:00.210Z",
        "cloudevents_tocsindue": "2027-01-15T08:00:00.210Z",
        "cloudevents_tocsinfired": "2027-01-15T08:00:00.250Z",
        "cloudevents_tocsinlatems": 40,
        "cloudevents_tocsinattempt": 2,
        "cloudevents_traceparent": "00-ab-cd-01",
    }
    assert world.tokens.asked == (0 if credentials else 1)


async def test_a_session_is_the_ordering_key_or_the_event_itself(world: World) -> None:
    world.namespace.add("alarms/north", sessions=True)
    delivery = make_delivery()
    assert (await world.send(to_bus(sessions=True, **KEY), replace(delivery, ordering_key='Kunde "ä"'))).outcome == "delivered"
    assert (await world.send(to_bus(sessions=True, **KEY), delivery)).outcome == "delivered"
    assert [message.session for message in world.namespace.received("alarms/north")] == ['Kunde "ä"', "ev-1"]
    refused = await world.send(to_bus(**KEY), delivery)
    assert refused[:2] == ("final", 400) and "sessions" in (refused.error or "")


async def test_a_repeated_delivery_is_a_duplicate_and_long_ids_stay_distinct(world: World) -> None:
    world.namespace.add("alarms/north", detects_duplicates=True)
    long = ["x" * 199 + last for last in "ab"]
    for event in ("ev-1", "ev-1", *long, long[0]):
        assert (await world.send(to_bus(**KEY), make_delivery(event))).outcome == "delivered"
    found = world.namespace.received("alarms/north")
    assert [message.id for message in found] == ["ev-1", *map(message_id, long)] and all(len(message.id or "") <= 128 for message in found)
    assert [message.properties["cloudevents_id"] for message in found] == ["ev-1", *long]


async def test_the_largest_payload_fits_the_standard_tier_and_a_larger_one_is_not_sent(world: World) -> None:
    world.namespace.add("alarms/north", sessions=True, max_bytes=256_000)
    body = b'"' + b"x" * (MAX_BUS_PAYLOAD - 2) + b'"'
    largest = replace(make_delivery("i" * 200, body=body, traceparent="t" * 55), ordering_key="\U0001f514" * 128)
    verdict = await world.send(to_bus(subject="\U0001f514" * 128, sessions=True, time_to_live="P3660D"), largest)
    assert verdict.outcome == "delivered"
    larger = await world.send(to_bus(), make_delivery(body=body + b" "))
    assert larger.outcome == "final" and "245761 bytes" in (larger.error or "")
    assert len(world.namespace.received("alarms/north")) == 1


async def test_a_wrong_key_and_a_refused_token_are_tried_again_and_say_so(world: World) -> None:
    wrong = await world.send(to_bus(key_name="sender", key="other"))
    assert wrong == Verdict("retry", 401, wrong.error)
    assert_text("delivery.service-bus-key", wrong.error, code=40103)
    assert world.tokens.refusals == 0
    world.tokens.token = "another"
    refused = await world.send(to_bus())
    assert refused == Verdict("retry", 401, refused.error)
    assert_text("delivery.service-bus-role", refused.error, code=40104)
    assert world.tokens.refusals == 1


async def test_a_signature_is_renewed_before_it_ends(world: World) -> None:
    for _ in range(4):
        assert (await world.send(to_bus(**KEY))).outcome == "delivered"
        await world.clock.advance(1799.0)
    assert len(world.namespace.received("alarms/north")) == 4


async def test_a_missing_queue_gets_its_message_once_it_is_there(world: World) -> None:
    missing = await world.send(to_bus(entity="later", **KEY))
    assert missing == Verdict("retry", 404, missing.error)
    assert_text("delivery.service-bus-entity", missing.error, code=40400)
    world.namespace.add("later")
    assert (await world.send(to_bus(entity="later", **KEY))).outcome == "delivered"


async def test_a_busy_namespace_is_tried_again_when_it_says(world: World) -> None:
    busy = BusAnswer(503, {"retry-after": "9", "content-type": "text/plain"}, b"s3cret")
    world.namespace.script("alarms/north", busy, BusAnswer(429, {}, b""))
    first, second = await world.send(to_bus(**KEY)), await world.send(to_bus(**KEY))
    assert first == Verdict("retry", 503, "answered 503 Service Unavailable", 9.0)
    assert second == Verdict("retry", 429, "answered 429 Too Many Requests")


@pytest.mark.parametrize(
    ("status", "outcome"), [(403, "retry"), (410, "retry"), (500, "retry"), (400, "final"), (413, "final"), (302, "retry")]
)
def test_verdicts(status: int, outcome: str) -> None:
    for keyed in (True, False):
        found = judge(status, None, None, NOW, keyed=keyed)
        assert (found.outcome, found.status) == (outcome, status) and (found.error or "").startswith(f"answered {status}")


def test_a_signature_is_that_of_the_sdk() -> None:
    # Computed by azure-servicebus 7.15.0 (generate_sas_token).
    expected = (
        "SharedAccessSignature sr=https%3A%2F%2Forders.servicebus.windows.net%2Falarms%2Fnorth"
        "&sig=0kGY%2FIA%2BhOb1dNxy45RnBGBINn5WaY2GZJuEVBmHjME%3D&se=1800003600&skn=sender"
    )
    assert sign_access(f"https://{HOST}/alarms/north", "sender", "c2VjcmV0+/==", 1_800_003_600) == expected


RELAY = "evil.servicebus.windows.net"


async def test_the_identitys_token_goes_to_the_listed_namespaces_of_a_tenant_alone() -> None:
    """Anyone can make a hybrid connection of Azure Relay in the same domain, whose listener reads the header with the token."""
    listed = f"{HOST}, shop=pay.servicebus.windows.net, shop=two.servicebus.windows.net"
    namespaces = [FakeNamespace(host, tokens=["s3cret-token"]) for host in (HOST, RELAY, "pay.servicebus.windows.net", "relay.example")]
    for each in namespaces:
        each.add("alarms/north")
    tokens = GivenTokens()
    settings = make_settings(service_bus=listed, egress_allow="relay.example")
    sender = ServiceBusSender(settings, SettableClock(NOW), client=FakeBusClient(*namespaces), tokens=tokens)
    for tenant, namespace in [
        ("demo", RELAY),
        ("demo", "pay.servicebus.windows.net"),
        ("shop", "relay.example"),
        ("demo", f"{HOST}:8443"),
        ("demo", f"x.{HOST}"),
        ("demo", f"{HOST}.evil.example"),
        ("demo", "evil.example"),
    ]:
        refused = await sender.send(to_bus(tenant, namespace=namespace), make_delivery())
        assert (refused.outcome, refused.status) == ("final", None), namespace
    assert tokens.asked == 0
    for tenant, namespace in [("demo", HOST), ("shop", HOST.upper()), ("shop", "pay.servicebus.windows.net")]:
        assert (await sender.send(to_bus(tenant, namespace=namespace), make_delivery())).outcome == "delivered"
    await sender.close()
    assert tokens.closed


@pytest.mark.parametrize(
    ("spec", "pointer"),
    [
        ({}, "/namespace"),
        ({"namespace": "127.0.0.1"}, "/namespace"),
        ({"namespace": "127.1", **KEY}, "/namespace"),
        ({"namespace": "hooks.example.com", **KEY}, "/namespace"),
        ({"namespace": f"{HOST}:0", **KEY}, "/namespace"),
        ({"namespace": "169.254.169.254", **KEY}, "/namespace"),
        ({**KEY, "key": "***"}, "/key"),
        (KEY, None),
        ({"namespace": "bus.internal:5300", **KEY}, None),
    ],
)
def test_what_can_never_be_delivered_is_refused_when_it_is_stored(spec: dict[str, str], pointer: str | None) -> None:
    channel = to_bus(**spec).spec
    found = find_faults(channel, Egress(["bus.internal"], namespaces=[("shop", HOST)]), frozenset(), TenantIdentity("demo", "a" * 16))
    assert [where for where, _ in found] == ([pointer] if pointer else [])


@pytest.mark.parametrize(
    "spec",
    [
        {"namespace": "https://orders.servicebus.windows.net"},
        {"namespace": "a\r\nb"},
        {"entity": "a/../b"},
        {"entity": "a//b"},
        {"entity": "$management"},
        {"entity": "a?b"},
        {"entity": "a%2Fb"},
        {"subject": "a\r\nAuthorization: x"},
        {"time_to_live": "PT0.5S"},
        {"key_name": "sender"},
        {"key": "k"},
        {"key_name": "a&b", "key": "k"},
        {"key_name": "a", "key": "k\r\n"},
    ],
)
def test_settings_that_cannot_be_are_refused(spec: dict[str, str]) -> None:
    given = {"type": "servicebus", "namespace": HOST, "entity": "q"} | spec
    with pytest.raises(ValidationError):
        TypeAdapter(Channel).validate_python(given)


def test_the_key_is_masked_and_stays_with_its_namespace() -> None:
    stored = to_bus(**KEY).spec
    shown = mask_secrets(stored)
    assert shown.key == "***"  # type: ignore[union-attr]
    assert restore_secrets(shown, stored) == stored
    for change in ({"namespace": RELAY}, {"key_name": "other"}):
        moved = shown.model_copy(update=change)
        assert restore_secrets(moved, stored) == moved


@pytest.mark.parametrize(
    "entry", ["orders", "https://orders.servicebus.windows.net", "evil.example", "a=b=orders.servicebus.windows.net", "*"]
)
def test_an_entry_of_the_operators_list_that_is_no_namespace_stops_the_start(entry: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_SERVICE_BUS"):
        ServiceBusSender(make_settings(service_bus=entry))


@pytest.mark.parametrize("tenant", ["acme", "acme@1", f"@{'a' * 16}", f"acme@{'a' * 16}@{'b' * 16}"])
def test_a_deployed_app_does_not_start_with_a_namespace_of_a_tenant_without_its_uid(tenant: str) -> None:
    with pytest.raises(UnsafeSettings, match="TOCSIN_SERVICE_BUS") as raised:
        parse_grants(deployed_settings(service_bus=f"{tenant}={HOST}"))
    assert_text("listed-tenant.without-uid", str(raised.value), tenant=tenant)


async def test_the_identitys_token_is_not_for_a_later_tenant_of_the_same_name() -> None:
    namespace = FakeNamespace(HOST, tokens=["s3cret-token"])
    namespace.add("alarms/north")
    tokens, settings = GivenTokens(), deployed_settings(service_bus=f"shop@{'a' * 16}={HOST}")
    sender = ServiceBusSender(settings, SettableClock(NOW), client=FakeBusClient(namespace), tokens=tokens)
    former = replace(to_bus("shop"), uid="a" * 16)
    assert (await sender.send(former, make_delivery())).outcome == "delivered"
    asked = tokens.asked
    # The later tenant's channel is even the same object, so nothing that was kept for the former one may be used.
    for uid in ("b" * 16, ""):
        refused = await sender.send(replace(former, uid=uid), make_delivery())
        assert (refused.outcome, refused.status) == ("final", None) and "TOCSIN_SERVICE_BUS" in (refused.error or "")
    assert tokens.asked == asked
    await sender.close()


class Credential:
    def __init__(self, clock: SettableClock) -> None:
        self.clock, self.asked, self.fails, self.gate = clock, 0, False, asyncio.Event()
        self.gate.set()

    async def get_token(self, *scopes: str, **rest: Any) -> Any:
        self.asked += 1
        await self.gate.wait()
        if self.fails:
            raise ClientAuthenticationError("s3cret text")
        assert scopes == ("https://servicebus.azure.net/.default",)
        return SimpleNamespace(token=f"token-{self.asked}", expires_on=self.clock.now() // 1000 + 3600)

    async def close(self) -> None:
        pass


@pytest.fixture
def tokens() -> tuple[IdentityTokens, Credential, SettableClock]:
    clock = SettableClock(NOW)
    credential = Credential(clock)
    return IdentityTokens("https://servicebus.azure.net/.default", None, clock, credential), credential, clock  # type: ignore[arg-type]


async def test_callers_share_one_request_for_a_token_and_keep_it_until_it_nears_its_end(tokens: Any) -> None:
    source, credential, clock = tokens
    credential.gate.clear()
    callers = [asyncio.create_task(source.get()) for _ in range(20)]
    await asyncio.sleep(0)
    callers[0].cancel()
    credential.gate.set()
    assert await asyncio.gather(*callers[1:]) == ["token-1"] * 19
    await clock.advance(3290)
    assert await source.get() == "token-1" and credential.asked == 1
    await clock.advance(20)
    assert await source.get() == "token-2"
    source.refused()
    assert await source.get() == "token-2"
    await clock.advance(6)
    assert await source.get() == "token-3"


async def test_without_a_new_token_the_former_one_is_used_until_it_ends(tokens: Any) -> None:
    source, credential, clock = tokens
    assert await source.get() == "token-1"
    credential.fails = True
    await clock.advance(3400)
    assert await source.get() == "token-1"
    assert await source.get() == "token-1" and credential.asked == 2
    await clock.advance(300)
    with pytest.raises(NoIdentityToken, match=r"^ClientAuthenticationError$"):
        await source.get()


async def test_a_delivery_without_a_token_is_tried_again(tokens: Any) -> None:
    source, credential, clock = tokens
    credential.fails = True
    sender = ServiceBusSender(make_settings(), clock, client=FakeBusClient(), tokens=source)
    verdict = await sender.send(to_bus(), make_delivery())
    assert verdict == Verdict("retry", None, verdict.error)
    assert_text("delivery.service-bus-token", verdict.error, failure="ClientAuthenticationError")
    await sender.close()


async def test_other_channels_are_a_mistake_of_the_caller() -> None:
    with pytest.raises(TypeError):
        await ServiceBusSender(make_settings()).send(Target("demo", "q", QueueChannel(type="queue", queue="orders")), make_delivery())
