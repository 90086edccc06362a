"""TOKENS=1: the app gets a token of the fake identity and sends it to the receiver by https; nobody else's call gets one."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import AsyncIterator

import pytest

from devhost.receiver import DevhostReceiver
from devhost.tokens import CLIENT_ID, FakeIdentity, LocalCertificate
from shared.core.settings import Settings
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import OutgoingDelivery, Target
from shared.delivery.entra.grants import EntraAudience
from shared.delivery.entra.tokens import IdentityEndpoint, NoToken


@pytest.fixture
async def identity() -> AsyncIterator[tuple[str, str]]:
    """The address and the header of a fake identity endpoint."""
    fake = FakeIdentity()
    found = await fake.start()
    assert found["TOCSIN_TOKEN_CLIENT_ID"] == CLIENT_ID
    yield found["IDENTITY_ENDPOINT"], found["IDENTITY_HEADER"]
    await fake.close()


async def test_a_delivery_carries_a_token_of_the_fake_identity_to_the_receiver_by_https(identity: tuple[str, str]) -> None:
    receiver, certificate = DevhostReceiver(), LocalCertificate()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(certificate.remove)
        stack.push_async_callback(receiver.close)
        await receiver.start("127.0.0.1", 0)
        port = await receiver.start_tls("127.0.0.1", 0, certificate.context)
        assert "PRIVATE" not in certificate.trusted.read_text()
        given = {"identity_endpoint": identity[0], "identity_header": identity[1], "token_client_id": CLIENT_ID}
        settings = Settings(storage="UseDevelopmentStorage=true", egress_allow="localhost", **given)
        sender = HttpSender(settings, tls=ssl.create_default_context(cafile=str(certificate.trusted)))
        stack.push_async_callback(sender.close)
        spec = HttpChannel(type="http", url=f"https://localhost:{port}/", entra_audience="api://demo")
        rules = (EntraAudience(audience="api://demo", hosts=[f"localhost:{port}"]),)
        verdict = await sender.send(Target("demo", "api", spec, audiences=rules), OutgoingDelivery("e", 0, 0, 1, b"1"))
        assert verdict.outcome == "delivered", verdict
        headers = {name.lower(): value for name, value in receiver.deliveries[0]["headers"].items()}
    assert headers["authorization"].startswith("Bearer ey")
    assert not certificate.trusted.exists()


async def test_calls_of_other_identities_and_without_the_header_get_no_token(identity: tuple[str, str]) -> None:
    url, header = identity
    for endpoint in (IdentityEndpoint(url, "wrong", CLIENT_ID), IdentityEndpoint(url, header, "11111111-1111-1111-1111-111111111111")):
        with pytest.raises(NoToken, match="answered 400"):
            await endpoint.fetch("api://demo")
        endpoint.close()
