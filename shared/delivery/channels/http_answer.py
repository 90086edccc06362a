"""Reads the answers of receivers: bounds for them, and the status line even when what follows is broken.

aiohttp reads any number of informational (1xx) answers in a loop that never waits, parses unrequested answers on kept
connections, and loses an answer if the bytes after its head are not valid, such as the body of a 204. The protocol here looks at the bytes
before aiohttp parses them.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

MAX_ANSWER_BYTES = 64 * 1024
"""Bytes of one answer that are read, informational answers before it included. Then its connection is closed."""
MOST_INFORMATIONAL = 5
"""Informational answers before the final one; with one more, the attempt fails."""
_MOST_HELD = 16 * 1024
"""Bytes of one informational answer; with more, the attempt fails."""

_STATUS_LINE = re.compile(rb"(?:\r?\n)*HTTP/1\.[01] ([1-9][0-9][0-9])(?: [^\r\n]*)?\r?\n")
_HEAD_END = re.compile(rb"\r?\n\r?\n")


@dataclass(slots=True)
class SentRequest:
    """One request: the rules for a socket that is made for it, and what is known of it."""

    host: str
    plain: bool
    tenant: str
    fresh: bool = False
    """True if a socket was made for it."""
    status: int | None = None
    """The final status, as soon as its line was read."""


SENT: ContextVar[SentRequest] = ContextVar("tocsin_http_request")
"""Carries the request to the resolver and the socket factory, which belong to the connector, and back from its answer."""


class AnswerRefused(aiohttp.ClientPayloadError):
    """Raised for an answer beyond the bounds. Its text has no bytes of the answer."""


class AnswerProtocol(ResponseHandler):
    """A connection's protocol that knows the final status of the present answer as soon as its status line was read."""

    status: int | None = None
    _informational = 0
    _left = MAX_ANSWER_BYTES
    """Bytes of the present answer that may still come."""
    _unread: bytes | None = None
    """Bytes of the present answer up to the end of its status line; None when the status is known or nothing is expected."""
    _body: aiohttp.StreamReader | None = None
    """The body of the final answer; None until its head is complete. aiohttp's `_payload` is that of any answer, also of the one before."""

    def set_response_params(self, **params: Any) -> None:
        """Begin to read the answer of the next request."""
        self.status, self._informational, self._left, self._unread, self._body = None, 0, MAX_ANSWER_BYTES, b"", None
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the receiver; close the connection at the first that are beyond the bounds."""
        if self._body is not None and self._body.is_eof():
            # The answer is complete. Another one would pass for that of the next request, and any number of them would be parsed.
            self._close("bytes after its end")
            return
        if self._unread is not None and (problem := self._find_problem(data)) is not None:
            self._close(problem)
            return
        allowed = data[: self._left]
        self._left -= len(allowed)
        super().data_received(allowed)
        if len(allowed) < len(data):
            self._close(f"an answer of more than {MAX_ANSWER_BYTES // 1024} KiB")

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take an answer from the parser."""
        code = data[0].code
        if code >= 200 or code == 101:
            self.status, self._unread, self._body = code, None, self._payload
        super().feed_data(data, size)

    def _find_problem(self, data: bytes) -> str | None:
        """Note the final status if its line is complete; return a problem if too much precedes it."""
        text, at = ((self._unread or b"") + data).lstrip(b"\r\n"), 0
        while b"\n" in data and (line := _STATUS_LINE.match(text, at)) is not None:
            status = int(line[1])
            if status >= 200 or status == 101:
                self.status, self._unread = status, None
                return None
            # The last line end of the status line may be the first one of the empty line that ends the head.
            end = _HEAD_END.search(text, line.end() - 2)
            if end is None or end.end() - at > _MOST_HELD:
                break
            self._informational += 1
            if self._informational > MOST_INFORMATIONAL:
                return f"more than {MOST_INFORMATIONAL} informational answers and no final one"
            at = end.end()
        self._unread = text[at:]
        return None if len(self._unread) <= _MOST_HELD else f"more than {_MOST_HELD // 1024} KiB before the status of the final answer"

    def _close(self, problem: str) -> None:
        self._unread = None
        if self.transport is not None:
            self.transport.abort()
        if not self.is_eof():
            self.set_exception(AnswerRefused(problem))


class AnswerConnector(aiohttp.TCPConnector):
    """A connector whose connections have an `AnswerProtocol`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # aiohttp has no public way to choose the protocol. A test notices if a later version ignores this.
        self._factory: Any = partial(AnswerProtocol, loop=self._loop)


class ReceiverResponse(aiohttp.ClientResponse):
    """An answer that notes its status in `SENT` even if its head cannot be read."""

    async def start(self, connection: Any) -> ReceiverResponse:
        """Read the head."""
        protocol, sent = connection.protocol, SENT.get()
        try:
            await super().start(connection)
        finally:
            sent.status = getattr(protocol, "status", None)
        return self
