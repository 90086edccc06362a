"""The one port of `tocsin dev`: it stays quiet about callers that speak no HTTP, and takes no deliveries from web pages."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from typing import cast

import httpx
import pytest

from shared.core.answered_hosts import AnsweredHosts
from shared.local import http_server
from shared.local.http_server import LocalServer, PortTaken, listen
from shared.local.invocations import LocalApi
from shared.local.receiver import ReceivedDeliveries
from tests.waiting import DEADLINE, within


@contextlib.asynccontextmanager
async def served(received: ReceivedDeliveries) -> AsyncIterator[int]:
    """The port of a server without an API."""
    sockets = listen("127.0.0.1", 0)
    server = LocalServer(sockets, cast(LocalApi, None), received, AnsweredHosts(), "")
    await server.start()
    try:
        yield sockets[0].getsockname()[1]
    finally:
        await server.stop_accepting()
        await server.close()


@contextlib.asynccontextmanager
async def connected(received: ReceivedDeliveries) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        served(received) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=DEADLINE) as client,
    ):
        yield client


async def raw(port: int, sent: bytes) -> bytes:
    """The answer to these bytes, up to the end of the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(sent)
        return await within(reader.read(), "the end of the connection")
    finally:
        writer.close()


@pytest.mark.parametrize(
    "sent",
    [
        b"GET /\x1b[31mred HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"POST /receiver HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"x" * 20_000 + b"\r\n\r\n",
    ],
)
async def test_a_caller_that_speaks_no_http_gets_400_and_fills_no_terminal(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async with served(ReceivedDeliveries()) as port:
        assert (await raw(port, sent)).split(b" ")[1] == b"400"
    assert caplog.records == []


async def test_a_caller_that_goes_in_the_middle_of_its_body_leaves_no_delivery_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    received, begun = ReceivedDeliveries(), asyncio.Event()
    answer = received.answer

    async def watched(*arguments: object) -> object:
        begun.set()
        try:
            return await answer(*arguments)  # type: ignore[arg-type]
        finally:
            ended.set()

    ended = asyncio.Event()
    received.answer = watched  # type: ignore[method-assign, assignment]
    async with served(received) as port:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /receiver HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
        await within(begun.wait(), "the request arrives")
        writer.transport.abort()
        await within(ended.wait(), "the request ends")
    assert list(received.deliveries) == []
    assert caplog.records == []


async def test_a_failure_of_the_service_itself_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async with connected(ReceivedDeliveries()) as client:
        assert (await client.get("/api/v1/events")).status_code == 500
    assert [record.levelno for record in caplog.records] == [logging.ERROR]


@pytest.mark.parametrize("origin", ["https://evil.example", "http://localhost:3000", "null"])
async def test_a_web_page_can_add_no_delivery(origin: str) -> None:
    received = ReceivedDeliveries()
    async with connected(received) as client:
        # A browser sends this without asking the server first.
        refused = await client.post("/receiver", content=b"forged", headers={"origin": origin, "content-type": "text/plain"})
        assert (refused.status_code, list(received.deliveries)) == (403, [])
        assert (await client.post("/receiver", content=b"1")).status_code == 204


async def test_a_get_of_an_event_is_a_delivery_and_any_other_reads_the_page() -> None:
    received = ReceivedDeliveries()
    async with connected(received) as client:
        assert (await client.get("/receiver/orders/17", headers={"ce-id": "asks"})).status_code == 204
        assert (await client.get("/receiver/status/503", headers={"ce-id": "fails"})).status_code == 503
        assert (await client.request("DELETE", "/receiver/orders/17", headers={"ce-id": "removes"})).status_code == 204
        assert [each["id"] for each in (await client.get("/receiver")).json()] == ["asks", "fails", "removes"]


async def test_what_was_received_is_shown_as_json_that_no_browser_takes_for_something_else() -> None:
    async with connected(ReceivedDeliveries()) as client:
        for sent in ("<script>alert(1)</script>", "\x1b[31m\u2028"):
            shown = await client.get("/receiver")
            await client.post("/receiver", content=sent)
            later = await client.get("/receiver")
            assert len(later.json()) == len(shown.json()) + 1
            assert json.loads(later.text)[-1]["body"] == sent
            assert "\x1b" not in later.text
        names = ("content-type", "x-content-type-options", "cache-control", "access-control-allow-origin")
        assert [later.headers.get(name) for name in names] == ["application/json; charset=utf-8", "nosniff", "no-store", None]


async def test_body_that_is_not_utf_8_is_shown_as_base64_with_its_type() -> None:
    async with connected(ReceivedDeliveries()) as client:
        for sent, kind in ((b"\x89PNG\xff", "image/png"), ("<é/>".encode(), "text/xml")):
            await client.post("/receiver", content=sent, headers={"content-type": kind})
        assert [each["body"] for each in (await client.get("/receiver")).json()] == ["base64 of image/png: iVBOR/8=", "<é/>"]


async def test_only_later_deliveries_are_asked_for_and_all_of_them_from_a_receiver_that_was_started_anew() -> None:
    async with connected(ReceivedDeliveries()) as client:

        async def bodies(after: str) -> tuple[list[str], str]:
            shown = await client.get("/receiver", params={"after": after})
            return [each["body"] for each in shown.json()], shown.headers["receiver-position"]

        assert (await bodies(""))[0] == []
        for number in range(3):
            await client.post("/receiver", content=str(number))
        everything, position = await bodies("")
        assert everything == ["0", "1", "2"]
        assert await bodies(position) == ([], position)
        await client.post("/receiver", content="3")
        assert (await bodies(position))[0] == ["3"]
        series = position.split("-")[0]
        for unknown in ("other-3", f"{series}-5", f"{series}--1", f"{series}-x", f"{series}-{'9' * 5000}", series, "-"):
            assert (await bodies(unknown))[0] == ["0", "1", "2", "3"], unknown
        for number in range(4, 120):
            await client.post("/receiver", content=str(number))
        assert (await bodies(position))[0] == [str(number) for number in range(20, 120)]


def test_an_empty_address_is_refused_and_not_taken_for_all_addresses() -> None:
    with pytest.raises(PortTaken, match="cannot listen") as refused:
        listen("", 0)
    assert refused.value.address


async def test_callers_that_never_end_their_requests_keep_nobody_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(http_server, "MOST_CONNECTIONS", 5)
    received = ReceivedDeliveries()
    async with served(received) as port, contextlib.AsyncExitStack() as stack:
        streams = []
        for _ in range(20):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            stack.callback(writer.close)
            writer.write(b"POST /receiver HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
            streams.append(reader)
        client = await stack.enter_async_context(httpx.AsyncClient(trust_env=False, timeout=DEADLINE))
        for number in range(3):
            assert (await client.post(f"http://127.0.0.1:{port}/receiver", content=str(number))).status_code == 204
        # The oldest ones were closed, and without an answer.
        for reader in streams[:15]:
            with contextlib.suppress(ConnectionResetError):
                assert await within(reader.read(), "the connection is closed") == b""
    assert [each["body"] for each in received.deliveries] == ["0", "1", "2"]
    assert caplog.records == []
