"""The connections to an account: what they carry, in which order, and what is certain when one fails."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown, Rejected, Unavailable
from shared.core.http1 import pool
from shared.core.http1.connection import Connection
from shared.storage.azure.account import Account, SharedKey
from shared.storage.azure.connections import AccountConnections, NotSent
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import Transport, TransportPolicy
from shared.storage.ports import Applied, Insert, Op, RowQuery
from tests.certificates import make_certificate

from ..conftest import KEY, FastClock

ONE: list[Op] = [Insert("r", {"v": "x"})]
DONE = b'HTTP/1.1 204 No Content\r\nETag: W/"1"\r\n\r\n'
LONG = 600.0

type Handle = Callable[[int, bytes, asyncio.StreamWriter], Awaitable[None]]
"""Answers a request, given its number and its head."""


class Server:
    """A service whose answers a test writes."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self.port = 0

    async def start(self, tls: ssl.SSLContext | None = None) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=tls)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                size = int(head.partition(b"Content-Length: ")[2].split(b"\r")[0] or b"0")
                self.heads.append(head)
                self.bodies.append(await reader.readexactly(size))
                await self._handle(len(self.heads), head, writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError):
            writer.close()

    async def stop(self) -> None:
        for writer in self.writers:
            writer.transport.abort()
        self._server.close()
        await self._server.wait_closed()


async def done(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(DONE)


class Opened:
    """Tables over a server of the test."""

    def __init__(self) -> None:
        self.servers: list[Server] = []
        self.tables: list[AzureTables] = []

    async def __call__(self, handle: Handle = done, *, tls: ssl.SSLContext | None = None, **bounds: Any) -> tuple[Server, AzureTables]:
        server = Server(handle)
        await server.start(tls)
        self.servers.append(server)
        host = f"https://localhost:{server.port}" if tls is not None else f"http://127.0.0.1:{server.port}"
        account = Account(f"{host}/acct", SharedKey("table", "acct", KEY))
        self.tables.append(AzureTables(Transport(account, FastClock(), TransportPolicy(**{"request": LONG, "connect": LONG, **bounds}))))
        return server, self.tables[-1]


@pytest.fixture
async def opened() -> AsyncIterator[Opened]:
    made = Opened()
    yield made
    for tables in made.tables:
        await tables.close()
    for server in made.servers:
        await server.stop()


def writes(tables: AzureTables, count: int) -> list[asyncio.Task[Any]]:
    return [asyncio.ensure_future(tables.write("Table", "p", ONE)) for _ in range(count)]


@pytest.mark.parametrize("most", [1, 2])
async def test_requests_wait_for_a_connection_and_are_served_in_turn(opened: Opened, most: int) -> None:
    server, tables = await opened(connections=most)
    answers = await asyncio.gather(*(tables.write("Table", "p", [Insert(f"r{number}", {})]) for number in range(20)))
    assert answers == [Applied(['W/"1"'])] * 20 and len(server.writers) == most
    rows = [int(body.partition(b'"RowKey":"r')[2].split(b'"')[0]) for body in server.bodies]
    assert sorted(rows) == list(range(20)) and (most > 1 or rows == sorted(rows))


async def test_request_that_got_no_connection_in_time_was_certainly_not_sent(opened: Opened) -> None:
    arrived = asyncio.Event()

    async def hang(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()

    server, tables = await opened(hang, connections=1)
    first = asyncio.ensure_future(tables.write("Table", "p", ONE))
    await arrived.wait()
    opening = tables._transport._connections
    assert opening is not None
    with pytest.raises(NotSent, match="TimeoutError"):
        await opening.exchange(b"GET / HTTP/1.1\r\n\r\n", 0.01, lambda: 0.0)
    assert len(server.heads) == 1
    server.writers[0].write(DONE)
    assert await first == Applied(['W/"1"'])


async def test_cancelled_request_ends_its_connection_and_the_next_one_gets_another(opened: Opened) -> None:
    arrived = asyncio.Event()

    async def hang_first(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        if number > 1:
            writer.write(DONE)

    server, tables = await opened(hang_first, connections=1)
    call = asyncio.ensure_future(tables.write("Table", "p", ONE))
    await arrived.wait()
    # It waits for the only connection, which is cancelled under it.
    second = asyncio.ensure_future(tables.write("Table", "p", ONE))
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert await second == Applied(['W/"1"']) and len(server.writers) == 2


async def test_request_that_is_cancelled_with_its_answer_leaves_the_connection_to_the_next_one(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, tables = await opened(connections=1)
    await tables.write("Table", "p", ONE)
    connections = tables._transport._connections
    assert connections is not None
    loop, end, following = asyncio.get_running_loop(), Connection._end, list[asyncio.Task[Any]]()
    request = connections.request("GET", "/", {}, b"")

    def end_and_cancel(connection: Any) -> None:
        end(connection)
        if not following:
            # In the turn of the loop in which the answer came: the next request is sent before the first one sees its cancellation.
            first.cancel()
            following.append(asyncio.Task(connections.exchange(request, LONG, lambda: 0.0), loop=loop, eager_start=True))

    monkeypatch.setattr(Connection, "_end", end_and_cancel)
    first = asyncio.ensure_future(connections.exchange(request, LONG, lambda: 0.0))
    with pytest.raises(asyncio.CancelledError):
        await first
    answer, _ = await asyncio.wait_for(following[0], 60)
    assert answer.status == 204 and len(server.writers) == 1


async def test_kept_connection_keeps_no_body(opened: Opened) -> None:
    async def body(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbytes")

    _, tables = await opened(body)
    connections = tables._transport._connections or tables._transport._open()
    answer, _ = await connections.exchange(connections.request("GET", "/", {}, b""), LONG, lambda: 0.0)
    assert answer.body == b"bytes"
    assert [kept.answer.body for kept in connections._pool._open] == [b""]


async def test_requests_in_flight_when_the_storage_is_closed_are_unknown_and_waiting_ones_are_not_sent(opened: Opened) -> None:
    arrived = asyncio.Event()

    async def begin(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 202 Accepted\r\n\r\na body without a length")
        arrived.set()

    server, tables = await opened(begin, connections=1, attempts=1)
    first, second = writes(tables, 2)
    await arrived.wait()
    await tables.close()
    with pytest.raises(OutcomeUnknown):
        await first
    with pytest.raises(Unavailable):
        await second
    with pytest.raises(RuntimeError, match="closed"):
        await tables.get("Table", "p", "r")
    assert len(server.heads) == 1


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\nshort",
        b"HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nshort\r\n",
        b"HTTP/1.1 204 No Content\r\nETag: x\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"SSH-2.0\r\n",
        b"",
    ],
)
async def test_write_whose_answer_breaks_off_is_unknown_and_sent_once(opened: Opened, answer: bytes) -> None:
    async def break_off(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answer)
        writer.close()

    server, tables = await opened(break_off)
    with pytest.raises(OutcomeUnknown):
        await tables.write("Table", "p", ONE)
    assert len(server.heads) == 1


async def test_answer_that_nobody_asked_for_is_not_taken_for_the_next_one(opened: Opened) -> None:
    async def twice(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(DONE)
        if number == 1:
            writer.write(b'HTTP/1.1 204 No Content\r\nETag: W/"forged"\r\n\r\n')

    server, tables = await opened(twice)
    assert await tables.write("Table", "p", ONE) == Applied(['W/"1"'])
    assert await tables.write("Table", "p", ONE) == Applied(['W/"1"'])
    assert len(server.writers) == 2


async def test_large_bodies_pass_both_ways(opened: Opened) -> None:
    async def large(number: int, head: bytes, writer: asyncio.StreamWriter) -> None:
        row = b'{"odata.etag":"e","PartitionKey":"p","RowKey":"r","Timestamp":"2026-11-21T10:21:55Z"}'
        body = b'{"value":[' + b",".join([row] * 9000) + b"]}"
        writer.write(b"HTTP/1.1 200 OK\r\nDate: Sat, 21 Nov 2026 10:21:55 GMT\r\nTransfer-Encoding: chunked\r\n\r\n")
        for start in range(0, len(body), 10_000):
            piece = body[start : start + 10_000]
            writer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")

    server, tables = await opened(large)
    assert len((await tables.query(RowQuery("Table", "p"))).rows) == 9000
    with pytest.raises(OutcomeUnknown):
        await tables.write("Table", "p", [Insert(f"{at}", {"v": "x" * 30_000}) for at in range(100)])
    assert len(server.bodies[1]) > 3_000_000


async def test_refusal_before_the_body_was_read_counts_and_ends_the_connection(opened: Opened) -> None:
    class Early(asyncio.Protocol):
        """Answers at the first bytes of a request, and reads no more until it ends."""

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            made.append(transport)

        def data_received(self, data: bytes) -> None:
            self.transport.pause_reading()
            self.transport.write(b"HTTP/1.1 413 X\r\nContent-Length: 0\r\n\r\n")

    made: list[asyncio.Transport] = []
    server = await asyncio.get_running_loop().create_server(Early, "127.0.0.1", 0)
    connections = AccountConnections(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", most=1, kept=LONG, connect=LONG)
    try:
        request = connections.request("POST", "/", {}, b"x" * 30_000_000)
        for _ in range(2):
            answer, _ = await connections.exchange(request, LONG, lambda: 0.0)
            assert answer.status == 413
        assert len(made) == 2
    finally:
        await connections.close()
        for transport in made:
            transport.abort()
        server.close()
        await server.wait_closed()


async def test_line_break_in_a_header_is_refused(opened: Opened) -> None:
    server, tables = await opened()
    for value in ("x\r\nContent-Length: 0", "x\nHost: other", "x\0"):
        with pytest.raises(ValueError, match="line break"):
            await tables._transport.call("get", "GET", "/Table()", headers={"If-Match": value}, repeat=True)
    assert server.heads == []


async def test_requests_carry_a_host_and_a_length_and_nothing_that_was_not_asked_for(opened: Opened) -> None:
    server, tables = await opened()
    with pytest.raises(Rejected):
        await tables.get("Table", "p", "r")
    await tables._transport.call("ensure", "PUT", "/queue", repeat=True)
    get, put = ([line.split(b":")[0].lower() for line in head.split(b"\r\n")[1:-2]] for head in server.heads)
    assert sorted(get) == [b"accept", b"authorization", b"dataserviceversion", b"host", b"x-ms-date", b"x-ms-version"]
    assert sorted(put) == [b"authorization", b"content-length", b"host", b"x-ms-date", b"x-ms-version"]
    assert f"\r\nHost: 127.0.0.1:{server.port}\r\n".encode() in server.heads[0] and b"Content-Length: 0\r\n" in server.heads[1]


async def test_proxies_of_the_environment_are_ignored(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    _, tables = await opened()
    assert await tables.write("Table", "p", ONE) == Applied(['W/"1"'])


async def test_certificates_are_checked_for_the_accounts_name(opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def context(name: str) -> tuple[ssl.SSLContext, Path]:
        folder = tmp_path / name
        folder.mkdir()
        pem = make_certificate(folder, name)
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made.load_cert_chain(pem)
        made.sni_callback = lambda sock, name, context: asked.append(name or "")  # type: ignore[assignment]
        return made, pem

    right, pem = context("localhost")
    wrong, other = context("other.example")
    _, untrusted = await opened(tls=right)
    with pytest.raises(Unavailable, match="SSLCertVerificationError"):
        await untrusted.write("Table", "p", ONE)
    trusting = ssl.create_default_context(cafile=str(pem))
    trusting.load_verify_locations(str(other))
    monkeypatch.setattr(pool, "default_tls", lambda: trusting)
    server, tables = await opened(tls=right)
    for _ in range(3):
        assert await tables.write("Table", "p", ONE) == Applied(['W/"1"'])
    assert len(server.writers) == 1, "the connection is kept"
    _, misnamed = await opened(tls=wrong)
    with pytest.raises(Unavailable, match="SSLCertVerificationError"):
        await misnamed.write("Table", "p", ONE)
    assert set(asked) == {"localhost"}


async def test_connection_that_cannot_be_made_in_time_is_certainly_unused(opened: Opened) -> None:
    full = socket.create_server(("127.0.0.1", 0))
    account = Account(f"https://127.0.0.1:{full.getsockname()[1]}/acct", SharedKey("table", "acct", KEY))
    # Nobody answers the TLS handshake; on a busy machine, the connection alone takes longer.
    tables = AzureTables(Transport(account, FastClock(), TransportPolicy(request=LONG, connect=0.01, attempts=2)))
    try:
        with pytest.raises(Unavailable, match=r"2 times, last: (TimeoutError|NotConnected)"):
            await tables.write("Table", "p", ONE)
    finally:
        await tables.close()
        full.close()


async def test_name_is_looked_up_once_for_connections_that_are_made_together(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server(done)
    await server.start()
    opened.servers.append(server)
    loop, asked = asyncio.get_running_loop(), list[str]()

    async def look_up(host: str, port: int, **options: Any) -> list[Any]:
        if host == "acct.table.example":
            asked.append(host)
            if len(asked) == 1:
                raise socket.gaierror("no such name")
        return [pool.addr_info("127.0.0.1", port)]

    monkeypatch.setattr(loop, "getaddrinfo", look_up)
    account = Account(f"http://acct.table.example:{server.port}/acct", SharedKey("table", "acct", KEY))
    tables = AzureTables(Transport(account, FastClock(), TransportPolicy(request=LONG, connect=LONG)))
    opened.tables.append(tables)
    assert await asyncio.gather(*writes(tables, 10)) == [Applied(['W/"1"'])] * 10
    assert asked == ["acct.table.example"] * 2 and len(server.writers) == 10


async def test_request_that_waits_for_the_name_when_the_storage_is_closed_was_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = asyncio.Event()

    async def look_up(host: str, port: int, **options: Any) -> list[Any]:
        asked.set()
        await asyncio.Event().wait()
        return []

    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", look_up)
    account = Account("http://acct.table.example/acct", SharedKey("table", "acct", KEY))
    tables = AzureTables(Transport(account, FastClock(), TransportPolicy(request=LONG, connect=LONG, attempts=1)))
    [call] = writes(tables, 1)
    await asked.wait()
    await tables.close()
    with pytest.raises(Unavailable, match="NotConnected"):
        await call
