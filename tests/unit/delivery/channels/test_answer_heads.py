"""Heads of answers: what is kept with an attempt, and that no secret of the channel is in it."""

from __future__ import annotations

import asyncio
import base64
import json
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.core.http1.answer import AnswerReader
from shared.delivery.channels.answer_heads import KEPT_BODY, READ_BODY, AnswerHead, head_of, of_json, to_json
from shared.delivery.channels.http import HttpSender
from shared.delivery.channels.masks import mask, masks_of
from shared.delivery.channels.model import HttpChannel
from shared.delivery.fleet_owners import PartitionOwner

from .conftest import SECRET, Listen, Request, answer, http_target, make_delivery, url

TOKEN = 'tok"en/+ü§<>%'
"""A secret that looks different in JSON, in HTML and in a URL."""


def channel(**change: object) -> HttpChannel:
    return HttpChannel.model_validate({"type": "http", "url": "https://hooks.example.com/a", **change})


def read(raw: bytes, *, accepted: bool = False) -> AnswerReader:
    reader = AnswerReader(READ_BODY, keep_accepted=accepted)
    reader.feed(raw)
    return reader


def sized(body: bytes, status: str = "500 Oops", fields: bytes = b"Content-Type: text/plain\r\n") -> bytes:
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status.encode(), fields, len(body), body)


NOTHING = masks_of(channel())


@pytest.mark.parametrize(
    ("raw", "body", "cut"),
    [
        (sized(b"no room"), "no room", False),
        (sized(b""), "", False),
        (sized(b"x" * KEPT_BODY), "x" * KEPT_BODY, False),
        (sized(b"x" * (KEPT_BODY + 1)), "x" * KEPT_BODY, True),
        (b"HTTP/1.1 500 X\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nno \r\n4;e=1\r\nroom\r\n0\r\n\r\n", "no room", False),
        (b"HTTP/1.1 500 X\r\nContent-Length: 99\r\n\r\nno", "no", True),
        (b"HTTP/1.1 500 X\r\n\r\nuntil the end", "until the end", True),
        (sized(b"\xff\x00ok\x1b[31m\n"), "\ufffd\ufffdok\ufffd[31m\n", False),
        (sized("é".encode() * 2048 + b"x"), "é" * 2048, True),
        (sized("xé".encode() * 1366), ("xé" * 1366)[:2730] + "x", True),
    ],
)
def test_the_beginning_of_the_body_is_kept(raw: bytes, body: str, cut: bool) -> None:
    head = head_of(read(raw), NOTHING)
    assert head is not None and (head.body, head.cut) == (body, cut)
    assert head_of(read(raw[:12]), NOTHING) is None, "an answer without a whole head"


def test_a_body_that_ends_with_its_connection_is_whole() -> None:
    reader = read(b"HTTP/1.1 500 X\r\n\r\nuntil the end")
    reader.end(clean=True)
    assert head_of(reader, NOTHING) == AnswerHead(None, "until the end", False, None)


def test_an_accepted_delivery_keeps_nothing_unless_asked() -> None:
    raw = sized(b"fine", "200 OK")
    assert head_of(read(raw), NOTHING) is None
    kept = head_of(read(raw, accepted=True), NOTHING)
    assert kept is not None and kept.body == "fine"


def test_a_compressed_body_is_not_kept() -> None:
    head = head_of(read(sized(b"nope", fields=b"Content-Encoding: gzip\r\nContent-Type: text/html\r\n")), NOTHING)
    assert head == AnswerHead("text/html", None, True, None)


@pytest.mark.parametrize(
    ("charset", "encoding"),
    [
        *(("", each) for each in ("utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")),
        ("; charset=utf-16", "utf-8"),
        ("; CHARSET = 'UTF-7'", "utf-7"),
    ],
)
def test_a_body_that_is_not_written_like_ascii_is_not_kept(charset: str, encoding: str) -> None:
    head = head_of(read(sized("no: t0psecret".encode(encoding), fields=f"Content-Type: text/plain{charset}\r\n".encode())), NOTHING)
    assert head is not None and (head.body, head.cut) == (None, True)
    for usual in ("utf-8", "UTF8", '"us-ascii"', "iso-8859-1", "windows-1252", "Shift_JIS"):
        kept = head_of(read(sized(b"no", fields=f"Content-Type: text/plain; charset={usual}\r\n".encode())), NOTHING)
        assert kept is not None and kept.body == "no", usual


def test_little_is_read_of_header_fields_however_many_there_are() -> None:
    spec = channel(headers={"X-Key": "t0psecret" * 50})
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"t0psecret" * 500) for number in range(10))
    head = head_of(read(sized(b"", fields=fields)), masks_of(spec), fields=True)
    assert head is not None and head.headers is not None and not any("t0p" in value for value in head.headers.values())


def test_header_fields_are_kept_on_request_and_cookies_never() -> None:
    fields = b"Content-Type: a/b\r\nSet-Cookie: id=1\r\nX-Reason: full\r\nX-Reason: disk\r\nX-Echo: Bearer t0psecret\r\n"
    spec = channel(headers={"Authorization": "Bearer t0psecret"})
    head = head_of(read(sized(b"", fields=fields)), masks_of(spec), fields=True)
    assert head is not None and head.headers == {
        "content-type": "a/b",
        "set-cookie": "***",
        "x-reason": "full, disk",
        "x-echo": "***",
        "content-length": "0",
    }
    assert head_of(read(sized(b"", fields=b"X-Long: " + b"y" * 5000 + b"\r\n")), NOTHING, fields=True).headers == {}


@pytest.mark.parametrize("shown", [TOKEN, quote(TOKEN), quote(TOKEN, safe=""), json.dumps(TOKEN, ensure_ascii=False)[1:-1]])
@pytest.mark.parametrize("at", [0, KEPT_BODY - 5, KEPT_BODY + 5])
def test_a_secret_is_masked_in_each_form_and_at_the_end_of_what_is_kept(shown: str, at: int) -> None:
    spec = channel(url=f"https://hooks.example.com/a?key={quote(TOKEN, safe='')}")
    head = head_of(read(sized(b"." * at + shown.encode() + b".")), masks_of(spec))
    assert head is not None and head.body is not None
    assert shown[:4] not in head.body and head.body[:at] == "." * min(at, KEPT_BODY)


def test_every_kind_of_secret_is_masked() -> None:
    login = base64.b64encode(b"admin:hunter2").decode()
    spec = channel(
        headers={"Authorization": f"Basic {login}", "X-Token": "abc", "X-Key": "Token 5f2c9a"},
        url="https://hooks.example.com/a?v=2&sig=s%3Dg1",
    )
    body = f"{login} hunter2 abc abcd 5f2c9a {SECRET} {SECRET.removeprefix('whsec_')} 2 23 s=g1 s%3Dg1"
    head = head_of(read(sized(body.encode())), masks_of(spec, (SECRET,)))
    assert head is not None and head.body == "*** *** *** abcd *** *** *** *** 23 *** ***"


@settings(max_examples=60)
@given(st.text(st.sampled_from("abAB%&+=/<\"' "), min_size=4, max_size=12), st.binary(max_size=40), st.integers(0, 60))
def test_no_part_of_a_value_that_was_cut_is_left(value: str, before: bytes, cut: int) -> None:
    data = (before + value.encode() + b"-end")[: len(before) + cut]
    masked = mask(data, masks_of(channel(headers={"X-Key": value})), whole=False)
    assert value.encode() not in masked
    if cut >= 4 and value.encode() not in before:
        assert not masked.endswith(data[len(before) :]) or b"***" in masked


def test_a_stored_head_reads_as_it_was_written() -> None:
    head = AnswerHead("text/plain", 'say "no"\n', True, {"x-a": "b"})
    assert of_json(to_json(head)) == head


async def test_the_sender_keeps_what_the_channel_asks_for(listen: Listen, sender: HttpSender) -> None:
    async def reflect(request: Request, writer: asyncio.StreamWriter) -> None:
        body = json.dumps({"why": "no room", "you sent": request.headers}).encode()
        writer.write(sized(body, "503 Busy" if request.headers["ce-id"] == "ev-1" else "200 OK", b"Content-Type: application/json\r\n"))

    receiver = await listen(reflect)
    target = http_target(url(receiver) + "?code=0ld-c0de", headers={"X-Api-Key": "k3y-of-the-partner"})
    for kept, failed, delivered in (("failed", True, False), ("all", True, True), ("none", False, False)):
        object.__setattr__(target, "spec", target.spec.model_copy(update={"answers": kept}))
        verdicts = [await sender.send(target, make_delivery(id)) for id in ("ev-1", "ev-2")]
        assert [verdict.answer is not None for verdict in verdicts] == [failed, delivered], kept
        for verdict in verdicts:
            if verdict.answer is not None:
                assert "no room" in verdict.answer.body and "k3y" not in verdict.answer.body and "0ld" not in verdict.answer.body
    assert receiver.connections == 1


async def test_signatures_that_a_receiver_sends_back_are_masked(listen: Listen, sender: HttpSender) -> None:
    sent: list[dict[str, str]] = []

    async def reflect(request: Request, writer: asyncio.StreamWriter) -> None:
        sent.append(request.headers)
        body = (
            json.dumps({"headers": request.headers, "one": request.headers["webhook-signature"].split(",")[1]}).replace("/", "\\/").encode()
        )
        writer.write(sized(body, "503 Busy"))

    receiver = await listen(reflect)
    owner = PartitionOwner("search", 3, 17, 42, "s7", "i1", url(receiver, "").rstrip("/"))
    for number in range(20):
        verdict = await sender.send(http_target(url(receiver)), make_delivery(f"ev-{number}", owner=owner))
        assert verdict.answer is not None and verdict.answer.body is not None
        shown = json.loads(verdict.answer.body)
        assert shown["one"] == "***" and shown["headers"]["webhook-id"] == f"ev-{number}"
        assert shown["headers"]["webhook-signature"] == shown["headers"]["tocsin-owner"] == "***"
        signatures = [part[3:] for name in ("webhook-signature", "tocsin-owner") for part in sent[-1][name].split(" ") if part[:2] == "v1"]
        assert len(signatures) == 2 and not any(each in verdict.answer.body.replace("\\/", "/") for each in signatures)


async def test_an_installation_may_keep_no_answers(listen: Listen) -> None:
    from shared.core.settings import Settings

    receiver = await listen(answer(sized(b"no")))
    sender = HttpSender(Settings(storage="UseDevelopmentStorage=true", egress_allow="127.0.0.0/8", keep_answers=False))
    try:
        assert (await sender.send(http_target(url(receiver)), make_delivery())).answer is None
    finally:
        await sender.close()
