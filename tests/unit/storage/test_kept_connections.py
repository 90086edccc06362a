"""Kept connections to storage, over real sockets: the loop has not seen their end yet when the next request begins."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from shared.core.errors import OutcomeUnknown
from shared.core.http1.connection import Connection
from shared.storage.azure.account import Account, SharedKey, from_connection_string
from shared.storage.azure.tables import AzureTables
from shared.storage.azure.transport import EMULATOR_CONNECTIONS, Transport, TransportPolicy
from shared.storage.ports import Applied, Insert, Op

from .conftest import KEY, connection

ANSWER = b'HTTP/1.1 204 No Content\r\nETag: W/"1"\r\nDate: Sat, 21 Nov 2026 10:21:55 GMT\r\n\r\n'
ONE: list[Op] = [Insert("r", {"v": "x"})]
ESTABLISHED = "01"


class Service:
    """A storage service in threads: it goes on while the test holds the loop."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.connections: list[socket.socket] = []
        self.requests: list[int] = []
        """The number of the connection that each request came on, from 0."""
        self.dumb = False
        """True: a request is read, and its connection ends without an answer."""
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                accepted, _ = self._socket.accept()
            except OSError:
                return
            number = len(self.connections)
            self.connections.append(accepted)
            threading.Thread(target=self._serve, args=(accepted, number), daemon=True).start()

    def _serve(self, accepted: socket.socket, number: int) -> None:
        try:
            with accepted.makefile("rb") as file:
                while line := file.readline():
                    size = 0
                    while (line := file.readline()) not in (b"\r\n", b""):
                        name, _, value = line.partition(b":")
                        if name.lower() == b"content-length":
                            size = int(value)
                    file.read(size)
                    self.requests.append(number)
                    if self.dumb:
                        accepted.shutdown(socket.SHUT_RDWR)
                        return
                    accepted.sendall(ANSWER)
        except OSError:
            return

    def end(self, number: int, how: str) -> None:
        """End a connection, and wait until the operating system of the client knows."""
        ended = self.connections[number]
        port = ended.getpeername()[1]
        if how == "reset":
            ended.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            # Also ends the file of the thread that reads.
            ended.shutdown(socket.SHUT_RD)
            ended.close()
        else:
            ended.shutdown(socket.SHUT_WR)
        wait_until(lambda: state_of(port, self.port) != ESTABLISHED)

    def stop(self) -> None:
        for each in self.connections:
            each.close()
        self._socket.close()


def state_of(local: int, remote: int) -> str | None:
    """Return the state of the client's side of a connection, as Linux numbers it; None if it is gone."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, state, *_ = line.split()
        if (int(here.partition(":")[2], 16), int(there.partition(":")[2], 16)) == (local, remote):
            return state
    return None


def wait_until(condition: Callable[[], bool]) -> None:
    """Wait without giving way to the loop."""
    ends_at = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < ends_at
        time.sleep(0.001)


@pytest.fixture
def service() -> Iterator[Service]:
    running = Service()
    yield running
    running.stop()


@pytest.fixture
async def tables(service: Service) -> AsyncIterator[AzureTables]:
    made = AzureTables.from_connection_string(connection(service.port), None, TransportPolicy(request=600.0))
    yield made
    await made.close()


@pytest.mark.parametrize("how", ["end", "reset"])
async def test_connection_that_has_ended_carries_no_request(service: Service, tables: AzureTables, how: str) -> None:
    assert isinstance(await tables.write("Table", "p", ONE), Applied)
    service.end(0, how)
    assert isinstance(await tables.write("Table", "p", ONE), Applied)
    assert service.requests == [0, 1] and tables.transactions["write"] == 2


@pytest.mark.parametrize(("path", "most"), [("/devstoreaccount1", EMULATOR_CONNECTIONS), ("", 40)])
async def test_only_an_emulator_gets_few_connections_at_once(service: Service, path: str, most: int) -> None:
    account = Account(f"http://127.0.0.1:{service.port}{path}", SharedKey("table", "devstoreaccount1", KEY))
    made = AzureTables(Transport(account, None, TransportPolicy(request=600.0)))
    answers = await asyncio.gather(*[made.write("Table", "p", ONE) for _ in range(40)])
    await made.close()
    assert all(isinstance(each, Applied) for each in answers)
    assert len(service.connections) == most


async def test_connection_that_is_open_is_used_again(service: Service, tables: AzureTables) -> None:
    for _ in range(5):
        assert isinstance(await tables.write("Table", "p", ONE), Applied)
    assert service.requests == [0] * 5


async def test_write_that_a_kept_connection_took_is_unknown_and_not_sent_again(service: Service, tables: AzureTables) -> None:
    assert isinstance(await tables.write("Table", "p", ONE), Applied)
    service.dumb = True
    with pytest.raises(OutcomeUnknown):
        await tables.write("Table", "p", ONE)
    assert service.requests == [0, 0]


async def test_write_of_which_no_byte_was_handed_over_is_sent_again(
    service: Service, tables: AzureTables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection ends between the pool's look at it and the write."""
    post, ended = Connection.post, list[bool]()

    def end_first(connection: Any, request: bytes, deadline: float) -> Any:
        if not ended:
            ended.append(True)
            connection.abort()
        return post(connection, request, deadline)

    monkeypatch.setattr(Connection, "post", end_first)
    assert isinstance(await tables.write("Table", "p", ONE), Applied) and service.requests == [1]


@pytest.mark.parametrize(("idle", "connections"), [(3.5, [0, 0]), (4.5, [0, 1])])
async def test_connection_to_the_emulator_is_kept_for_four_seconds(
    service: Service, tables: AzureTables, monkeypatch: pytest.MonkeyPatch, idle: float, connections: list[int]
) -> None:
    loop = asyncio.get_running_loop()
    moment = loop.time()
    monkeypatch.setattr(loop, "time", lambda: moment)
    await tables.write("Table", "p", ONE)
    moment += idle
    opened = tables._transport._connections
    assert opened is not None
    for kept in list(opened._pool._open):
        kept._on_timer()
    await tables.write("Table", "p", ONE)
    assert service.requests == connections


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("UseDevelopmentStorage=true", 4.0),
        (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};TableEndpoint=https://127.0.0.1:10002/a", 4.0),
        (f"DefaultEndpointsProtocol=https;AccountName=a;AccountKey={KEY};EndpointSuffix=core.windows.net", 60.0),
    ],
)
def test_connections_are_kept_for_a_minute_except_to_the_emulator(text: str, seconds: float) -> None:
    assert from_connection_string("table", text).idle_seconds == seconds


def test_account_with_an_identity_keeps_connections_for_a_minute() -> None:
    assert Account("https://acct.table.core.windows.net/", SharedKey("table", "acct", KEY)).idle_seconds == 60.0
