"""The queue adapter against a service that fails."""

from __future__ import annotations

import base64

import pytest

from shared.core.errors import Rejected, Unavailable
from shared.storage.ports import Message

from .conftest import DATE, KEY, Bench, Reply

TAKEN = Message("id", "receipt+/=", "", 1, 0)


def failed(code: str, status: int) -> Reply:
    return Reply(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>secret {KEY}</Message></Error>".encode())


def messages(*texts: str) -> Reply:
    items = "".join(
        f"<QueueMessage><MessageId>{i}</MessageId><InsertionTime>{DATE}</InsertionTime><ExpirationTime>{DATE}</ExpirationTime>"
        f"<PopReceipt>r{i}</PopReceipt><TimeNextVisible>{DATE}</TimeNextVisible><DequeueCount>2</DequeueCount>"
        f"<MessageText>{text}</MessageText></QueueMessage>"
        for i, text in enumerate(texts)
    )
    return Reply(200, f"<?xml version='1.0' encoding='utf-8'?><QueueMessagesList>{items}</QueueMessagesList>".encode())


FAULTS = [Reply(429), Reply(500), Reply(503), Reply(reset=True), Reply(hang=True), Reply(201, b"x" * 9, cut=3)]


@pytest.mark.parametrize("fault", FAULTS, ids=["429", "500", "503", "reset", "hang", "cut"])
async def test_a_send_is_repeated(bench: Bench, fault: Reply) -> None:
    bench.server.script(fault, Reply(201))
    await bench.queues.send("queue", "hé")
    assert [line for line, _, _ in bench.server.requests] == ["POST /acct/queue/messages?visibilitytimeout=0&messagettl=-1 HTTP/1.1"] * 2
    assert base64.b64encode("hé".encode()) in bench.server.requests[1][2]
    assert bench.queues.transactions == {"send": 2}


async def test_every_verb_ends_as_unavailable(bench: Bench) -> None:
    for call in (
        lambda: bench.queues.send("queue", "a"),
        lambda: bench.queues.receive("queue"),
        lambda: bench.queues.delete("queue", TAKEN),
        lambda: bench.queues.length("queue"),
        lambda: bench.queues.ensure(["queue"]),
    ):
        bench.server.script(*[Reply(503)] * 5)
        with pytest.raises(Unavailable, match="5 times"):
            await call()
    assert len(bench.server.requests) == 25


async def test_a_refused_connection_is_unavailable(idle_bench: Bench) -> None:
    with pytest.raises(Unavailable, match="NotConnected"):
        await idle_bench.queues.send("queue", "a")


async def test_rejections_carry_the_code_and_no_more(bench: Bench) -> None:
    bench.server.script(failed("QueueNotFound", 404), failed("AuthenticationFailed", 403), failed("InvalidXmlDocument", 400))
    for code in ("QueueNotFound", "AuthenticationFailed", "InvalidXmlDocument"):
        with pytest.raises(Rejected, match=f"^{code} ") as caught:
            await bench.queues.send("queue", "a")
        assert KEY not in repr(caught.value)


async def test_a_delete_that_finds_nothing_is_a_lost_lease(bench: Bench) -> None:
    bench.server.script(failed("MessageNotFound", 404), failed("PopReceiptMismatch", 400), failed("QueueNotFound", 404))
    assert await bench.queues.delete("queue", TAKEN) is False
    assert await bench.queues.delete("queue", TAKEN) is False
    with pytest.raises(Rejected, match="QueueNotFound"):
        await bench.queues.delete("queue", TAKEN)
    assert bench.server.requests[0][0] == "DELETE /acct/queue/messages/id?popreceipt=receipt%2B%2F%3D HTTP/1.1"


async def test_a_delete_repeated_after_a_lost_answer_takes_not_found_for_success(bench: Bench) -> None:
    bench.server.script(Reply(500), failed("MessageNotFound", 404))
    assert await bench.queues.delete("queue", TAKEN) is True
    bench.server.script(Reply(500), failed("PopReceiptMismatch", 400))
    assert await bench.queues.delete("queue", TAKEN) is False
    bench.server.script(Reply(429), failed("MessageNotFound", 404))
    assert await bench.queues.delete("queue", TAKEN) is False


async def test_messages_are_read_and_text_of_others_is_left_as_it_is(bench: Bench) -> None:
    bench.server.script(messages(base64.b64encode("é".encode()).decode(), "", "not base64!", "/w=="))
    found = await bench.queues.receive("queue", limit=4, lease=30)
    assert [(m.id, m.receipt, m.text, m.dequeue_count) for m in found] == [
        ("0", "r0", "é", 2), ("1", "r1", "", 2), ("2", "r2", "not base64!", 2), ("3", "r3", "/w==", 2)
    ]  # fmt: skip
    assert found[0].inserted == 1_795_256_515_000
    assert bench.server.requests[0][0] == "GET /acct/queue/messages?numofmessages=4&visibilitytimeout=30 HTTP/1.1"


@pytest.mark.parametrize("body", [b"", b"<a>", b"<l><QueueMessage/></l>", messages("").body.replace(b">2<", b">x<")])
async def test_an_answer_that_cannot_be_read_is_unavailable(bench: Bench, body: bytes) -> None:
    bench.server.script(Reply(200, body), Reply(200), Reply(302))
    with pytest.raises(Unavailable, match="cannot be read"):
        await bench.queues.receive("queue")
    with pytest.raises(Unavailable, match="cannot be read"):
        await bench.queues.length("queue")
    with pytest.raises(Unavailable, match="302"):
        await bench.queues.length("queue")


async def test_part_seconds_round_up(bench: Bench) -> None:
    bench.server.script(Reply(201))
    await bench.queues.send("queue", "a", visible_in=0.2)
    assert "visibilitytimeout=1&" in bench.server.requests[0][0]
