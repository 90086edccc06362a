"""The http sender offers long work to receivers, reads their answer, and keeps no token."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from shared.client.receiving import verify
from shared.core.http1.answer import AnswerReader
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.model import HttpChannel, LongWork
from shared.delivery.channels.ports import CompletionOffer, SecondVerdict, Target

from .conftest import SECRET, Listen, Request, answer, http_target, make_delivery, url

OFFER = CompletionOffer(lambda attempt: f"https://app.example/work/{attempt}", lambda attempt: f"tct_1_token{attempt}", 900_000)


def target(address: str) -> Target:
    found = http_target(address, headers={"Tocsin-Completion-Token": "forged"})
    assert isinstance(found.spec, HttpChannel)
    return replace(found, spec=found.spec.model_copy(update={"long_work": LongWork(), "answers": "all", "answer_headers": True}))


async def test_each_send_has_a_url_and_a_token_of_its_own(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen(answer(b"HTTP/1.1 202 Accepted\r\nTOCSIN-complete: Later \r\nContent-Length: 0\r\n\r\n"))
    for attempt in (1, 2):
        verdict = await sender.send(target(url(receiver)), make_delivery(attempt=attempt, completion=OFFER))
        assert (verdict.outcome, verdict.status, verdict.later) == ("delivered", 202, True)
    for attempt, request in enumerate(receiver.requests, 1):
        assert request.headers["tocsin-completion-url"] == OFFER.url(attempt)
        assert request.headers["tocsin-completion-token"] == OFFER.token(attempt) and request.headers["tocsin-completion-within"] == "900"
    assert "forged" not in str([request.pairs for request in receiver.requests])


async def test_a_delivery_shows_its_work_to_the_client(listen: Listen, sender: HttpSender) -> None:
    receiver = await listen()
    await sender.send(target(url(receiver)), make_delivery(completion=OFFER))
    await sender.send(target(url(receiver)), make_delivery())
    first, second = (verify(request.headers, request.body, SECRET, tolerance=1e12) for request in receiver.requests)
    assert first.work is not None and (first.work.url, first.work.token) == (OFFER.url(1), OFFER.token(1)) and second.work is None
    assert OFFER.token(1) not in repr(first)


@pytest.mark.parametrize(
    ("head", "later"),
    [
        (b"202 Accepted\r\nTocsin-Complete: later", True),
        (b"202 Accepted\r\nX: 1\r\nTocsin-Complete:later\r\nY: 2", True),
        (b"202 Accepted", False),
        (b"202 Accepted\r\nTocsin-Complete: now", False),
        (b"202 Accepted\r\nX-Tocsin-Complete: later", False),
        (b"200 OK\r\nTocsin-Complete: later", False),
        (b"503 Busy\r\nTocsin-Complete: later", False),
    ],
)
def test_the_answer_says_later(head: bytes, later: bool) -> None:
    for size in (1, 1000):
        reader, raw = AnswerReader(), b"HTTP/1.1 " + head + b"\r\nContent-Length: 0\r\n\r\n"
        for at in range(0, len(raw), size):
            reader.feed(raw[at : at + size])
        assert reader.later is later


async def test_the_token_is_masked_in_what_is_kept_of_an_answer(listen: Listen, sender: HttpSender) -> None:
    async def echo(request: Request, writer: asyncio.StreamWriter) -> None:
        token = request.headers["tocsin-completion-token"].encode()
        head = b"HTTP/1.1 503 Busy\r\nX-Token: %b\r\nContent-Length: %d\r\n\r\n" % (token, 2 * len(token) + 1)
        writer.write(head + token + b"\n" + token)

    receiver = await listen(echo)
    verdict = await sender.send(target(url(receiver)), make_delivery(completion=OFFER))
    assert verdict.answer is not None and verdict.answer.body == "***\n***" and verdict.answer.headers is not None
    assert verdict.answer.headers["x-token"] == "***" and "tct_" not in repr(verdict)


async def test_a_second_send_has_the_token_of_its_own_number(listen: Listen, sender: HttpSender) -> None:
    async def once(request: Request, writer: asyncio.StreamWriter) -> bool:
        if len(receiver.requests) == 2:
            return True
        writer.write(b"HTTP/1.1 202 Accepted\r\nTocsin-Complete: later\r\nContent-Length: 0\r\n\r\n")
        return False

    receiver = await listen(once)
    await sender.send(target(url(receiver)), make_delivery(completion=OFFER))
    verdict = await sender.send(target(url(receiver)), make_delivery(attempt=1, completion=OFFER))
    assert isinstance(verdict, SecondVerdict) and verdict.later
    assert [request.headers["tocsin-completion-token"] for request in receiver.requests[1:]] == [OFFER.token(1), OFFER.token(2)]
