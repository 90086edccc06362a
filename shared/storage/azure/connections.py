"""The connections to one storage account, over the lean client of `core.http1`, and the bytes of its requests.

A write on a connection that the service has closed meanwhile has an unknown outcome, although nothing was stored. The event loop sees the
end of a connection only in its next turn. So the pool asks the operating system too, in the same turn in which the request is written.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence

from aiohappyeyeballs import AddrInfoType

from ...core.http1.connection import Connection, ConnectionPolicy, NotConnected
from ...core.http1.full_answer import FullAnswerReader
from ...core.http1.pool import ConnectionPool, Place
from ...core.web_urls import parse_url

ADDRESSES_KEPT = 10.0
"""Seconds for which the addresses of the account's name are used without asking for them again."""


class NotSent(Exception):
    """Raised if certainly nothing of a request was sent. Its text is the name of the error that prevented it."""


class AccountConnections:
    """The connections to the server of `base`. Belongs to one event loop. No proxies, redirects, cookies or decompression."""

    def __init__(self, base: str, *, most: int, kept: float, connect: float) -> None:
        """most: open connections. kept: seconds for which an unused one is kept. connect: seconds to connect, TLS included."""
        url = parse_url(base)
        host, port = url.raw_host, url.port
        if host is None or port is None:
            raise ValueError("the address of the storage account is not valid")
        self._place = Place(host, port, url.scheme == "https")
        self._host = f"Host: {url.host_header}"
        policy = ConnectionPolicy(FullAnswerReader, kept)
        self._pool = ConnectionPool(_new_socket, policy, most=most, connect=connect)
        self.loop = self._pool.loop
        self._lookup: asyncio.Task[Sequence[AddrInfoType]] | None = None
        self._looked_up = 0.0
        self._closed = False

    async def exchange(self, request: bytes, seconds: float, elapsed: Callable[[], float]) -> tuple[FullAnswerReader, float]:
        """Send a request and return its whole answer, and the moment by `elapsed` just before it was sent.

        seconds: time for all of it. Raises `NotSent`. OSError (TimeoutError, `ConnectionLost`) and `AnswerRefused` mean that the request
        was sent, at least in part, so the service may have received it.
        """
        ends_at = self.loop.time() + seconds
        try:
            # Waiting for a connection ends before the whole request does: then it is certain that nothing was sent.
            connection = await self._take(ends_at - seconds * 0.2)
        except OSError as error:
            raise NotSent(type(error).__name__) from None
        sent = elapsed()
        try:
            waiting = connection.post(request, ends_at)
        except NotConnected as error:
            raise NotSent(type(error).__name__) from None
        try:
            return await waiting, sent
        except asyncio.CancelledError:
            connection.give_up(waiting)
            raise

    async def _take(self, deadline: float) -> Connection[FullAnswerReader]:
        """Return a connection that can carry a request, if it is sent in the same turn of the loop. Raises OSError.

        deadline: loop time.
        """
        if self._closed:
            raise RuntimeError("the storage is closed")
        connection = self._pool.take(self._place)
        if connection is None:
            connection = await self._pool.make(self._place, self._resolve, deadline)
            if self._closed:
                connection.abort()
                raise RuntimeError("the storage is closed")
        return connection

    def request(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the bytes of a request. Raises ValueError for a line break in a header."""
        lines = [f"{method} {target} HTTP/1.1", self._host, *[f"{name}: {value}" for name, value in headers.items()]]
        if body or method != "GET":
            lines.append(f"Content-Length: {len(body)}")
        text = "\n".join(lines)
        if text.count("\n") >= len(lines) or "\r" in text or "\0" in text:
            raise ValueError("a header holds a line break")
        return text.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body

    async def _resolve(self, host: str, port: int) -> Sequence[AddrInfoType]:
        """Return the addresses of the account. Requests that need them at the same time share one look-up."""
        lookup = self._lookup
        if lookup is None or (lookup.done() and (_failed(lookup) or self.loop.time() >= self._looked_up + ADDRESSES_KEPT)):
            lookup = self._lookup = self.loop.create_task(self._look_up(host, port))
        # A request that gives up leaves the look-up to the others. Each gets a list of its own, which it may change.
        await asyncio.wait((lookup,))
        if lookup.cancelled():
            # By `close`: the request itself was not cancelled.
            raise NotConnected()
        return list(lookup.result())

    async def _look_up(self, host: str, port: int) -> Sequence[AddrInfoType]:
        found = await self.loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self._looked_up = self.loop.time()
        return found

    async def close(self) -> None:
        """Close the connections. Requests in flight end with `ConnectionLost`, and later ones raise RuntimeError."""
        self._closed = True
        if self._lookup is not None:
            self._lookup.cancel()
            # Also takes an error that nobody has asked for.
            await asyncio.gather(self._lookup, return_exceptions=True)
        await self._pool.close()


def _failed(lookup: asyncio.Task[Sequence[AddrInfoType]]) -> bool:
    return lookup.cancelled() or lookup.exception() is not None


def _new_socket(place: Place, info: AddrInfoType) -> socket.socket:
    return socket.socket(info[0], info[1], info[2])
