"""One connection of the client: sends a request, reads its answer, and then waits for the next request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from .answer import AnswerReader, AnswerRefused

MAX_ANSWER_SECONDS = 1.0
"""Seconds from the end of an answer's head for which its body is read."""
KEPT_SECONDS = 15.0
"""Seconds for which an unused connection is kept."""


class ConnectionLost(OSError):
    """Raised if the connection ended before the answer's head did. Without a number, the receiver closed it."""


class Connection(asyncio.Protocol):
    """A connection. It has at most one request at a time, and one timer for all of them.

    freed: called when the connection can take a request again. lost: called once, when it is gone.
    """

    __slots__ = ("_answer", "_deadline", "_freed", "_loop", "_lost", "_timer", "_timer_at", "_transport", "gone", "used", "waiter")

    def __init__(self, loop: asyncio.AbstractEventLoop, freed: Callable[[Connection], None], lost: Callable[[Connection], None]) -> None:
        self._loop, self._freed, self._lost = loop, freed, lost
        self._transport: asyncio.Transport | None = None
        self._answer = AnswerReader()
        self._deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.waiter: asyncio.Future[AnswerReader] | None = None
        """The request that waits for its answer."""
        self.used = False
        """True if it has had a request before."""
        self.gone = False
        """True if it has ended."""

    @property
    def open(self) -> bool:
        """True if a request can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def post(self, request: bytes, deadline: float, answer: AnswerReader | None = None) -> asyncio.Future[AnswerReader]:
        """Send a request; return a future of its answer, whose head was read.

        deadline: loop time by which the head must have been read. answer: reads the answer, for callers that keep some of it. The future
        raises TimeoutError, `AnswerRefused` and `ConnectionLost`.
        A caller that gives up calls `abort`.
        """
        assert self._transport is not None and self.waiter is None
        self._answer = answer or AnswerReader()
        waiter = self.waiter = self._loop.create_future()
        self._limit(deadline)
        self._transport.write(request)
        return waiter

    @property
    def answer(self) -> AnswerReader:
        """The part of the present answer that was read."""
        return self._answer

    def abort(self) -> None:
        """Close the connection at once."""
        self.waiter = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection; a request in flight ends with `ConnectionLost`."""
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports do not derive from the class.
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        waiter, answer = self.waiter, self._answer
        if waiter is None or waiter.done():
            # Nobody has asked: this must not pass for the answer to the next request.
            self.abort()
            return
        was_read = answer.head_read
        try:
            answer.feed(data)
        except AnswerRefused as error:
            self._fail(error)
            return
        if answer.complete:
            self._end()
        elif answer.head_read and not was_read:
            self._limit(min(self._deadline, self._loop.time() + MAX_ANSWER_SECONDS))

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.gone = True
        if self._timer is not None:
            self._timer.cancel()
        if self.waiter is not None and self._answer.head_read:
            self._answer.end_with_connection()
            self._resolve()
        else:
            number = error.errno if isinstance(error, OSError) else None
            self._fail(ConnectionLost(number, "") if number else ConnectionLost())
        self._lost(self)

    def _end(self) -> None:
        transport = self._transport
        assert transport is not None
        # An answer to a request that was not sent to its end: the rest would be taken for the next one.
        if self._answer.reusable and not transport.is_closing() and not transport.get_write_buffer_size():
            self.used = True
            self._resolve()
            self._limit(self._loop.time() + KEPT_SECONDS)
            self._freed(self)
        else:
            self._resolve()
            transport.abort()

    def _resolve(self) -> None:
        waiter, self.waiter = self.waiter, None
        if waiter is not None and not waiter.done():
            waiter.set_result(self._answer)

    def _fail(self, error: Exception) -> None:
        waiter = self.waiter
        self.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def _limit(self, deadline: float) -> None:
        """Set the time by which something must happen. A timer that ends earlier is kept: most requests then set none."""
        self._deadline = deadline
        if self._timer is None or self._timer_at > deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._loop.time() < self._deadline:
            self._limit(self._deadline)
        elif self.waiter is None:
            self.abort()
        elif self._answer.head_read:
            self._resolve()
            self.abort()
        else:
            self._fail(TimeoutError())
