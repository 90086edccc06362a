"""The table adapter against a service that fails."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from shared.core.errors import OutcomeUnknown, Rejected, StorageError, Unavailable
from shared.core.pressure import PressureGauge
from shared.storage.azure import account
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import Transport, TransportPolicy
from shared.storage.ports import ANY, Applied, Delete, Insert, Merge, Op, Replace, RowQuery, Upsert, WriteRefused

from .conftest import KEY, Bench, Reply, connection

ROW = {
    "odata.metadata": "m",
    "odata.etag": 'W/"1"',
    "PartitionKey": "p",
    "RowKey": "r",
    "Timestamp": "2026-11-21T10:21:55.2501234Z",
    "n@odata.type": "Edm.Int64",
    "n": "12",
}
OK_ROW = Reply(200, orjson.dumps(ROW))
OK_PAGE = Reply(200, orjson.dumps({"value": [ROW]}))
OK_INSERT = Reply(204, headers={"ETag": 'W/"2"'})
ONE: list[Op] = [Insert("r", {"v": "payload-secret"})]
MERGE: list[Op] = [Merge("r", {"v": 1}, ANY)]
TWO: list[Op] = [Insert("r", {"v": "payload-secret"}), Delete("s", ANY)]
WRITES = [ONE, MERGE, TWO, [Replace("r", {}, ANY)], [Upsert("r", {})], [Delete("r", ANY)]]


def error(code: str, text: str = "Sorry.", status: int = 400, **more: Any) -> Reply:
    body = {"odata.error": {"code": code, "message": {"lang": "en-US", "value": text}}}
    return Reply(status, orjson.dumps(body), **more)


def batch(*parts: bytes) -> Reply:
    lines = b"--b\r\nContent-Type: multipart/mixed; boundary=c\r\n\r\n"
    for part in parts:
        lines += b"--c\r\nContent-Type: application/http\r\nContent-Transfer-Encoding: binary\r\n\r\n" + part + b"\r\n"
    return Reply(202, lines + b"--c--\r\n--b--\r\n")


def part_failed(status: int, code: str, text: str) -> Reply:
    return batch(b"HTTP/1.1 %d X\r\nContent-Type: application/json\r\n\r\n" % status + error(code, text).body)


DONE = b'HTTP/1.1 204 No Content\r\nDataServiceVersion: 1.0;\r\nETag: W/"7"\r\n\r\n'
DELETED = b"HTTP/1.1 204 No Content\r\n\r\n"


async def write(bench: Bench, ops: list[Op]) -> Applied | WriteRefused:
    return await bench.tables.write("Table", "p", ops)


async def test_a_get_is_retried_after_what_the_service_asks_to_wait(bench: Bench) -> None:
    bench.server.script(Reply(429, headers={"Retry-After": "7"}), OK_ROW)
    row = await bench.tables.get("Table", "p", "r")
    assert row is not None
    assert (row.props, row.etag, row.timestamp, row.read_at) == ({"n": 12}, 'W/"1"', 1_795_256_515_250, 1_795_256_515_000)
    assert bench.clock.slept == [7.0]
    assert bench.tables.transactions == {"get": 2, "rows_read": 1}


@pytest.mark.parametrize("text", ["Sat, 21 Nov 2026 10:21:58 GMT", "Sat, 21 Nov 2026 10:21:58 -0000", "Sat Nov 21 10:21:58 2026"])
async def test_a_wait_can_be_given_as_a_date(bench: Bench, text: str) -> None:
    bench.server.script(Reply(503, headers={"Retry-After": text}), OK_ROW)
    assert await bench.tables.get("Table", "p", "r")
    assert bench.clock.slept == [3.0]


@pytest.mark.parametrize("text", ["soon", "", "-1", "1e3", "²", "Sat, 21 Nov 2026 10:21:58 +99999999999999999999"])
async def test_a_wait_that_cannot_be_read_is_our_own(bench: Bench, text: str) -> None:
    bench.server.script(Reply(503, headers={"Retry-After": text}), OK_ROW)
    assert await bench.tables.get("Table", "p", "r")
    assert 0 <= bench.clock.slept[0] <= 0.1


@pytest.mark.parametrize(
    "fault",
    [Reply(s) for s in (408, 429, 500, 502, 503, 504)] + [Reply(reset=True), Reply(200, OK_PAGE.body, cut=10), Reply(hang=True)],
    ids=["408", "429", "500", "502", "503", "504", "reset", "cut", "hang"],
)
async def test_reads_are_retried(bench: Bench, fault: Reply) -> None:
    bench.server.script(fault, OK_PAGE)
    page = await bench.tables.query(RowQuery("Table", "p"))
    assert [row.rk for row in page.rows] == ["r"]
    assert len(bench.server.requests) == 2


async def test_reads_end_after_five_tries_with_growing_waits(bench: Bench) -> None:
    bench.server.script(*[Reply(503)] * 9)
    with pytest.raises(Unavailable, match="5 times, last: status 503"):
        await bench.tables.query(RowQuery("Table", "p"))
    assert len(bench.server.requests) == 5
    assert all(wait <= limit for wait, limit in zip(bench.clock.slept, [0.1, 0.2, 0.4, 0.8], strict=True))


async def test_no_wait_goes_beyond_the_total_time(bench: Bench) -> None:
    bench.server.script(Reply(503, headers={"Retry-After": "20"}), Reply(503, headers={"Retry-After": "20"}))
    with pytest.raises(Unavailable):
        await bench.tables.query(RowQuery("Table", "p"))
    assert bench.clock.slept == [20.0]


@pytest.mark.parametrize("ops", WRITES, ids=lambda ops: "+".join(type(op).__name__ for op in ops))
@pytest.mark.parametrize(
    "fault",
    [*(Reply(s) for s in (408, 500, 502, 503, 504)), Reply(reset=True), Reply(hang=True), Reply(202, b"x" * 100, cut=5), Reply(302)],
    ids=["408", "500", "502", "503", "504", "reset", "hang", "cut", "redirect"],
)
async def test_a_write_whose_answer_is_lost_is_unknown_and_was_sent_once(bench: Bench, ops: list[Op], fault: Reply) -> None:
    bench.server.script(fault)
    with pytest.raises(OutcomeUnknown):
        await write(bench, ops)
    assert len(bench.server.requests) == 1
    assert bench.clock.slept == []


@pytest.mark.parametrize("ops", WRITES, ids=lambda ops: "+".join(type(op).__name__ for op in ops))
async def test_a_write_on_a_kept_connection_that_was_closed_is_not_sent_again(bench: Bench, ops: list[Op]) -> None:
    bench.server.script(OK_ROW, Reply(reset=True), OK_INSERT)
    await bench.tables.get("Table", "p", "r")
    with pytest.raises(OutcomeUnknown):
        await write(bench, ops)
    assert len(bench.server.requests) == 2


@pytest.mark.parametrize(("ops", "answer"), [(ONE, OK_INSERT), (MERGE, OK_INSERT), (TWO, batch(DONE, DELETED))])
async def test_a_throttled_write_is_sent_again(bench: Bench, ops: list[Op], answer: Reply) -> None:
    bench.server.script(Reply(429, headers={"Retry-After": "2"}), Reply(429), answer)
    assert isinstance(await write(bench, ops), Applied)
    assert bench.clock.slept[0] == 2.0
    assert bench.tables.transactions == {"write": 3, "rows_written": len(ops)}


async def test_a_write_throttled_to_the_end_is_unavailable(bench: Bench) -> None:
    bench.server.script(*[Reply(429)] * 5)
    with pytest.raises(Unavailable, match="status 429"):
        await write(bench, ONE)
    assert len(bench.server.requests) == 5


async def test_a_refused_connection_is_tried_again_and_then_unavailable(idle_bench: Bench) -> None:
    for call in (lambda: write(idle_bench, ONE), lambda: idle_bench.tables.get("Table", "p", "r")):
        with pytest.raises(Unavailable, match="5 times, last: NotConnected"):
            await call()
    assert len(idle_bench.clock.slept) == 8


async def test_a_write_goes_through_once_connections_are_accepted(idle_bench: Bench) -> None:
    idle_bench.server.script(OK_INSERT)
    started: list[asyncio.Task[None]] = []
    idle_bench.clock.on_sleep = lambda: started.append(asyncio.ensure_future(idle_bench.server.start())) if not started else None
    assert await write(idle_bench, ONE) == Applied(['W/"2"'])
    assert len(idle_bench.server.requests) == 1


async def test_what_was_unknown_stays_unknown_after_a_throttled_start(bench: Bench) -> None:
    bench.server.script(Reply(429), Reply(500))
    with pytest.raises(OutcomeUnknown):
        await write(bench, ONE)
    assert len(bench.server.requests) == 2


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        (part_failed(409, "EntityAlreadyExists", "1:The specified entity already exists.\nRequestId:1:2"), WriteRefused(1, "exists")),
        (part_failed(404, "ResourceNotFound", "0:The specified resource does not exist."), WriteRefused(0, "missing")),
        (part_failed(404, "EntityNotFound", "1:The specified resource does not exist."), WriteRefused(1, "missing")),
        (part_failed(412, "UpdateConditionNotSatisfied", "1:The condition was not met"), WriteRefused(1, "changed")),
        (part_failed(412, "ConditionNotMet", "0:x"), WriteRefused(0, "changed")),
    ],
)  # fmt: skip
async def test_a_failed_part_becomes_a_refusal(bench: Bench, reply: Reply, expected: WriteRefused) -> None:
    bench.server.script(reply)
    assert await write(bench, TWO) == expected


async def test_the_index_may_have_two_digits(bench: Bench) -> None:
    bench.server.script(part_failed(412, "UpdateConditionNotSatisfied", "57:no"))
    assert await write(bench, [Insert(f"{i}", {}) for i in range(100)]) == WriteRefused(57, "changed")


@pytest.mark.parametrize(
    ("reply", "kind", "text"),
    [
        (part_failed(400, "InvalidInput", "1:bad"), Rejected, "InvalidInput"),
        (part_failed(400, "EntityTooLarge", "0:bad"), Rejected, "EntityTooLarge"),
        (part_failed(404, "TableNotFound", "0:The table specified does not exist."), Rejected, "TableNotFound"),
        (part_failed(409, "TableBeingDeleted", "0:x"), Rejected, "TableBeingDeleted"),
        (part_failed(403, "AuthorizationFailure", "0:x"), Rejected, "AuthorizationFailure"),
        (part_failed(412, "UpdateConditionNotSatisfied", "no index"), Rejected, "names no operation"),
        (part_failed(412, "UpdateConditionNotSatisfied", "2:of two"), Rejected, "names no operation"),
        (part_failed(429, "TooManyRequests", "0:x"), Unavailable, "TooManyRequests"),
        (part_failed(500, "OperationTimedOut", "0:x"), OutcomeUnknown, "OperationTimedOut"),
        (part_failed(503, "ServerBusy", "0:x"), OutcomeUnknown, "ServerBusy"),
        (error("RequestBodyTooLarge", status=413), Rejected, "RequestBodyTooLarge"),
        (error("AuthenticationFailed", status=403), Rejected, "AuthenticationFailed"),
        (Reply(400, b"<html>nothing of ours</html>"), Rejected, "Http400"),
        (Reply(400, b"<error><code>InvalidUri</code></error>"), Rejected, "InvalidUri"),
        (Reply(401), Rejected, "Http401"),
    ],
)
async def test_other_failures_raise_by_what_may_have_happened(bench: Bench, reply: Reply, kind: type[StorageError], text: str) -> None:
    bench.server.script(reply)
    with pytest.raises(kind, match=text) as caught:
        await write(bench, TWO)
    assert type(caught.value) is kind
    assert len(bench.server.requests) == 1


@pytest.mark.parametrize(
    "reply",
    [
        Reply(202, b""),
        Reply(202, b"garbage"),
        Reply(202, b"HTTP/1.1 "),
        Reply(202, b"HTTP/1.1 abc\r\n"),
        batch(DONE),
        batch(DONE, DELETED, DELETED),
        batch(DELETED, DELETED),
        batch(DONE, b"HTTP/1.1 500 X\r\n\r\n"),
        batch(b"HTTP/1.1 302 X\r\n\r\n", DELETED),
        batch(b"HTTP/1.1 204 No Content\r\nETag: ", DELETED),
        Reply(200, batch(DONE, DELETED).body),
    ],
)
async def test_a_garbled_answer_to_a_transaction_is_unknown(bench: Bench, reply: Reply) -> None:
    bench.server.script(reply)
    with pytest.raises(OutcomeUnknown):
        await write(bench, TWO)


async def test_an_answer_without_an_etag_is_unknown(bench: Bench) -> None:
    bench.server.script(Reply(204), Reply(204))
    for ops in (ONE, MERGE):
        with pytest.raises(OutcomeUnknown, match="ETag"):
            await write(bench, ops)


async def test_etags_are_found_whatever_their_headers_case(bench: Bench) -> None:
    bench.server.script(batch(DONE.replace(b"ETag", b"etag"), DELETED))
    assert await write(bench, TWO) == Applied(['W/"7"', ""])


@pytest.mark.parametrize(
    "body", [b"", b"x", b"[]", b"{}", b'{"value": 1}', b'{"value": [{}]}', b'{"value": [1]}', OK_PAGE.body.replace(b"T10:", b"Tx0:")]
)
async def test_a_read_that_cannot_be_understood_is_unavailable(bench: Bench, body: bytes) -> None:
    bench.server.script(Reply(200, body), Reply(200, body))
    with pytest.raises(Unavailable, match="cannot be read"):
        await bench.tables.query(RowQuery("Table", "p"))
    with pytest.raises(Unavailable, match="cannot be read"):
        await bench.tables.get("Table", "p", "r")


async def test_a_page_may_be_empty_and_go_on(bench: Bench) -> None:
    next_keys = {"x-ms-continuation-NextPartitionKey": "1!4!cA--", "x-ms-continuation-NextRowKey": "1!8!+ /&="}
    bench.server.script(Reply(200, b'{"value": []}', next_keys), OK_PAGE)
    page = await bench.tables.query(RowQuery("Table", "p", first="a"))
    assert (page.rows, page.read_at) == ([], 1_795_256_515_000)
    assert page.next is not None
    last = await bench.tables.query(RowQuery("Table", "p", first="a", cursor=page.next))
    assert last.next is None
    one, two = (line.split()[1] for line, _, _ in bench.server.requests)
    assert two == one + "&NextPartitionKey=1%214%21cA--&NextRowKey=1%218%21%2B%20%2F%26%3D"


async def test_a_cancelled_call_is_cancelled(bench: Bench) -> None:
    bench.server.script(Reply(hang=True))
    call = asyncio.ensure_future(write(bench, ONE))
    bench.server.on_hang = call.cancel
    with pytest.raises(asyncio.CancelledError):
        await call


async def test_no_exception_holds_a_key_a_signature_or_a_payload(bench: Bench) -> None:
    leak = "the MAC signature found 'c2lnbmF0dXJl' is not the same as payload-secret " + KEY
    bench.server.script(
        error("AuthenticationFailed", leak, 403),
        error(leak, leak, 400),
        part_failed(400, "InvalidInput", "0:" + leak),
        Reply(500, leak.encode()),
        Reply(reset=True),
    )
    for _ in range(5):
        with pytest.raises(StorageError) as caught:
            await write(bench, TWO)
        _, headers, _ = bench.server.requests[-1]
        signature = headers["authorization"].rpartition(":")[2]
        for secret in (KEY, "payload-secret", "c2lnbmF0dXJl", signature):
            assert secret not in repr(caught.value) + str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None


async def test_requests_carry_what_the_service_expects(bench: Bench) -> None:
    bench.server.script(OK_INSERT, OK_INSERT, batch(DONE, DELETED))
    await write(bench, ONE)
    await bench.tables.write("Table", "p'q", [Merge("r s", {"v": 1}, 'W/"3"')])
    await write(bench, TWO)
    (insert, insert_headers, body), (merge, merge_headers, _), (_, batch_headers, batch_body) = bench.server.requests
    assert insert == "POST /acct/Table HTTP/1.1"
    assert orjson.loads(body) == {"PartitionKey": "p", "RowKey": "r", "v": "payload-secret"}
    assert insert_headers["prefer"] == "return-no-content"
    assert insert_headers["authorization"].startswith("SharedKeyLite acct:")
    assert merge == "PATCH /acct/Table(PartitionKey='p%27%27q',RowKey='r%20s') HTTP/1.1"
    assert merge_headers["if-match"] == 'W/"3"'
    assert batch_headers["content-type"].startswith("multipart/mixed; boundary=batch_")
    assert b"DELETE http://127.0.0.1" in batch_body
    assert b"If-Match: *\r\n" in batch_body


async def test_ensure_is_retried_and_content_with_what_is_there(bench: Bench) -> None:
    bench.server.script(Reply(500), Reply(204), error("TableAlreadyExists", status=409), error("AuthorizationFailure", status=403))
    await bench.tables.ensure(["One", "Two"])
    with pytest.raises(Rejected, match="AuthorizationFailure"):
        await bench.tables.ensure(["Three"])
    assert bench.tables.transactions == {"ensure": 4}


async def test_each_try_counts_for_the_pressure_and_refusals_and_lost_answers_raise_it(bench: Bench) -> None:
    gauge = PressureGauge(bench.clock.monotonic)
    seen: list[bool] = []
    gauge.record = seen.append  # type: ignore[method-assign]
    found = account.from_connection_string("table", connection(bench.server.port))
    tables = AzureTables(Transport(found, bench.clock, TransportPolicy(), pressure=gauge))
    try:
        bench.server.script(Reply(429), Reply(503), OK_ROW, error("ResourceNotFound", status=404), Reply(500))
        assert await tables.get("Table", "p", "r")
        assert await tables.get("Table", "p", "r") is None
        with pytest.raises(OutcomeUnknown):
            await tables.write("Table", "p", ONE)
    finally:
        await tables.close()
    assert seen == [True, True, False, False, True]
