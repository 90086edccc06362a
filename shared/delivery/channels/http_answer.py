"""Reads the answers of receivers: a limit for informational answers, and the status line even when what follows is broken.

aiohttp reads any number of informational (1xx) answers in a loop that never waits, and it loses an answer if the bytes after its head are
not valid, such as the body of a 204. The protocol here looks at the bytes before aiohttp parses them.
"""

from __future__ import annotations

import re
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler

MOST_INFORMATIONAL = 5
"""Informational answers before the final one; with one more, the attempt fails."""
_MOST_HELD = 64 * 1024
"""Bytes of an unfinished informational head that are kept. aiohttp refuses larger heads."""

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


class TooManyInformational(aiohttp.ClientPayloadError):
    """Raised for a receiver that sends informational answers and no final one."""


class AnswerProtocol(ResponseHandler):
    """A connection's protocol that knows the final status of the present answer as soon as its status line was read."""

    status: int | None = None
    _informational = 0
    _unread: bytes | None = None
    """Bytes of the present answer up to the end of its status line; None when the status is known or nothing is expected."""

    def set_response_params(self, **params: Any) -> None:
        """Begin to read the answer of the next request."""
        self.status, self._informational, self._unread = None, 0, b""
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        """Parse bytes from the receiver; close the connection at the informational answer that is one too many."""
        if self._unread is not None and not self._look(data):
            self._refuse()
            return
        super().data_received(data)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take an answer from the parser."""
        code = data[0].code
        if code >= 200 or code == 101:
            self.status, self._unread = code, None
        super().feed_data(data, size)

    def _look(self, data: bytes) -> bool:
        """Note the final status if its line is complete; return False if too many informational answers precede it."""
        text, at = (self._unread or b"") + data, 0
        while (line := _STATUS_LINE.match(text, at)) is not None:
            status = int(line[1])
            if status >= 200 or status == 101:
                self.status, self._unread = status, None
                return True
            # The last line end of the status line may be the first one of the empty line that ends the head.
            end = _HEAD_END.search(text, line.end() - 2)
            if end is None:
                break
            self._informational += 1
            if self._informational > MOST_INFORMATIONAL:
                return False
            at = end.end()
        self._unread = text[at:] if len(text) - at <= _MOST_HELD else None
        return True

    def _refuse(self) -> None:
        self._unread = None
        if self.transport is not None:
            self.transport.abort()
        self.set_exception(TooManyInformational(f"more than {MOST_INFORMATIONAL} informational answers"))


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
