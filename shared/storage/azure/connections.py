"""Decides which kept connections to a storage account may carry a request, and records whether a request was handed over to one.

A write on a connection that the service has closed meanwhile has an unknown outcome, although nothing was stored. The event loop sees the
end of a connection only in its next turn. So the pool asks the operating system too, in the same turn in which the request is written.
"""

from __future__ import annotations

import asyncio
import select
from functools import partial
from typing import Any, cast

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_writer import StreamWriter
from aiohttp.payload import Payload


class StorageProtocol(ResponseHandler):
    """A connection's protocol that counts as connected only while nothing can be read from its socket."""

    def is_connected(self) -> bool:
        """Return True if the connection may carry a request. The pool asks this of connections without one."""
        return super().is_connected() and self.transport is not None and not _is_readable(self.transport)


def _is_readable(transport: asyncio.Transport) -> bool:
    """Return True if the socket has reached its end, has failed, or holds bytes that answer no request."""
    looking = select.poll()
    looking.register(transport.get_extra_info("socket").fileno(), select.POLLIN)
    return bool(looking.poll(0))


class StorageConnector(aiohttp.TCPConnector):
    """A connector whose connections have a `StorageProtocol`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # aiohttp has no public way to choose the protocol. A test notices if a later version ignores this.
        self._factory: Any = partial(StorageProtocol, loop=self._loop)


class RequestBody(Payload):
    """A request's body, of any size. It goes out with the head in one write, in the same turn of the loop in which the pool is asked."""

    handed_over = False
    """True from the moment in which bytes of the request, its head included, were given to a connection. False proves that none were."""

    def __init__(self, body: bytes) -> None:
        super().__init__(body)
        self._size = len(body)

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Return the body as text."""
        return bytes(self._value).decode(encoding, errors)

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Write the body, and the head that the writer holds back for it."""
        # The writer makes the same check, and raises.
        transport = cast("StreamWriter", writer).transport
        if transport is not None and not transport.is_closing():
            self.handed_over = True
        await writer.write(self._value)
