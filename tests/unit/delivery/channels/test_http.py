"""The http sender against receivers that behave, and many that do not."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
import struct
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from standardwebhooks import Webhook

from shared.core.clock import SettableClock
from shared.core.signing import verify
from shared.delivery.channels import http
from shared.delivery.channels.http import HttpSender, problem_of
from shared.delivery.channels.model import HttpChannel, QueueChannel
from shared.delivery.channels.ports import SecondVerdict, Verdict
from shared.delivery.egress_guard import Egress
from shared.delivery.flow.circuit_breaker import is_failure

from .conftest import NOW, OK, OTHER_SECRET, SECRET, Listen, Receiver, Request, answer, http_target, make_delivery, make_settings


@pytest.fixture
async def sender() -> AsyncIterator[HttpSender]:
    it = HttpSender(make_settings("localhost, 127.0.0.0/8"), SettableClock(NOW))
    yield it
    await it.close()


def url(receiver: Receiver, path: str = "/hook") -> str:
    return f"http://127.0.0.1:{receiver.port}{path}"


async def test_a_delivery_arrives_signed_with_payload_and_attributes(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    fired = time.time_ns() // 1_000_000
    target = http_target(url(receiver, "/hook?a=1"), secrets=(OTHER_SECRET, SECRET))
    verdict = await sender.send(target, make_delivery(due=fired - 7, fired=fired, attempt=2))
    assert verdict == Verdict("delivered", 200)
    [request] = receiver.requests
    assert request.line == "POST /hook?a=1 HTTP/1.1"
    assert request.body == b'{"n": 1.0}'
    assert request.headers["ce-id"] == request.headers["webhook-id"] == "ev-1"
    assert request.headers["ce-tocsinattempt"] == "2" and request.headers["ce-tocsinlatems"] == "7"
    assert request.headers["content-type"] == "application/json" and request.headers["user-agent"] == "tocsin/0.1"
    assert request.headers["webhook-timestamp"] == str(fired // 1000)
    assert not {"cookie", "accept-encoding", "transfer-encoding"} & set(request.headers)
    for secret in (SECRET, OTHER_SECRET):
        assert Webhook(secret).verify(request.body, request.headers) == {"n": 1.0}
        assert verify(request.headers, request.body, [secret], fired)


async def test_connections_are_kept_and_cookies_are_not(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 204 No Content\r\nSet-Cookie: a=b\r\n\r\n"))
    for number in range(5):
        assert (await sender.send(http_target(url(receiver)), make_delivery(f"ev-{number}"))).outcome == "delivered"
    assert receiver.connections == 1
    assert all("cookie" not in request.headers for request in receiver.requests)


async def test_the_channels_own_headers_are_sent_but_never_in_place_of_ours(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    mine = {
        "Authorization": "Bearer xyz",
        "X-Team": "blå",
        "Content-Type": "text/html",
        "CE-ID": "forged",
        "ce-other": "x",
        "Webhook-Signature": "v1,forged",
        "Host": "elsewhere.example",
        "Content-Length": "0",
        "Transfer-Encoding": "chunked",
        "Connection": "close",
        "User-Agent": "curl",
        "Traceparent": "forged",
        "Expect": "100-continue",
    }
    await sender.send(http_target(url(receiver), headers=mine), make_delivery())
    [request] = receiver.requests
    assert request.headers["authorization"] == "Bearer xyz"
    assert request.headers["x-team"].encode("latin-1").decode() == "blå"
    assert request.headers["host"] == f"127.0.0.1:{receiver.port}"
    text = str(request.pairs)
    assert "forged" not in text and "elsewhere" not in text and "curl" not in text and "text/html" not in text
    assert not {"ce-other", "connection", "transfer-encoding", "expect", "traceparent"} & set(request.headers)
    names = [name for name, _ in request.pairs]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("headers", [{"X-A": "b\r\nX-Evil: 1"}, {"X A": "b"}, {"": "b"}, {"X-A": "\0"}, {"X:A": "b"}, {"X-É": "b"}])
async def test_an_invalid_header_is_final_and_its_value_not_shown(listen: Listen, sender: HttpSender, headers: dict[str, str]) -> None:
    receiver = await listen()
    verdict = await sender.send(http_target(url(receiver), headers=headers), make_delivery())
    assert verdict.outcome == "final" and verdict.error and "is not valid" in verdict.error and "Evil" not in verdict.error
    assert receiver.connections == 0


async def test_credentials_in_the_url_become_a_header_and_stay_out_of_errors(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    target = http_target(f"http://us%65r:pa%24s@127.0.0.1:{receiver.port}/hook")
    assert (await sender.send(target, make_delivery())).outcome == "delivered"
    assert receiver.requests[0].headers["authorization"] == "Basic dXNlcjpwYSRz"
    await receiver.stop()
    verdict = await sender.send(target, make_delivery())
    assert verdict.error == f"http://127.0.0.1:{receiver.port}/hook: could not connect: Connection refused"


async def test_a_channel_that_changes_is_sent_to_its_new_address(listen: Listen, sender: HttpSender) -> None:
    first, second = await listen(), await listen()
    await sender.send(http_target(url(first)), make_delivery())
    await sender.send(http_target(url(second)), make_delivery())
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        ("410 Gone", "", ("final", 410, None)),
        ("404 Not Found", "", ("final", 404, None)),
        ("429 Too Many Requests", "Retry-After: 7\r\n", ("retry", 429, 7.0)),
        ("503 <b>secret</b>", "Retry-After: Fri, 15 Jan 2027 08:01:00 GMT\r\n", ("retry", 503, 59.75)),
        ("500 Oops", "", ("retry", 500, None)),
        ("101 Switching Protocols", "Upgrade: x\r\nConnection: upgrade\r\n", ("retry", 101, None)),
    ],
)
async def test_the_status_decides(listen: Listen, sender: HttpSender, status: str, headers: str, expected: tuple[Any, ...]) -> None:
    length = "" if status.startswith("1") else "Content-Length: 0\r\n"
    receiver = await listen(answer(f"HTTP/1.1 {status}\r\n{headers}{length}\r\n".encode()))
    verdict = await sender.send(http_target(url(receiver)), make_delivery())
    assert (verdict.outcome, verdict.status, verdict.retry_after) == expected
    assert verdict.error and "secret" not in verdict.error


async def test_redirects_are_not_followed(listen: Listen, sender: HttpSender) -> None:
    other = await listen()
    for status in (301, 302, 303, 307, 308):
        receiver = await listen(answer(f"HTTP/1.1 {status} Go\r\nLocation: {url(other)}\r\nContent-Length: 0\r\n\r\n".encode()))
        verdict = await sender.send(http_target(url(receiver)), make_delivery())
        assert verdict.outcome == "final" and verdict.status == status
        assert verdict.error and "redirects are not followed" in verdict.error
    assert other.connections == 0


async def test_proxies_of_the_environment_are_ignored(listen: Listen, sender: HttpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, receiver = await listen(), await listen()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"
    assert (proxy.connections, receiver.connections) == (0, 1)


async def test_a_receiver_that_does_not_answer_is_left_after_the_time_out(listen: Listen, sender: HttpSender) -> None:
    received = asyncio.Event()

    async def note(request: Request, writer: asyncio.StreamWriter) -> bool:
        received.set()
        return False

    receiver = await listen(note)
    verdict = await sender.send(http_target(url(receiver, "/hook?token=abc"), timeout=800), make_delivery())
    assert received.is_set()
    assert verdict == ("retry", None, f"http://127.0.0.1:{receiver.port}/hook: no answer within 0.8 s", None)
    await receiver.idle.wait()


@pytest.mark.parametrize(("line", "expected"), [(b"200 OK", ("delivered", 200)), (b"503 Busy", ("retry", None))])
async def test_a_head_that_trickles_is_cut_by_the_time_out(
    listen: Listen, sender: HttpSender, line: bytes, expected: tuple[str, int | None]
) -> None:
    async def trickle(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 " + line + b"\r\n")
        while not writer.is_closing():
            writer.write(b"X-More: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.02)
        return True

    receiver = await listen(trickle)
    verdict = await sender.send(http_target(url(receiver), timeout=120), make_delivery())
    assert (verdict.outcome, verdict.status) == expected


async def test_a_refused_connection_is_tried_again(sender: HttpSender) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        verdict = await sender.send(http_target(f"http://127.0.0.1:{port}/a/b?token=abc#frag"), make_delivery())
    assert verdict == ("retry", None, f"http://127.0.0.1:{port}/a/b: could not connect: Connection refused", None)


def reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_connection_lost_before_an_answer_is_tried_again_later(listen: Listen, sender: HttpSender, how: str) -> None:
    async def drop(request: Request, writer: asyncio.StreamWriter) -> bool:
        if how == "reset":
            reset(writer)
        return True

    receiver = await listen(drop)
    verdict = await sender.send(http_target(url(receiver)), make_delivery())
    assert verdict.outcome == "retry" and verdict.error
    assert "closed before an answer" in verdict.error or "connection lost" in verdict.error
    assert len(receiver.requests) == 1, "a fresh connection that fails is the receiver's answer: no second try here"


@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_kept_connection_that_closes_under_the_request_is_replaced_at_once(listen: Listen, sender: HttpSender, how: str) -> None:
    seen = 0

    async def second_request_dies(request: Request, writer: asyncio.StreamWriter) -> bool:
        nonlocal seen
        seen += 1
        if seen == 2:
            if how == "reset":
                reset(writer)
            return True
        writer.write(OK)
        return False

    receiver = await listen(second_request_dies)
    assert (await sender.send(http_target(url(receiver)), make_delivery("ev-1"))).outcome == "delivered"
    assert (await sender.send(http_target(url(receiver)), make_delivery("ev-2"))).outcome == "delivered"
    assert [request.headers["ce-id"] for request in receiver.requests] == ["ev-1", "ev-2", "ev-2"]
    assert receiver.connections == 2


async def test_both_sends_of_a_lost_connection_are_numbered_and_reported(listen: Listen) -> None:
    async def second_request_dies(request: Request, writer: asyncio.StreamWriter) -> bool:
        if len(receiver.requests) == 2:
            await clock.advance(0.25)
            return True
        writer.write(OK)
        return False

    clock = SettableClock(NOW)
    sender = HttpSender(make_settings("127.0.0.0/8"), clock)
    receiver = await listen(second_request_dies)
    await sender.send(http_target(url(receiver)), make_delivery("ev-1"))
    verdict = await sender.send(http_target(url(receiver)), make_delivery("ev-2", attempt=3))
    await sender.close()
    assert (verdict.outcome, verdict.status) == ("delivered", 200)
    assert isinstance(verdict, SecondVerdict) and verdict.sent_at == NOW + 250 and "closed before an answer" in verdict.first_error
    _, first, second = receiver.requests
    assert (first.headers["ce-tocsinattempt"], second.headers["ce-tocsinattempt"]) == ("3", "4")
    assert (first.headers["ce-tocsinlatems"], second.headers["ce-tocsinlatems"]) == ("40", "290")
    assert verify(second.headers, second.body, [SECRET], NOW)


async def test_an_endless_body_is_cut_and_the_delivery_counts(listen: Listen, sender: HttpSender) -> None:
    async def endless(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"1000\r\n" + b"x" * 4096 + b"\r\n")
            await writer.drain()
        return True

    receiver = await listen(endless)
    assert await sender.send(http_target(url(receiver)), make_delivery()) == Verdict("delivered", 200)
    await receiver.idle.wait()


@pytest.mark.parametrize(("status", "outcome"), [("200 OK", "delivered"), ("503 Busy", "retry")])
async def test_a_body_that_trickles_is_cut_after_its_bound(
    listen: Listen, sender: HttpSender, monkeypatch: pytest.MonkeyPatch, status: str, outcome: str
) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER_SECONDS", 0.05)

    async def trickle(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 1000000\r\n\r\nx".encode())
        return False

    receiver = await listen(trickle)
    verdict = await sender.send(http_target(url(receiver)), make_delivery())
    assert verdict.outcome == outcome
    await receiver.idle.wait()


async def test_a_body_cut_by_the_channels_time_out_still_counts(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx"))
    assert (await sender.send(http_target(url(receiver), timeout=800), make_delivery())).outcome == "delivered"
    await receiver.idle.wait()


async def test_a_body_within_the_bound_is_read_and_the_connection_kept(listen: Listen, sender: HttpSender) -> None:
    async def two_writes(request: Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 40000\r\n\r\n")
        await writer.drain()
        writer.write(b"x" * 40_000)

    receiver = await listen(two_writes)
    for _ in range(3):
        assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"
    assert receiver.connections == 1


async def test_a_body_that_ends_short_still_counts(listen: Listen, sender: HttpSender) -> None:
    async def short(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nxx")
        await writer.drain()
        return True

    receiver = await listen(short)
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"


async def test_a_compressed_body_is_never_unpacked(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nnope"))
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 404 Not Found\r\nX-Huge: " + b"s3cret" * 20_000 + b"\r\n\r\n",
        b"HTTP/1.1 500 Oops\r\n" + b"".join(b"X-%d: s3cret\r\n" % n for n in range(5000)) + b"\r\n",
        b"HTTP/1.1 20",
        b"s3cret, not http at all\r\n\r\n",
        b"HTTP/9.9 999 s3cret\r\nContent-Length: -4\r\n\r\n",
    ],
)
async def test_an_answer_that_is_not_http_is_tried_again_and_not_quoted(listen: Listen, sender: HttpSender, raw: bytes) -> None:
    async def answer_and_close(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return not raw.endswith(b"\n")

    receiver = await listen(answer_and_close)
    verdict = await sender.send(http_target(url(receiver), timeout=2000), make_delivery())
    assert verdict.outcome == "retry"
    assert verdict.error and "s3cret" not in verdict.error and len(verdict.error) <= 500


HINT = b"HTTP/1.1 103 X\r\n\r\n"


@pytest.mark.parametrize("hint", [HINT, b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
async def test_informational_answers_without_end_fail_the_attempt(listen: Listen, sender: HttpSender, hint: bytes) -> None:
    sent = 0

    async def flood(request: Request, writer: asyncio.StreamWriter) -> bool:
        nonlocal sent
        while not writer.is_closing():
            writer.write(hint * 4_000)
            sent += 4_000
            await writer.drain()
        return True

    receiver = await listen(flood)
    flooded = [asyncio.create_task(sender.send(http_target(url(receiver)), make_delivery(f"ev-{n}"))) for n in range(16)]
    verdicts = await asyncio.gather(*flooded)
    assert {(verdict.outcome, verdict.status) for verdict in verdicts} == {("retry", None)}
    assert all(is_failure(verdict.outcome, verdict.status) for verdict in verdicts), "the breaker counts it"
    assert verdicts[0].error == f"{url(receiver)}: more than 5 informational answers and no final one"
    await receiver.idle.wait()


@pytest.mark.parametrize(("count", "outcome"), [(5, "delivered"), (6, "retry")])
@pytest.mark.parametrize("at_once", [True, False])
async def test_a_handful_of_informational_answers_is_passed_over(
    listen: Listen, sender: HttpSender, count: int, outcome: str, at_once: bool
) -> None:
    async def hints(request: Request, writer: asyncio.StreamWriter) -> None:
        raw = HINT * count + OK
        for each in [raw] if at_once else [raw[n : n + 7] for n in range(0, len(raw), 7)]:
            writer.write(each)
            await writer.drain()
            await asyncio.sleep(0)

    receiver = await listen(hints)
    for _ in range(2):
        assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == outcome


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 204 No Content\r\nContent-Type: application/json\r\n\r\n{}",
        b"HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        HINT + b"HTTP/1.1 204 No Content\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok and more",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Huge: " + b"s3cret" * 20_000 + b"\r\n\r\n",
    ],
)
@pytest.mark.parametrize("close", [False, True])
async def test_a_2xx_status_line_is_a_delivery_whatever_follows(listen: Listen, sender: HttpSender, raw: bytes, close: bool) -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return close

    receiver = await listen(respond)
    for number in range(3):
        verdict = await sender.send(http_target(url(receiver)), make_delivery(f"ev-{number}"))
        assert verdict.outcome == "delivered" and verdict.status in (200, 202, 204)
    assert [request.headers["ce-id"] for request in receiver.requests] == ["ev-0", "ev-1", "ev-2"], "none was sent twice"


async def test_informational_answers_are_passed_over(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK))
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"


async def test_cancelling_a_delivery_closes_its_connection(listen: Listen, sender: HttpSender) -> None:
    arrived = asyncio.Event()

    async def silent(request: Request, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    receiver = await listen(silent)
    task = asyncio.create_task(sender.send(http_target(url(receiver)), make_delivery()))
    await arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await receiver.idle.wait()


async def test_many_deliveries_share_the_session_and_all_arrive(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    target = http_target(url(receiver))
    verdicts = await asyncio.gather(*[sender.send(target, make_delivery(f"ev-{n}")) for n in range(200)])
    assert {verdict.outcome for verdict in verdicts} == {"delivered"}
    assert {request.headers["ce-id"] for request in receiver.requests} == {f"ev-{n}" for n in range(200)}


async def test_a_long_url_with_control_characters_makes_a_short_clean_error(sender: HttpSender) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        target = http_target(f"http://127.0.0.1:{bound.getsockname()[1]}/" + "p%0a" * 400 + "?k=v")
        verdict = await sender.send(target, make_delivery())
    assert verdict.error and len(verdict.error) <= 500 and "\n" not in verdict.error and "k=v" not in verdict.error


async def test_a_channel_of_another_type_is_a_bug_of_ours(sender: HttpSender) -> None:
    target = http_target("https://example.com/")
    with pytest.raises(TypeError):
        await sender.send(type(target)("demo", "q", QueueChannel(type="queue", queue="orders")), make_delivery())


def test_stores_of_channels_can_ask_beforehand() -> None:
    def ask(**fields: Any) -> str | None:
        return problem_of(HttpChannel(type="http", **fields), Egress())

    assert ask(url="https://example.com/x") is None
    assert ask(url="https://127.0.0.1/") == "egress refused: the url's address is loopback"
    assert ask(url="https://[::1/x") == "the channel's url is not valid"
    assert ask(url="https://example.com/", headers={"Bad Name": "x"}) == "the channel's header 'Bad Name' is not valid"


def make_certificate(folder: Path, *names: str) -> Path:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    plain = serialization.NoEncryption()
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    return path


async def loopback(host: str, port: int) -> list[str]:
    return ["127.0.0.1"]


@pytest.fixture
async def tls_sender(tmp_path: Path) -> AsyncIterator[Callable[[bool], tuple[HttpSender, ssl.SSLContext, list[str]]]]:
    pem = make_certificate(tmp_path, "hook.example")
    made: list[HttpSender] = []

    def make(trusted: bool) -> tuple[HttpSender, ssl.SSLContext, list[str]]:
        server, asked = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), list[str]()
        server.load_cert_chain(pem)
        server.sni_callback = lambda sock, name, context: asked.append(name or "")  # type: ignore[assignment]
        client = ssl.create_default_context(cafile=str(pem)) if trusted else None
        made.append(HttpSender(make_settings("127.0.0.0/8"), lookup=loopback, tls=client))
        return made[-1], server, asked

    yield make
    for sender in made:
        await sender.close()


async def test_tls_asks_for_and_checks_the_name_in_the_url(listen: Listen, tls_sender: Any) -> None:
    sender, context, asked = tls_sender(True)
    receiver = await listen(tls=context)
    assert (await sender.send(http_target(f"https://hook.example:{receiver.port}/"), make_delivery())).outcome == "delivered"
    assert asked == ["hook.example"]
    assert receiver.requests[0].headers["host"] == f"hook.example:{receiver.port}"
    verdict = await sender.send(http_target(f"https://other.example:{receiver.port}/"), make_delivery())
    assert verdict.outcome == "retry"
    assert verdict.error and "TLS failure: certificate refused" in verdict.error and "mismatch" in verdict.error.lower()
    assert len(receiver.requests) == 1


async def test_an_untrusted_certificate_is_refused(listen: Listen, tls_sender: Any) -> None:
    sender, context, _ = tls_sender(False)
    receiver = await listen(tls=context)
    verdict = await sender.send(http_target(f"https://hook.example:{receiver.port}/x?k=v"), make_delivery())
    assert verdict.outcome == "retry"
    assert verdict.error and verdict.error.startswith(f"https://hook.example:{receiver.port}/x: TLS failure: certificate refused: ")
    assert receiver.requests == []


async def test_tls_to_a_port_without_it_is_a_tls_failure(listen: Listen, tls_sender: Any) -> None:
    sender, _, _ = tls_sender(True)

    async def mumble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(mumble, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    verdict = await sender.send(http_target(f"https://hook.example:{port}/"), make_delivery())
    assert verdict.outcome == "retry" and verdict.error and "TLS failure" in verdict.error
    server.close()
    await server.wait_closed()
