"""Answers' bodies and informational answers: the http sender reads as much as it needs, and no more."""

from __future__ import annotations

import asyncio

import pytest

from shared.delivery.channels import guarded_client
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.ports import Verdict
from shared.delivery.circuit_breaker import is_failure
from tests.texts import assert_text

from .conftest import OK, Listen, Request, answer, http_target, make_delivery, url


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
    monkeypatch.setattr(guarded_client, "MAX_ANSWER_SECONDS", 0.05)

    async def trickle(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(f"HTTP/1.1 {status}\r\nContent-Length: 60000\r\n\r\nx".encode())
        return False

    receiver = await listen(trickle)
    verdict = await sender.send(http_target(url(receiver)), make_delivery())
    assert verdict.outcome == outcome
    await receiver.idle.wait()


async def test_a_body_cut_by_the_channels_time_out_still_counts(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx"))
    assert (await sender.send(http_target(url(receiver), timeout=2000), make_delivery())).outcome == "delivered"
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
    assert_text("delivery.informational-answers", verdicts[0].error, url=url(receiver, ""), most=5)
    await receiver.idle.wait()


LARGE_HEAD = b"HTTP/1.1 103 X\r\n" + b"".join(b"X-%d: %s\r\n" % (n, b"y" * 1000) for n in range(70)) + b"\r\n"


@pytest.mark.parametrize(
    ("first", "unit", "error"),
    [
        (LARGE_HEAD, HINT, "more than 16 KiB before the status of the final answer"),
        (b"", LARGE_HEAD, "more than 16 KiB before the status of the final answer"),
        (b"", b"HTTP/2.0 103 X\r\n\r\n", "more than 5 informational answers and no final one"),
        (b"", b"\r\n", "an answer of more than 64 KiB"),
        (b"HTTP/1.1 500 X\r\n", b"X-Long: " + b"y" * 1000 + b"\r\n", "an answer of more than 64 KiB"),
    ],
)
async def test_bytes_before_the_end_of_the_head_are_bounded(
    listen: Listen, sender: HttpSender, first: bytes, unit: bytes, error: str
) -> None:
    async def flood(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(first)
        while not writer.is_closing():
            writer.write(unit * max(1, 4096 // len(unit)))
            await writer.drain()
        return True

    receiver = await listen(flood)
    verdict = await sender.send(http_target(url(receiver)), make_delivery())
    assert verdict == Verdict("retry", None, f"{url(receiver, '')}: {error}")
    assert is_failure(verdict.outcome, verdict.status), "the breaker counts it"
    await receiver.idle.wait()


@pytest.mark.parametrize("unit", [OK, HINT, b"\r\n"])
async def test_a_kept_connection_on_which_bytes_arrive_unasked_is_closed(listen: Listen, sender: HttpSender, unit: bytes) -> None:
    answered, all_taken = asyncio.Event(), False

    async def flood_later(request: Request, writer: asyncio.StreamWriter) -> bool:
        nonlocal all_taken
        writer.write(OK)
        await writer.drain()
        await answered.wait()
        for _ in range(1000):
            writer.write(unit * (16_384 // len(unit)))
            await writer.drain()
        all_taken = True
        return True

    receiver = await listen(flood_later)
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"
    answered.set()
    await receiver.idle.wait()
    assert not all_taken


async def test_an_answer_that_nobody_asked_for_is_not_that_of_the_next_event(listen: Listen, sender: HttpSender) -> None:
    answered, answered_twice = asyncio.Event(), asyncio.Event()

    async def answer_twice(request: Request, writer: asyncio.StreamWriter) -> None:
        if len(receiver.requests) > 1:
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
            return
        writer.write(OK)
        await writer.drain()
        await answered.wait()
        writer.write(OK)
        answered_twice.set()

    receiver, other = await listen(answer_twice), await listen()
    assert (await sender.send(http_target(url(receiver)), make_delivery("first"))).outcome == "delivered"
    answered.set()
    await answered_twice.wait()
    # Several round trips on the same event loop: by their end, the bytes written before have been received.
    for _ in range(3):
        await sender.send(http_target(url(other)), make_delivery())
    assert (await sender.send(http_target(url(receiver)), make_delivery("second"))).status == 503


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
    ],
)
@pytest.mark.parametrize("close", [False, True])
async def test_a_2xx_is_a_delivery_whatever_follows_its_head(listen: Listen, sender: HttpSender, raw: bytes, close: bool) -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return close

    receiver = await listen(respond)
    for number in range(3):
        verdict = await sender.send(http_target(url(receiver)), make_delivery(f"ev-{number}"))
        assert verdict.outcome == "delivered" and verdict.status in (200, 202, 204)
    assert [request.headers["ce-id"] for request in receiver.requests] == ["ev-0", "ev-1", "ev-2"], "none was sent twice"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 204 No Content\r\nX-Cut: of",
        b"HTTP/1.1 202 Accepted\r\nContent-Length: -4\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Huge: " + b"s3cret" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_a_2xx_whose_head_is_cut_or_not_valid_is_tried_again(listen: Listen, sender: HttpSender, raw: bytes) -> None:
    async def respond(request: Request, writer: asyncio.StreamWriter) -> bool:
        writer.write(raw)
        await writer.drain()
        return True

    verdict = await sender.send(http_target(url(await listen(respond))), make_delivery())
    assert (verdict.outcome, verdict.status) == ("retry", None)
    assert verdict.error and "s3cret" not in verdict.error


@pytest.mark.parametrize("hint", [b"", HINT])
async def test_a_head_that_comes_in_pieces_is_read_to_its_end(listen: Listen, sender: HttpSender, hint: bytes) -> None:
    async def piece_by_piece(request: Request, writer: asyncio.StreamWriter) -> None:
        raw = hint + b"HTTP/1.1 429 Slow\r\nRetry-After: 30\r\nContent-Length: 2\r\n\r\nno"
        for each in [raw[n : n + 7] for n in range(0, len(raw), 7)]:
            writer.write(each)
            await writer.drain()
            await asyncio.sleep(0)

    receiver = await listen(piece_by_piece)
    for _ in range(3):
        verdict = await sender.send(http_target(url(receiver)), make_delivery())
        assert (verdict.outcome, verdict.status, verdict.retry_after) == ("retry", 429, 30.0)
    assert receiver.connections == 1


async def test_informational_answers_are_passed_over(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK))
    assert (await sender.send(http_target(url(receiver)), make_delivery())).outcome == "delivered"
