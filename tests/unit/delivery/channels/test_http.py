"""The http sender against receivers that behave, and many that do not."""

from __future__ import annotations

import asyncio
import socket
import struct
import time
from typing import Any

import pytest
from standardwebhooks import Webhook

from shared.core.clock import SettableClock
from shared.core.signing import verify
from shared.delivery.channels.event_target import EventTarget
from shared.delivery.channels.http import HttpSender, post_of, problem_of, resource_of
from shared.delivery.channels.model import HttpChannel, QueueChannel
from shared.delivery.channels.ports import SecondVerdict, Verdict
from shared.delivery.egress_guard import Egress
from tests.texts import assert_text
from tests.waiting import within

from .conftest import NOW, OK, OTHER_SECRET, SECRET, Listen, Request, answer, http_target, make_delivery, make_settings, url


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
    assert request.headers["content-type"] == "application/json" and request.headers["user-agent"] == "tocsin/0.2.0"
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
    assert_text("delivery.not-connected", verdict.error, url=f"http://127.0.0.1:{receiver.port}")


async def test_a_channel_that_changes_is_sent_to_its_new_address(listen: Listen, sender: HttpSender) -> None:
    first, second = await listen(), await listen()
    await sender.send(http_target(url(first)), make_delivery())
    await sender.send(http_target(url(second)), make_delivery())
    assert (len(first.requests), len(second.requests)) == (1, 1)


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        ("410 Gone", "", ("final", 410, None)),
        ("404 Not Found", "", ("retry", 404, None)),
        ("404 Not Found", "Tocsin-Retry:  never\t\r\n", ("final", 404, None)),
        ("404 Not Found", "Tocsin-Retry: nevermore\r\n", ("retry", 404, None)),
        ("422 Unprocessable", "", ("final", 422, None)),
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


RESOURCES = (
    *("/a%2Fb", "/a%2fb", "/%41", "/%7Euser", "/~user", "/a+b", "/a%20b", "/%E9", "/a/../b", "/a/./b", "/a//b", "//x", "/x;v=1", "/:x"),
    *("/x?a", "/x?", "/x?a=b+c", "/x?a=%C3%A9", "/x?q=a?b/c", "/x?a=b;c=d", "/x?q='a'", "/x?q=(a)*!", "/x?q=[1]", "/x?a=%25", "/x?@"),
    *("/%2525", "/a%0d%0ab", "/x?sp=%2Ftriggers%2Fmanual%2Frun&sv=1.0&sig=ab%2Bc%2Fd%3D%3D", "/x?u=https%3A%2F%2Fe.com%2F%3Fa%3D1"),
    "/x?X-Amz-Signature=a%2Fb&X-Amz-Credential=AK%2F2026%2Fus",
)


@pytest.mark.parametrize("resource", RESOURCES)
async def test_a_channels_url_is_sent_byte_for_byte(listen: Listen, sender: HttpSender, resource: str) -> None:
    receiver = await listen()
    target = http_target(url(receiver, resource))
    await sender.send(target, make_delivery())
    assert receiver.requests[0].line == f"POST {resource} HTTP/1.1"
    post = post_of(target, make_delivery(), Egress(names=["127.0.0.1"], plain=True))
    assert post.url == url(receiver, resource)


@pytest.mark.parametrize(("written", "sent"), [("", "/"), ("?q=1", "/?q=1"), ("?a/b", "/?a/b"), ("/x#f", "/x"), ("#f", "/")])
async def test_a_url_without_a_path_asks_for_the_root(written: str, sent: str) -> None:
    assert resource_of(f"https://orders.example.com{written}") == sent


async def test_redirects_are_not_followed(listen: Listen, sender: HttpSender) -> None:
    other = await listen()
    for status in (301, 302, 303, 307, 308):
        receiver = await listen(answer(f"HTTP/1.1 {status} Go\r\nLocation: {url(other)}\r\nContent-Length: 0\r\n\r\n".encode()))
        verdict = await sender.send(http_target(url(receiver)), make_delivery())
        assert verdict.outcome == "retry" and verdict.status == status
        assert verdict.error and "redirects are not followed" in verdict.error
    assert other.connections == 0


async def test_proxies_of_the_environment_are_ignored(listen: Listen, sender: HttpSender, monkeypatch: pytest.MonkeyPatch) -> None:
    proxy, receiver = await listen(), await listen()
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"
    assert (proxy.connections, receiver.connections) == (0, 1)


@pytest.mark.parametrize(("channel", "own"), [(800, None), (60_000, 800), (100, 800)])
async def test_a_receiver_that_does_not_answer_is_left_after_the_time_out(
    listen: Listen, sender: HttpSender, channel: int, own: int | None
) -> None:
    received = asyncio.Event()

    async def note(request: Request, writer: asyncio.StreamWriter) -> bool:
        received.set()
        return False

    receiver = await listen(note)
    target = http_target(url(receiver, "/hook?token=abc"), timeout=channel)
    verdict = await sender.send(target, make_delivery(timeout=own))
    assert post_of(target, make_delivery(timeout=own), sender.egress).timeout == 0.8
    assert received.is_set()
    assert verdict == Verdict("retry", None, f"http://127.0.0.1:{receiver.port}: no answer within 0.8 s")
    await receiver.idle.wait()


@pytest.mark.parametrize(("line", "expected"), [(b"200 OK", ("retry", None)), (b"503 Busy", ("retry", None))])
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
    verdict = await sender.send(http_target(url(receiver), timeout=2000), make_delivery())
    assert (verdict.outcome, verdict.status) == expected


async def test_errors_show_neither_path_nor_query_nor_a_target_of_the_event(listen: Listen, sender: HttpSender) -> None:
    hook = "/services/T000/B000/PATHSECRET42?sig=QUERYSECRET42"
    closing = await listen(answer(b""))
    refusing = await listen(answer(b"nonsense\r\n\r\n"))
    for address in (url(closing, hook), url(refusing, hook), f"http://127.0.0.1:9{hook}", f"https://10.0.0.1{hook}"):
        for target in (None, EventTarget(path="/17", query={"a": "1"}).stored()):
            verdict = await sender.send(http_target(address), make_delivery(event_target=target))
            assert verdict.error and "SECRET42" not in verdict.error and "/17" not in verdict.error, verdict
    missing = answer(b"HTTP/1.1 404 X\r\nContent-Length: 55\r\n\r\nno /services/T000/B000/PATHSECRET42, no PATHSECRET42/17")
    verdict = await sender.send(http_target(url(await listen(missing), hook)), make_delivery())
    assert verdict.answer is not None and verdict.answer.body == "no ***, no ***/17"


async def test_a_refused_connection_is_tried_again(sender: HttpSender) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        verdict = await sender.send(http_target(f"http://127.0.0.1:{port}/a/b?token=abc#frag"), make_delivery())
    assert verdict == Verdict("retry", None, verdict.error, unreached=True)
    assert_text("delivery.not-connected", verdict.error, url=f"http://127.0.0.1:{port}")


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
    assert verdict.outcome == "retry" and verdict.unreached and verdict.error
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


@pytest.mark.parametrize("fast", [0, 119_000])
async def test_both_sends_of_a_lost_connection_are_numbered_and_reported(listen: Listen, fast: int) -> None:
    """fast: milliseconds by which the machine's clock is ahead of the corrected one, by which deliveries start."""

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
    now = NOW - fast
    verdict = await sender.send(http_target(url(receiver)), make_delivery("ev-2", attempt=3, due=now - 40, fired=now))
    await sender.close()
    assert (verdict.outcome, verdict.status) == ("delivered", 200)
    assert isinstance(verdict, SecondVerdict) and verdict.sent_at == now + 250 and "closed before an answer" in verdict.first_error
    _, first, second = receiver.requests
    assert (first.headers["ce-tocsinattempt"], second.headers["ce-tocsinattempt"]) == ("3", "4")
    assert (first.headers["ce-tocsinlatems"], second.headers["ce-tocsinlatems"]) == ("40", "290")
    assert verify(second.headers, second.body, [SECRET], NOW)


@pytest.mark.parametrize("stray", [b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n", b"x", b""])
async def test_what_comes_on_an_idle_connection_answers_no_request(sender: HttpSender, stray: bytes) -> None:
    """stray: bytes that the loop has not read yet when the next delivery begins; without any, the connection ends."""
    loop = asyncio.get_running_loop()

    async def serves(peer: socket.socket) -> bytes:
        found = await loop.sock_recv(peer, 65536)
        await loop.sock_sendall(peer, OK)
        return found

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        target = http_target(f"http://127.0.0.1:{server.getsockname()[1]}/")
        first = asyncio.create_task(sender.send(target, make_delivery("ev-1")))
        peer, _ = await loop.sock_accept(server)
        await serves(peer)
        assert (await first).outcome == "delivered"
        if stray:
            peer.send(stray)
        else:
            peer.shutdown(socket.SHUT_WR)

        async def next_connection() -> bytes:
            other, _ = await loop.sock_accept(server)
            with other:
                return await serves(other)

        accepting = asyncio.create_task(next_connection())
        # Begins before the loop's next turn, in which it would read what has come.
        verdict = await sender.send(target, make_delivery("ev-2"))
        assert verdict == Verdict("delivered", 200, answer=verdict.answer)
        assert b"ev-2" in await within(accepting, "the delivery on another connection")
        with peer:
            try:
                written = await loop.sock_recv(peer, 65536)
            except ConnectionResetError:
                written = b""
            assert written == b"", "nothing was written to the first connection"


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
    assert_text("channel.loopback", ask(url="https://127.0.0.1/"))
    assert_text("channel.url-not-valid", ask(url="https://[::1/x"))
    assert_text("channel.header-not-valid", ask(url="https://example.com/", headers={"Bad Name": "x"}), name="Bad Name")
