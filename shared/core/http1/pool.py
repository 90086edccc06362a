"""The connections of one process: kept for the next request, and made only for addresses that the caller allows."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import NamedTuple, Protocol

import aiohappyeyeballs
from aiohappyeyeballs import AddrInfoType

from ..tls import client_tls
from .connection import Connection, ConnectionLost, ConnectionPolicy, NotConnected
from .head import HeadReader

_NEXT_ADDRESS_AFTER = 0.25
"""Seconds after which the next address of a name is tried beside the one before (RFC 8305)."""


class Place(NamedTuple):
    """The server that connections are made to. `host` is a name or an address without brackets."""

    host: str
    port: int
    tls: bool
    context: ssl.SSLContext | None = None
    """Settings of TLS, such as a client certificate, if they are not those of the pool. Connections with other ones are apart."""


class AddressRefused(OSError):
    """Raised for an address or scheme that is not allowed. An OSError, because connectors pass those on."""


class MakeSocket(Protocol):
    """Makes a socket for one address, or raises AddressRefused if it is not allowed."""

    def __call__(self, place: Place, info: AddrInfoType) -> socket.socket: ...


type Resolve = Callable[[str, int], Awaitable[Sequence[AddrInfoType]]]
"""Returns the addresses of a name that may be connected to; not called for a host that is an address."""


def new_tls() -> ssl.SSLContext:
    """Return new settings of TLS: certificates are checked, and HTTP/1.1 is agreed on."""
    context = client_tls()
    context.set_alpn_protocols(["http/1.1"])
    return context


@lru_cache(maxsize=1)
def default_tls() -> ssl.SSLContext:
    """Return the settings of TLS of all connections that have none of their own."""
    return new_tls()


def addr_info(address: str, port: int) -> AddrInfoType:
    """Return an address in the form of `socket.getaddrinfo`: it is connected to as it is, and never resolved."""
    if ":" in address:
        return socket.AF_INET6, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port, 0, 0)
    return socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, port)


class _Kept[Reader: HeadReader]:
    """The connections to one place."""

    __slots__ = ("count", "idle", "line")

    def __init__(self) -> None:
        self.count = 0
        """Connections, with those that are being made."""
        self.idle: list[Connection[Reader]] = []
        """The last one used is the last."""
        self.line: deque[asyncio.Future[Connection[Reader] | None]] = deque()
        """Requests that wait: for a connection that becomes free, or (None) for the permission to make one."""

    def next(self) -> asyncio.Future[Connection[Reader] | None] | None:
        """Return the next request in line that still waits."""
        while self.line:
            turn = self.line.popleft()
            if not turn.done():
                return turn
        return None


class ConnectionPool[Reader: HeadReader]:
    """Connections by place. Belongs to one event loop."""

    def __init__(
        self,
        make_socket: MakeSocket,
        policy: ConnectionPolicy[Reader],
        *,
        most: int,
        tls: ssl.SSLContext | None = None,
        connect: float | None = None,
    ) -> None:
        """most: connections to one place. connect: seconds for one try to connect to the addresses of a place, TLS included."""
        self._make_socket, self._policy, self._most, self._tls, self._seconds = make_socket, policy, most, tls, connect
        self.loop = asyncio.get_running_loop()
        self._places: dict[Place, _Kept[Reader]] = {}
        self._open: dict[Connection[Reader], _Kept[Reader]] = {}

    def take(self, place: Place) -> Connection[Reader] | None:
        """Return a kept connection, or None if there is none."""
        kept = self._places.get(place)
        while kept is not None and kept.idle:
            connection = kept.idle.pop()
            if connection.open:
                return connection
            connection.abort()
        return None

    async def make(self, place: Place, resolve: Resolve, deadline: float) -> Connection[Reader]:
        """Make a connection, or wait for one if there are as many as there may be.

        Raises TimeoutError after `deadline` (loop time), NotConnected, ConnectionLost, ssl.SSLError, and what `resolve` and
        `MakeSocket` raise. In all these cases nothing of the request was sent.
        """
        async with asyncio.timeout_at(deadline):
            while True:
                kept = self._places.setdefault(place, _Kept())
                if kept.count < self._most:
                    kept.count += 1
                    break
                found = await self._wait(kept)
                if found is None:
                    break
                if found.open:
                    return found
                found.abort()
            try:
                async with asyncio.timeout(self._seconds):
                    connection = await self._connect(place, resolve)
                if connection.gone:
                    raise ConnectionLost()
            except BaseException:
                self._give_up(kept)
                raise
            self._open[connection] = kept
            return connection

    async def close(self) -> None:
        """Close all connections. Requests in flight end with `ConnectionLost`."""
        for kept in self._places.values():
            while (turn := kept.next()) is not None:
                turn.set_exception(ConnectionLost())
        for connection in list(self._open):
            connection.close()
        # The transports close their sockets in the loop's next turn.
        await asyncio.sleep(0)

    async def _wait(self, kept: _Kept[Reader]) -> Connection[Reader] | None:
        """Wait in line; return a connection that has become free, or None with the permission to make one."""
        turn: asyncio.Future[Connection[Reader] | None] = self.loop.create_future()
        kept.line.append(turn)
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                # The turn came at the same instant as the cancellation: pass it on.
                if (found := turn.result()) is None:
                    self._give_up(kept)
                elif found.open:
                    self._free(found)
            raise

    def _free(self, connection: Connection[Reader]) -> None:
        """Give a connection to the next request, or keep it."""
        kept = self._open[connection]
        if (turn := kept.next()) is not None:
            turn.set_result(connection)
        else:
            kept.idle.append(connection)

    def _forget(self, connection: Connection[Reader]) -> None:
        kept = self._open.pop(connection, None)
        if kept is not None:
            if connection in kept.idle:
                kept.idle.remove(connection)
            self._give_up(kept)

    def _give_up(self, kept: _Kept[Reader]) -> None:
        """Give the permission to make a connection to the next request."""
        if (turn := kept.next()) is not None:
            turn.set_result(None)
            return
        kept.count -= 1
        if not kept.count:
            self._places = {place: each for place, each in self._places.items() if each is not kept}

    async def _connect(self, place: Place, resolve: Resolve) -> Connection[Reader]:
        infos = _literal(place) or list(await resolve(place.host, place.port))
        context = (place.context or self._tls or default_tls()) if place.tls else None
        # Names of certificates have no dot at their end.
        name = place.host.rstrip(".") if place.tls else None
        while True:
            try:
                sock = await aiohappyeyeballs.start_connection(
                    infos,
                    happy_eyeballs_delay=_NEXT_ADDRESS_AFTER,
                    interleave=1,
                    loop=self.loop,
                    socket_factory=lambda info: self._make_socket(place, info),
                )
            except AddressRefused:
                raise
            except (OSError, RuntimeError) as error:  # uvloop raises RuntimeError for some addresses
                raise _not_connected(error) from error
            peer = infos[0][4]
            try:
                peer = sock.getpeername()
                made = await self.loop.create_connection(self._protocol, sock=sock, ssl=context, server_hostname=name)
            except (ssl.SSLError, OSError) as error:
                # Another address of the name may be another machine.
                aiohappyeyeballs.remove_addr_infos(infos, peer)
                if infos:
                    continue
                if isinstance(error, ssl.SSLError):
                    raise
                raise _not_connected(error) from error
            return made[1]

    def _protocol(self) -> Connection[Reader]:
        return Connection(self.loop, self._policy, self._free, self._forget)


def _literal(place: Place) -> list[AddrInfoType]:
    """Return the address if the host is one; a name gives none."""
    try:
        address = ip_address(place.host)
    except ValueError:
        return []
    return [addr_info(str(address), place.port)]


def _not_connected(error: Exception) -> NotConnected:
    number = error.errno if isinstance(error, OSError) else None
    return NotConnected(number, "") if number else NotConnected()
