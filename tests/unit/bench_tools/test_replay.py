"""Requests are recorded by a relay and sent again by a bare client: none is lost, and they keep their order."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from bench.tools import machine
from bench.tools.recorder import Request, recorded
from bench.tools.replay import CAUSED_WITHIN, FollowUp, Step, in_order, plan, play, unconditional


def request(name: str, began: float, took: float = 0.01) -> Request:
    """A request of the group that its path names."""
    return Request(1, f"GET /{name} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), began, began + took, 200)


def group_of(raw: bytes) -> str:
    return raw[5:6].decode().strip()


@asynccontextmanager
async def server(seen: list[bytes]) -> AsyncIterator[int]:
    """A server that notes each request and answers 200, or 404 to those for `/b`."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.lower().partition(b"content-length:")[2].split(b"\r", 1)[0] or 0)
                seen.append(head.split(b" ", 2)[1] + await reader.readexactly(size))
                status = b"404 Not Found" if head.startswith(b"GET /b") else b"200 OK"
                writer.write(b"HTTP/1.1 " + status + b"\r\nContent-Length: 0\r\n\r\n")
        except asyncio.IncompleteReadError:
            writer.close()

    opened = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield opened.sockets[0].getsockname()[1]
    finally:
        opened.close()


async def test_relay_keeps_each_request_and_the_status_of_its_answer() -> None:
    seen: list[bytes] = []
    requests: list[Request] = []
    async with server(seen) as port, recorded(port, requests) as relay:
        reader, writer = await asyncio.open_connection("127.0.0.1", relay)
        body = b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody"
        for part in (body[:9], body[9:-2], body[-2:], b"GET /b HTTP/1.1\r\nHost: x\r\n\r\n"):
            writer.write(part)
            if part.endswith((b"dy", b"\r\n\r\n")):
                await reader.readuntil(b"\r\n\r\n")
        writer.close()
    assert seen == [b"/abody", b"/b"]
    assert [(each.port, each.status) for each in requests] == [(port, 200), (port, 404)]
    assert requests[0].raw == body
    assert all(each.began <= each.ended for each in requests)


def test_request_right_after_an_answer_of_its_group_is_caused_by_it() -> None:
    steps = plan([request("a1", 10.0), request("b1", 10.0), request("a2", 10.02), request("a3", 10.03 + 2 * CAUSED_WITHIN)], 9.0, group_of)
    assert [(step.after, step.caused) for step in steps] == [(None, False), (None, False), (0, True), (2, False)]
    assert [round(step.at, 3) for step in steps] == [1.0, 1.0, 1.02, round(1.03 + 2 * CAUSED_WITHIN, 3)]


def test_requests_at_the_same_time_follow_the_same_answer() -> None:
    steps = plan([request("a1", 1.0), request("a2", 1.02, 0.5), request("a3", 1.03, 0.5)], 1.0, group_of)
    assert [step.after for step in steps] == [None, 0, 0]


def test_requests_without_a_group_are_sent_at_their_own_time() -> None:
    steps = plan([request(" ", 1.0), request(" ", 1.02)], 1.0, group_of)
    assert [(step.after, step.caused) for step in steps] == [(None, False), (None, False)]


def test_request_that_was_recorded_late_is_sent_in_time() -> None:
    late, early = plan([request("a", 8.0), request("b", 2.0)], 1.0, group_of, {0: 5.0, 1: 5.0})
    assert (late.at, early.at) == (4.0, 1.0)


def test_change_of_a_row_is_sent_without_its_recorded_etag() -> None:
    part = b"PATCH x HTTP/1.1\r\nIf-Match: %b\r\n\r\n{}"
    body = part % b"W/\"datetime'2026'\"" + part % b'W/"2"'
    raw = unconditional(b"POST /$batch HTTP/1.1\r\nContent-Length: %d\r\nHost: x\r\n\r\n" % len(body) + body)
    wanted = 2 * (part % b"*")
    assert raw == b"POST /$batch HTTP/1.1\r\nContent-Length: %d\r\nHost: x\r\n\r\n" % len(wanted) + wanted
    merge = b"PATCH /row HTTP/1.1\r\nIf-Match: %b\r\nContent-Length: 2\r\n\r\n{}"
    assert unconditional(merge % b'W/"1"') == merge % b"*"


async def test_bare_client_keeps_the_order_of_a_group_and_sends_follow_ups_after_their_step() -> None:
    seen: list[bytes] = []
    requests = [request("a1", 1.0), request("b1", 1.0), request("a2", 1.02), request("a3", 1.04)]
    async with server(seen) as port, server(seen) as other:
        follow_ups = {2: [FollowUp(f"http://127.0.0.1:{other}", b"POST /done HTTP/1.1\r\nContent-Length: 0\r\n\r\n", 0.0)]}
        played = await play(plan(requests, 1.0, group_of), {1: port}, follow_ups, time.monotonic())
    assert played.statuses == [200, 404, 200, 200]
    assert [each for each in seen if each.startswith(b"/a")] == [b"/a1", b"/a2", b"/a3"]
    assert seen.index(b"/a2") < seen.index(b"/done")


async def test_each_group_is_sent_in_order() -> None:
    seen: list[bytes] = []
    steps = in_order([request(name, 1.0) for name in ("a1", "b1", "a2", "b2")], group_of)
    async with server(seen) as port:
        await play(steps, {1: port}, {}, time.monotonic())
    assert [[each for each in seen if each[1:2] == name] for name in (b"a", b"b")] == [[b"/a1", b"/a2"], [b"/b1", b"/b2"]]


async def test_request_without_an_answer_has_no_status() -> None:
    async with server([]) as port:
        pass
    played = await play([Step(1, b"GET /a HTTP/1.1\r\n\r\n", 0.0, None, False)], {1: port}, {}, time.monotonic())
    assert played.statuses == [0]


def test_first_thread_used_no_more_than_the_process() -> None:
    assert machine.thread_seconds(os.getpid()) <= machine.cpu_seconds(os.getpid())
    assert machine.thread_seconds(os.getpid()) > 0
    assert machine.thread_seconds(2**30) == 0
