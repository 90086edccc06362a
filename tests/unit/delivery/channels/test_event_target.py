"""Targets of events: no accepted one leaves the channel's scheme, host and path, or replaces what the channel or the service sets."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

import httpx
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from yarl import URL

from shared.core.signing import verify
from shared.delivery.channels.event_target import MAX_HEADERS, MAX_PARAMETERS, MAX_PATH, MAX_TOTAL, EventTarget, apply_target, faults_with
from shared.delivery.channels.http import HttpSender, post_of
from shared.delivery.channels.model import HttpChannel, QueueChannel
from shared.delivery.channels.ports import OutgoingDelivery
from shared.delivery.egress_guard import Egress

from .conftest import NOW, SECRET, Listen, answer, http_target, make_delivery, url

ATTACKS = (
    *(
        "",
        "orders",
        "@evil.example",
        ":8080/",
        ".evil.example",
        "//evil.example",
        "/a//b",
        "//",
        "/\\evil.example",
        "/a\\..\\b",
        "\\\\evil",
    ),
    *(
        "/..",
        "/../",
        "/a/../b",
        "/./",
        "/.",
        "/a/.",
        "/..;/admin",
        "/a;b",
        "/.;/x",
        "/a..b",
        "/...",
        "/?a=1",
        "/a#b",
        "/a?",
        "/%",
        "/%2",
        "/%zz",
    ),
    *("/%2e", "/%2E%2e/", "/.%2e/", "/%2e./", "/%2f", "/%2F%2fevil.example", "/%5c", "/%5C..", "/%252f", "/%252e%252e", "/%25252f", "/%25"),
    *(
        "/%00",
        "/%0d%0aHost:%20evil",
        "/%0A",
        "/%7f",
        "/%c2%85",
        "/%e2%80%a8",
        "/%3f",
        "/%23",
        "/%3b",
        "/\r\nHost: evil",
        "/\x00",
        "/a b",
        "/\t",
    ),
    *("/.%e2%80%8b.", "/%e2%80%8b", "/%c2%ad", "/.%ef%bb%bf./a"),
    *("/%c0%af", "/%c0%ae%c0%ae/", "/%e0%80%af", "/%ff", "/%ed%a0%80", "/%ef%bc%8f", "/%ef%bc%bc", "/%e2%80%a5/", "/%ef%bc%8e%ef%bc%8e/"),
    *(
        "/ä",
        "/\u2215",
        "/\uff0f",
        "http://evil.example/",
        "/<a>",
        '/"',
        "/{a}",
        "/|",
        "/^",
        "/`",
        "/[a]",
        "/" + "a" * MAX_PATH,
        "/a\n",
        "/a%0a",
    ),
)
GOOD = (
    "/",
    "/orders/17",
    "/orders/17/",
    "/a.b/c~d/_-",
    "/a%20b",
    "/%C3%A4",
    "/a:b@c",
    "/(1)!$&'*+,=",
    "/a%2eb",
    "/.hidden",
    "/" + "a" * (MAX_PATH - 1),
)
BASES = (
    "http://h.example/base",
    "https://h.example:8443/base/?code=a%2Fb",
    "http://h.example",
    "http://h.example?k=1",
    "http://[::1]:81/a%20b/c",
)
NAMES = (
    *("Host", "AUTHORIZATION", "Cookie", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "TE", "Trailer", "Upgrade"),
    *(
        "Proxy-Authorization",
        "Proxy-Connection",
        "Expect",
        "webhook-id",
        "Webhook-Signature",
        "webhook-anything",
        "tocsin-completion-token",
    ),
    *(
        "Tocsin-X",
        "traceparent",
        "tracestate",
        "Content-Type",
        "content-encoding",
        "ce-id",
        "User-Agent",
        "X-Forwarded-Host",
        "X-Real-IP",
        "X-MS-CLIENT-PRINCIPAL-ID",
        "X-ARR-ClientCert",
        "SSL-Client-Verify",
        "X-Original-URL",
    ),
    *("Client-Cert", "Client-Cert-Chain", "X-SSL-Cert", "X-Amzn-Mtls-Clientcert-Leaf", "X-Amzn-Oidc-Data", "X-Goog-Iap-Jwt-Assertion"),
    *("X-Consumer-Username", "X-Credential-Identifier", "X-Anonymous-Consumer", "X-Authentik-Username", "X-Vouch-User", "X-JWT-Assertion"),
    "X-Endpoint-API-UserInfo",
    *("Cf-Access-Jwt-Assertion", "Remote-User", "X-Remote-User", "X-Forwarded", "X-Envoy-Original-Path", "X-Original-Uri", "X-Rewrite-Uri"),
    *("X-Accel-Redirect", "X-Auth-Request-User", "X-Client-Cert", "X-Middleware-Subrequest", "Range", "From", "Origin", "Referer", "Via"),
    *("X-HTTP-Method-Override", "Content_Length", "host ", " host", "a:b", "", "a\r\nb", "a\n", "ä", "x" * 129, "a.b", "-a", "Forwarded"),
)


def sent(base: str, target: EventTarget, headers: dict[str, str] | None = None) -> Any:
    """Return the request that a channel makes of an event with this target."""
    return post_of(http_target(base, headers=headers), make_delivery(event_target=target.stored()), Egress(["h.example"]))


def test_a_suffix_that_could_leave_the_path_is_refused() -> None:
    for path in ATTACKS:
        with pytest.raises(ValidationError):
            EventTarget(path=path)
            pytest.fail(f"accepted: {path!r}")


@pytest.mark.parametrize("path", GOOD)
def test_a_plain_suffix_is_sent_as_it_is(path: str) -> None:
    channel = HttpChannel(type="http", url="http://h.example/base/?a=1")
    found = apply_target(EventTarget(path=path).stored(), channel, "/base/?a=1")
    assert not isinstance(found, str) and found.resource == f"/base{path}?a=1"


PIECES = st.sampled_from(
    [
        *"/.%;:@?#\\ab2fF5cCeE0",
        "..",
        "//",
        "%2f",
        "%5C",
        "%2e",
        "%252f",
        "%25",
        "%c0%af",
        "%ef%bc%8f",
        "%20",
        "%C3%A4",
        "\r\n",
        "\u2025",
        "evil.example",
    ]
)


@settings(max_examples=120, deadline=None)
@given(
    st.one_of(st.lists(PIECES, max_size=12).map("".join), st.lists(PIECES, max_size=12).map(lambda each: "/" + "".join(each))),
    st.sampled_from(BASES),
)
@example("/a%2eb", BASES[1])
def test_no_accepted_suffix_changes_the_origin_or_leaves_the_channels_path(path: str, base: str) -> None:
    try:
        target = EventTarget(path=path, query={"q": "/../?#&=\\"})
    except ValidationError:
        return
    channel, spec = URL(base), HttpChannel(type="http", url=base)
    found = apply_target(target.stored(), spec, channel.raw_path_qs)
    assert not isinstance(found, str)
    assert re.fullmatch(r"/[\x21-\x7e]*", found.resource)
    prefix = channel.raw_path.removesuffix("/") + "/"
    full = f"{channel.scheme}://{channel.raw_authority}{found.resource}"
    readings = [
        (lambda it: (it.scheme, it.host, it.port, it.raw_path))(URL(full)),
        (lambda it: (it.scheme, it.host, it.port or channel.port, it.raw_path.partition(b"?")[0].decode()))(httpx.URL(full)),
        (lambda it: (it.scheme, it.hostname, it.port or channel.port, it.path))(urlsplit(urljoin(base, full))),
    ]
    # A proxy that decodes the path before it resolves it, once or twice.
    once = urlsplit(full)._replace(path=unquote(urlsplit(full).path)).geturl()
    resolved = urlsplit(urljoin(base, once)).path
    assert (resolved + "/").startswith(unquote(prefix)) and "//" not in resolved and "\\" not in resolved and unquote(resolved) == resolved
    for scheme, host, port, reading in readings:
        assert (scheme, host, port) == (channel.scheme, channel.host, channel.port)
        assert (reading + "/").startswith(prefix) and "//" not in reading


def test_headers_of_the_service_and_the_connection_are_refused() -> None:
    for name in NAMES:
        with pytest.raises(ValidationError):
            EventTarget(headers={name: "x"})
            pytest.fail(f"accepted: {name!r}")


WRONG: tuple[dict[str, Any], ...] = (
    *({}, {"method": "HEAD"}, {"method": "put"}, {"method": "CONNECT"}, {"url": "http://evil.example"}),
    *(
        {"headers": {"X-A": "1", "x-a": "2"}},
        {"headers": {"X-A": "a\r\nHost: evil"}},
        {"headers": {"X-A": " a"}},
        {"headers": {"X-A": "ä"}},
    ),
    *({"query": {"": "a"}}, {"query": {"a": "\r"}}, {"query": {"a\x00": "b"}}, {"query": {"a": "\ud800"}}, {"query": {"a": "x" * 257}}),
    *({"query": {"x" * 257: "a"}}, {"query": {str(n): "" for n in range(MAX_PARAMETERS + 1)}}),
    *({"headers": {f"x-{n}": "" for n in range(MAX_HEADERS + 1)}}, {"headers": {"X-A": "x" * MAX_TOTAL}}),
)


def test_other_wrong_targets_are_refused() -> None:
    for wrong in WRONG:
        with pytest.raises(ValidationError):
            EventTarget.model_validate(wrong)
            pytest.fail(f"accepted: {wrong}")


def test_a_target_adds_and_replaces_nothing() -> None:
    target = EventTarget(path="/17", query={"a b": "c&d=é", "x": ""}, method="PUT", headers={"X-Trace": "7"})
    post = sent("https://h.example/base?code=s", target, {"X-Api-Key": "k"})
    assert (post.method, post.url) == ("PUT", "https://h.example/base/17?code=s&a%20b=c%26d%3D%C3%A9&x=")
    assert (post.headers["X-Trace"], post.headers["X-Api-Key"], post.headers["content-type"]) == ("7", "k", "application/json")


@pytest.mark.parametrize("name", ["code", "CODE", "code[]", " code", "my.key", "my_key", "\uff43ode", "second"])
def test_a_parameter_of_the_channel_is_refused_in_any_spelling(name: str) -> None:
    spec = HttpChannel(type="http", url="https://h.example/?code=secret&my_key=1;second=2")
    [fault] = faults_with(EventTarget(query={name: "x"}), spec)
    assert fault.pointer == f"/query/{name}"


def test_headers_of_the_allow_list_and_others_that_begin_with_x_are_taken() -> None:
    names = ("Accept", "accept-language", "Cache-Control", "Content-Language", "If-Match", "If-None-Match", "Prefer", "Idempotency-Key")
    for name in (*names, "X-Request-Id", "x-tenant", "X-Api-Version", "X-GitHub-Event"):
        assert EventTarget(headers={name: "x"}).headers == {name: "x"}
    with pytest.raises(ValidationError, match="accept, accept-language, cache-control"):
        EventTarget(headers={"client-cert": "x"})


def test_a_header_of_the_channel_and_another_kind_of_channel_are_refused() -> None:
    spec = HttpChannel(type="http", url="https://h.example/", headers={"X_Api-Key": "k"})
    assert [fault.pointer for fault in faults_with(EventTarget(headers={"x-api-key": "mine", "X-B": ""}), spec)] == ["/headers/x-api-key"]
    assert [fault.pointer for fault in faults_with(EventTarget(method="PUT"), QueueChannel(type="queue", queue="orders"))] == [""]


async def test_the_sender_sends_the_target_over_a_kept_connection(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    target, own = (
        http_target(url(receiver, "/hook?a=1")),
        EventTarget(path="/orders/17", query={"b": "2"}, method="PATCH", headers={"X-B": "3"}),
    )
    for delivery in (make_delivery(), make_delivery(event_target=own.stored()), make_delivery()):
        assert (await sender.send(target, delivery)).status == 200
    plain, other, last = receiver.requests
    assert plain.line == last.line == "POST /hook?a=1 HTTP/1.1" and "x-b" not in last.headers and receiver.connections == 1
    assert other.line == "PATCH /hook/orders/17?a=1&b=2 HTTP/1.1"
    assert (
        other.headers["x-b"] == "3"
        and other.headers["host"] == plain.headers["host"]
        and other.headers.keys() - plain.headers.keys() == {"x-b"}
    )
    assert verify(other.headers, other.body, [SECRET], NOW)


async def test_requests_without_a_body_have_neither_length_nor_type_and_sign_an_empty_body(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    target = http_target(url(receiver, "/hook?a=1"))
    for method, body in (("GET", b""), ("DELETE", b""), ("DELETE", b"[1]"), ("GET", b"")):
        own = EventTarget(path="/17", method=method, headers={"X-B": "3"})
        assert (await sender.send(target, make_delivery(body=body, event_target=own.stored()))).status == 200
    got, removed, told, _ = receiver.requests
    assert [each.line for each in (got, removed)] == ["GET /hook/17?a=1 HTTP/1.1", "DELETE /hook/17?a=1 HTTP/1.1"]
    for each in (got, removed):
        assert not {"content-type", "content-length"} & each.headers.keys() and each.headers["x-b"] == "3"
        assert each.body == b"" and verify(each.headers, b"", [SECRET], NOW)
    # No cache on the way may answer for the receiver.
    assert got.headers["cache-control"] == "no-cache" and "cache-control" not in removed.headers
    assert (told.headers["content-length"], told.headers["content-type"], told.body) == ("3", "application/json", b"[1]")
    assert verify(told.headers, b"[1]", [SECRET], NOW) and receiver.connections == 1


async def test_an_event_may_say_how_caches_answer_its_get_and_a_get_with_a_body_is_never_sent(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    own = EventTarget(method="GET", headers={"Cache-Control": "max-age=5"}).stored()
    assert (await sender.send(http_target(url(receiver)), make_delivery(body=b"", event_target=own))).status == 200
    assert receiver.requests[0].headers["cache-control"] == "max-age=5"
    verdict = await sender.send(http_target(url(receiver)), make_delivery(body=b"1", event_target=own))
    assert verdict.outcome == "final" and len(receiver.requests) == 1


async def test_a_target_that_no_longer_fits_its_channel_is_a_final_failure_without_a_request(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    cases = {
        EventTarget(query={"a": "2"}).stored(): "target/query/a is a parameter that the channel's url has",
        EventTarget(headers={"x-key": "2"}).stored(): "target/headers/x-key is a header that the channel sets",
        '{"path":"/../admin"}': "the event's target is not valid",
        "[": "the event's target is not valid",
    }
    for stored, reason in cases.items():
        verdict = await sender.send(http_target(url(receiver, "/hook?a=1"), headers={"X-Key": "1"}), make_delivery(event_target=stored))
        assert verdict.outcome == "final" and reason in (verdict.error or "")
    assert not receiver.requests


async def test_errors_show_no_path_and_redirects_are_not_followed(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 307 X\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"))
    delivery: OutgoingDelivery = make_delivery(event_target=EventTarget(path="/x", query={"token": "1"}).stored())
    verdict = await sender.send(http_target(url(receiver)), delivery)
    assert verdict.outcome == "retry" and "redirects are not followed" in (verdict.error or "") and len(receiver.requests) == 1
    broken = await listen(answer(b"nonsense\r\n\r\n"))
    verdict = await sender.send(http_target(url(broken)), delivery)
    assert verdict.error is not None and verdict.error.startswith(f"http://127.0.0.1:{broken.port}: ") and "token" not in verdict.error
