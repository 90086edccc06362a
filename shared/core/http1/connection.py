"""One connection of the client: sends a request, reads its answer, and then waits for the next request."""

from __future__ import annotations

import asyncio
import math
import select
from collections.abc import Callable
from typing import NamedTuple, cast

from .head import AnswerRefused, HeadReader


class NotConnected(OSError):
    """Raised if there is no connection: nothing of the request was sent."""


class ConnectionLost(OSError):
    """Raised if the connection ended before the answer. Without a number, the other side closed it."""


class ConnectionPolicy[Reader: HeadReader](NamedTuple):
    """The way in which connections are used. Times are in seconds."""

    reader: Callable[[], Reader]
    """Makes the reader of an answer."""
    kept: float
    """An unused connection is kept for this time."""
    body: float = math.inf
    """The body of an answer is read for this time after its head."""


class Connection[Reader: HeadReader](asyncio.Protocol):
    """A connection. It has at most one request at a time, and one timer for all of them.

    freed: called when the connection can take a request again. lost: called once, when it is gone.
    """

    __slots__ = (
        *("_answer", "_blank", "_deadline", "_freed", "_loop", "_lost", "_poll", "_policy", "_timer", "_timer_at", "_transport"),
        *("gone", "used", "waiter"),
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        policy: ConnectionPolicy[Reader],
        freed: Callable[[Connection[Reader]], None],
        lost: Callable[[Connection[Reader]], None],
    ) -> None:
        self._loop, self._policy, self._freed, self._lost = loop, policy, freed, lost
        self._transport: asyncio.Transport | None = None
        self._poll: select.poll | None = None
        self._blank = self._answer = policy.reader()
        """The reader while there is no request. It reads nothing."""
        self._deadline = self._timer_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.waiter: asyncio.Future[Reader] | None = None
        """The request that waits for its answer."""
        self.used = False
        """True if it has had a request before."""
        self.gone = False
        """True if it has ended."""

    @property
    def open(self) -> bool:
        """True if a request can be sent. Asked of a connection without a request."""
        if self._poll is None or self._transport is None or self._transport.is_closing():
            return False
        # The operating system knows if its end has come, it has failed, or it holds bytes that answer no request. The event loop sees that
        # only in its next turn.
        return not self._poll.poll(0)

    def post(self, request: bytes, deadline: float, answer: Reader | None = None) -> asyncio.Future[Reader]:
        """Send a request; return a future of its answer, as soon as that is usable.

        deadline: loop time by which it must be usable. answer: reads the answer, for callers that want more of it than others. Raises
        `NotConnected` if nothing was sent. The future raises TimeoutError, `AnswerRefused` and `ConnectionLost`: the request may have been
        received. A caller that gives up calls `give_up`.
        """
        assert self.waiter is None
        transport = self._transport
        if transport is None or transport.is_closing():
            raise NotConnected()
        self._answer = answer if answer is not None else self._policy.reader()
        waiter = self.waiter = self._loop.create_future()
        self._limit(deadline)
        transport.write(request)
        return waiter

    @property
    def answer(self) -> Reader:
        """The part of the present answer that was read."""
        return self._answer

    def give_up(self, waiter: asyncio.Future[Reader]) -> None:
        """Close the connection if this request still waits for its answer. After the answer, another request may have it already."""
        if self.waiter is waiter:
            self.abort()

    def abort(self) -> None:
        """Close the connection at once."""
        self.waiter = None
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Close the connection; a request in flight ends with `ConnectionLost`, unless its answer is usable."""
        if self.waiter is not None and not self._answer.usable:
            # First: the end that follows is ours, and proves nothing about the answer.
            self._fail(ConnectionLost())
        elif self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        # uvloop's transports do not derive from the class.
        self._transport = cast("asyncio.Transport", transport)
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket").fileno(), select.POLLIN)

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
        elif answer.head_read and not was_read and self._policy.body < math.inf:
            self._limit(min(self._deadline, self._loop.time() + self._policy.body))

    def connection_lost(self, error: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self.gone = True
        if self._timer is not None:
            self._timer.cancel()
        if self.waiter is not None:
            self._answer.end(clean=error is None)
        if self.waiter is not None and self._answer.usable:
            self._resolve()
        else:
            number = error.errno if isinstance(error, OSError) else None
            lost = ConnectionLost(number, "") if number else ConnectionLost()
            # With TLS 1.3 the other side refuses a client certificate after the handshake; callers may want to know.
            lost.__cause__ = error
            self._fail(lost)
        self._lost(self)

    def _end(self) -> None:
        transport = self._transport
        assert transport is not None
        # An answer to a request that was not sent to its end: the rest would be taken for the next one.
        if self._answer.reusable and not transport.is_closing() and not transport.get_write_buffer_size():
            self.used = True
            self._resolve()
            self._limit(self._loop.time() + self._policy.kept)
            self._freed(self)
        else:
            self._resolve()
            transport.abort()

    def _resolve(self) -> None:
        waiter, self.waiter = self.waiter, None
        answer, self._answer = self._answer, self._blank
        if waiter is not None and not waiter.done():
            waiter.set_result(answer)

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
        elif self._answer.usable:
            self._resolve()
            self.abort()
        else:
            self._fail(TimeoutError())
