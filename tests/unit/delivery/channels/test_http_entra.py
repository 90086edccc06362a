"""Deliveries with a token of Entra: who gets it, who never does, and what shows it."""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shared.core.clock import SettableClock
from shared.core.settings import Settings
from shared.delivery.channels.event_target import EventTarget
from shared.delivery.channels.http import HttpSender, post_of
from shared.delivery.channels.masks import mask, masks_of, with_jwt
from shared.delivery.channels.model import HttpChannel
from shared.delivery.channels.ports import SecondVerdict, Target, Verdict
from shared.delivery.egress_guard import Egress
from shared.delivery.entra.grants import EntraAudience
from shared.delivery.entra.tokens import EntraTokens, FetchedToken, IdentityEndpoint, NoToken
from tests.certificates import make_certificate
from tests.unit.delivery.entra.jwts import CLIENT, jwt
from tests.unit.delivery.entra.test_audiences import STOLEN, TRICKS

from .conftest import NOW, SECRET, Listen, Receiver, Request, answer, make_delivery

TOKEN = jwt("api://orders")
HOST = "orders.example.com"


class Api:
    """A receiver with a certificate, a sender that trusts it, and an identity endpoint that notes what it is asked."""

    def __init__(self, pem: Path, addresses: list[str]) -> None:
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(pem)
        self.client = ssl.create_default_context(cafile=str(pem))
        self.asked = list[str]()
        self.failure: str | None = None
        self.clock = SettableClock(NOW)
        self.addresses = addresses
        self.sender = self.make_sender("127.0.0.0/8")
        self.receiver = Receiver(answer(b"HTTP/1.1 204 No Content\r\n\r\n"))

    def make_sender(self, allow: str, **change: Any) -> HttpSender:
        settings = Settings(storage="UseDevelopmentStorage=true", egress_allow=allow)
        given = {"lookup": self.lookup, "tls": self.client, "tokens": EntraTokens(self.fetch, self.clock)}
        return HttpSender(settings, self.clock, **(given | change))

    async def lookup(self, host: str, port: int) -> list[str]:
        return self.addresses

    async def fetch(self, audience: str) -> FetchedToken:
        self.asked.append(audience)
        if self.failure is not None:
            raise NoToken(self.failure)
        return FetchedToken(TOKEN, self.clock.now() + 3_600_000)

    def target(self, url: str = "", *, hosts: list[str] | None = None, audience: str = "api://orders", **change: Any) -> Target:
        port = self.receiver.port
        spec = {"type": "http", "url": url or f"https://{HOST}:{port}/hook", "entra_audience": audience} | change
        rules = (EntraAudience(audience="api://orders", hosts=hosts or [f"{HOST}:{port}"]),)
        # As a row that anybody may have written: it is read without the checks of a new channel.
        channel = HttpChannel.model_construct(**(HttpChannel(type="http", url="https://x.example").__dict__ | spec))
        return Target("demo", "default", channel, (SECRET,), audiences=rules)


@pytest.fixture
async def api(tmp_path: Path, listen: Listen) -> AsyncIterator[Api]:
    api = Api(make_certificate(tmp_path, HOST, "evil.example"), ["127.0.0.1"])
    api.receiver = await listen(api.receiver.handler, tls=api.server)
    yield api
    await api.sender.close()


async def test_a_delivery_carries_the_token_and_asks_for_it_once(api: Api) -> None:
    for _ in range(3):
        assert (await api.sender.send(api.target(), make_delivery())).outcome == "delivered"
    assert [request.headers["authorization"] for request in api.receiver.requests] == [f"Bearer {TOKEN}"] * 3
    assert [name for name, _ in api.receiver.requests[0].pairs].count("authorization") == 1
    assert api.asked == ["api://orders"]


async def test_a_channel_without_an_audience_asks_for_none(api: Api) -> None:
    await api.sender.send(replace(api.target(), spec=HttpChannel(type="http", url=f"https://{HOST}:{api.receiver.port}/")), make_delivery())
    assert "authorization" not in api.receiver.requests[0].headers and api.asked == []


async def test_a_stored_channel_steals_no_token_of_azures_services(api: Api) -> None:
    for audience in (*STOLEN, *TRICKS):
        rule = EntraAudience.model_construct(audience=audience, hosts=[f"{HOST}:{api.receiver.port}"])
        verdict = await api.sender.send(replace(api.target(audience=audience), audiences=(rule,)), make_delivery())
        assert verdict.outcome == "final" and verdict.error and verdict.error.startswith("the channel's entra_audience "), audience
    assert api.asked == [] and api.receiver.connections == 0


async def test_a_host_or_port_off_the_list_gets_no_token(api: Api) -> None:
    sender = api.make_sender("127.0.0.0/8,::1/128")
    for url in (
        *("https://evil.example:{}/", f"https://{HOST}.:{{}}/", f"https://x.{HOST}:{{}}/", f"https://{HOST}.evil.example:{{}}/"),
        *("https://127.0.0.1:{}/", "https://[::1]:{}/", "https://[::ffff:127.0.0.1]:{}/", "https://xn--orders-gva.example.com:{}/"),
        *(f"https://{HOST}/", f"https://{HOST}:1/"),
    ):
        verdict = await sender.send(api.target(url.format(api.receiver.port)), make_delivery())
        assert verdict.outcome == "retry" and verdict.error and "does not have the host" in verdict.error, url
    await sender.close()
    assert api.asked == [] and api.receiver.connections == 0


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"url": f"http://{HOST}:{{}}/"}, "must be https"),
        ({"url": f"https://me@{HOST}:{{}}/"}, "must not hold a user"),
        ({"url": f"https://{HOST}:{{}}@evil.example/"}, "must not hold a user"),
        ({"headers": {"AUTHORIZATION": "Bearer x"}}, "cannot be set beside"),
    ],
)
async def test_a_channel_that_cannot_carry_one_sends_nothing(api: Api, change: dict[str, Any], cause: str) -> None:
    given = {name: value.format(api.receiver.port) if isinstance(value, str) else value for name, value in change.items()}
    verdict = await api.make_sender(f"127.0.0.0/8,{HOST}").send(api.target(**given), make_delivery())
    assert verdict.outcome == "final" and verdict.error and cause in verdict.error
    assert api.asked == [] and api.receiver.connections == 0


async def test_a_rule_that_is_gone_stops_deliveries_at_once_and_a_new_one_resumes_them(api: Api) -> None:
    target = api.target()
    assert (await api.sender.send(target, make_delivery())).outcome == "delivered"
    for rules in ((), (EntraAudience(audience="api://bills", hosts=[HOST]),)):
        verdict = await api.sender.send(replace(target, audiences=rules), make_delivery())
        assert verdict.outcome == "retry" and verdict.error and "the operator's list" in verdict.error
    assert len(api.receiver.requests) == 1
    assert (await api.sender.send(target, make_delivery())).outcome == "delivered"


async def test_the_target_of_an_event_changes_neither_host_nor_token(api: Api) -> None:
    stored = EventTarget(path="/17", query={"to": "evil.example"}, headers={"x-to": "evil.example"}).stored()
    assert (await api.sender.send(api.target(), make_delivery(event_target=stored))).outcome == "delivered"
    (request,) = api.receiver.requests
    assert request.line == "POST /hook/17?to=evil.example HTTP/1.1"
    assert request.headers["authorization"] == f"Bearer {TOKEN}" and request.headers["host"] == f"{HOST}:{api.receiver.port}"
    for hostile in (
        {"path": "//evil.example/"},
        {"path": "/@evil.example"},
        {"path": "/a", "headers": {"host": "evil.example"}},
        {"headers": {"authorization": "Bearer mine"}},
        {"headers": {"x-forwarded-host": "evil.example"}},
    ):
        verdict = await api.sender.send(api.target(), make_delivery(event_target=json.dumps(hostile)))
        if hostile == {"path": "/@evil.example"}:
            # Behind the path of the channel it is a path like any other.
            assert api.receiver.requests[-1].headers["host"] == f"{HOST}:{api.receiver.port}"
        else:
            assert verdict == Verdict("final", None, "the event's target is not valid")
    assert len(api.receiver.requests) == 2


async def test_a_redirect_does_not_take_the_token_along(api: Api, listen: Listen) -> None:
    thief = await listen(tls=api.server)
    api.receiver.handler = answer(b"HTTP/1.1 307 Go\r\nLocation: https://evil.example:%d/\r\nContent-Length: 0\r\n\r\n" % thief.port)
    verdict = await api.sender.send(api.target(), make_delivery())
    assert verdict.outcome == "retry" and verdict.error and "redirects are not followed" in verdict.error
    assert thief.connections == 0


async def test_a_name_that_turns_to_a_private_address_gets_nothing(api: Api) -> None:
    sender = api.make_sender("")
    for addresses in (["127.0.0.1"], ["169.254.169.254"], ["10.0.0.1"], ["::1"]):
        api.addresses = addresses
        verdict = await sender.send(api.target(), make_delivery())
        assert verdict.outcome == "final" and verdict.error and "egress refused" in verdict.error
    assert api.receiver.connections == 0
    await sender.close()


async def test_a_forged_receiver_gets_nothing(api: Api, tmp_path: Path) -> None:
    sender = api.make_sender("127.0.0.0/8", tls=ssl.create_default_context())
    verdict = await sender.send(api.target(), make_delivery())
    assert verdict.error and "certificate refused" in verdict.error and api.receiver.requests == []
    await sender.close()


@pytest.mark.parametrize("made", [lambda text: text, lambda text: text.rpartition(".")[2]])
async def test_nothing_that_is_kept_shows_the_token(api: Api, made: Callable[[str], str], caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    shown = made(TOKEN)
    body = f'{{"you sent": "{shown}"}}'.encode()
    head = f"HTTP/1.1 400 No\r\nX-Echo: {shown}\r\nContent-Type: {shown}\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    api.receiver.handler = answer(head + body)
    verdict = await api.sender.send(api.target(answers="all", answer_headers=True), make_delivery())
    assert verdict.status == 400 and verdict.answer is not None
    assert verdict.answer.body == '{"you sent": "***"}'
    assert (verdict.answer.headers or {})["x-echo"] == "***" and verdict.answer.content_type == "***"
    assert made(TOKEN) not in f"{verdict!r}{caplog.text}{api.target()!r}"


def test_a_token_at_the_end_of_what_is_read_is_masked_as_far_as_it_goes() -> None:
    masks = with_jwt(masks_of(HttpChannel(type="http", url=f"https://{HOST}/"), (SECRET,)), TOKEN)
    for end in (10, 50, len(TOKEN) - 1):
        assert mask(b"x" * 4000 + TOKEN[:end].encode(), masks, whole=False) == b"x" * 4000 + b"***"


async def test_a_lost_connection_is_followed_by_a_second_send_with_the_token(api: Api) -> None:
    async def close(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.transport.abort()
        return True

    assert (await api.sender.send(api.target(), make_delivery())).outcome == "delivered"
    normal, api.receiver.handler = api.receiver.handler, close

    async def close_once(request: Request, writer: asyncio.StreamWriter) -> bool | None:
        api.receiver.handler = normal
        return await close(request, writer)

    api.receiver.handler = close_once
    verdict = await api.sender.send(api.target(), make_delivery())
    assert isinstance(verdict, SecondVerdict) and verdict.outcome == "delivered"
    assert [request.headers["authorization"] for request in api.receiver.requests] == [f"Bearer {TOKEN}"] * 3


async def test_a_failure_of_the_identity_endpoint_is_a_retry_with_its_cause(api: Api) -> None:
    api.failure = "the identity endpoint answered 500"
    verdict = await api.sender.send(api.target(), make_delivery())
    expected = f"https://{HOST}:{api.receiver.port}: no token of Entra for api://orders: the identity endpoint answered 500"
    assert verdict == Verdict("retry", None, expected)
    assert api.receiver.connections == 0
    other = replace(api.target(), name="other", spec=HttpChannel(type="http", url=f"https://{HOST}:{api.receiver.port}/"))
    assert (await api.sender.send(other, make_delivery())).outcome == "delivered"


async def test_an_endpoint_that_hangs_costs_the_channels_time_out_and_delays_no_other(api: Api) -> None:
    never = asyncio.Event()

    async def hang(audience: str) -> FetchedToken:
        await never.wait()
        raise AssertionError

    sender = api.make_sender("127.0.0.0/8", tokens=EntraTokens(hang, api.clock))
    waiting = asyncio.create_task(sender.send(api.target(timeout=300), make_delivery()))
    other = replace(api.target(), name="other", spec=HttpChannel(type="http", url=f"https://{HOST}:{api.receiver.port}/"))
    assert (await sender.send(other, make_delivery())).outcome == "delivered"
    verdict = await waiting
    assert verdict.outcome == "retry" and verdict.error and "did not answer in time" in verdict.error
    await sender.close()


async def test_without_an_identity_nothing_is_sent(api: Api) -> None:
    sender = api.make_sender("127.0.0.0/8", tokens=None)
    verdict = await sender.send(api.target(), make_delivery())
    assert verdict.outcome == "retry" and verdict.error and "TOCSIN_TOKEN_CLIENT_ID" in verdict.error
    assert api.receiver.connections == 0
    await sender.close()


def test_the_request_is_made_by_the_service_alone() -> None:
    target = Target("demo", "default", HttpChannel(type="http", url="https://orders.example.com", entra_audience="api://orders"))
    with pytest.raises(ValueError, match="which the service alone can get"):
        post_of(target, make_delivery(), Egress())


async def test_the_identity_endpoint_is_asked_as_app_service_wants_it(listen: Listen) -> None:
    body = json.dumps({"access_token": TOKEN, "expires_on": "1800003600", "token_type": "Bearer", "client_id": CLIENT}).encode()
    server = await listen(answer(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)))
    endpoint = IdentityEndpoint(f"http://127.0.0.1:{server.port}/msi/token", "the-header", CLIENT)
    assert await endpoint.fetch("api://orders") == FetchedToken(TOKEN, 1_800_003_600_000)
    (request,) = server.requests
    assert request.line == f"GET /msi/token?resource=api%3A%2F%2Forders&api-version=2019-08-01&client_id={CLIENT} HTTP/1.1"
    assert request.headers["x-identity-header"] == "the-header"
    server.handler = answer(b"HTTP/1.1 400 No\r\nConnection: close\r\nContent-Length: 10\r\n\r\nthe-header")
    with pytest.raises(NoToken, match=r"400.* audience"):
        await endpoint.fetch("api://orders")
    server.handler = answer(b"HTTP/1.1 302 Go\r\nConnection: close\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n")
    with pytest.raises(NoToken, match=r" 302$"):
        await endpoint.fetch("api://orders")
    endpoint.close()
    with pytest.raises(NoToken, match="has no identity endpoint"):
        await IdentityEndpoint("", "", CLIENT).fetch("api://orders")
