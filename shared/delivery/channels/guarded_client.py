"""Sends the requests of deliveries to addresses that the egress rules allow, over kept connections.

One pool of connections per process, made in the running loop when first needed. No redirects, proxies, cookies or decompression.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from aiohappyeyeballs import AddrInfoType

from ...core.clock import Clock
from ...core.http1.answer import AnswerReader
from ...core.http1.connection import Connection, ConnectionLost, ConnectionPolicy, NotConnected
from ...core.http1.head import AnswerRefused
from ...core.http1.pool import ConnectionPool, Place
from ..egress_guard import Egress, EgressRefused, SafeResolver
from ..name_lookups import NameLookups, NameUnresolved, ResolveHost, system_lookup
from . import rules
from .ports import OutgoingDelivery, SecondVerdict, Verdict

MAX_ANSWER_SECONDS = 1.0
"""Seconds from the end of an answer's head for which its body is read."""
KEPT_SECONDS = 15.0
"""Seconds for which an unused connection is kept."""


class Exchange(Protocol):
    """The request of one delivery, and the way to judge its answer."""

    @property
    def tenant(self) -> str:
        """The tenant against whom look-ups of names count."""

    @property
    def place(self) -> Place:
        """The server to connect to."""

    @property
    def shown(self) -> str:
        """The address as errors may show it."""

    @property
    def seconds(self) -> float:
        """Time limit of the delivery in seconds, connection and second send included."""

    def request(self, delivery: OutgoingDelivery) -> bytes:
        """Return the bytes of the request. Raises ValueError if it cannot be made from the channel's settings."""

    def reader(self) -> AnswerReader | None:
        """Return a reader of the answer, or None if its status is enough."""

    def judge(self, answer: AnswerReader, delivery: OutgoingDelivery) -> Verdict:
        """Return the verdict on an answer whose head was read."""


class Client(Protocol):
    """Sends the requests of deliveries. `GuardedClient` does it over the network."""

    async def send(self, exchange: Exchange, delivery: OutgoingDelivery) -> Verdict:
        """Send one request and return its verdict. Never raises for a receiver's behaviour."""

    async def close(self) -> None:
        """Release connections."""


class NameFailed(OSError):
    """Raised if a name has no address; its cause says why."""


def new_socket(info: AddrInfoType) -> socket.socket:
    """Return a socket for one address."""
    return socket.socket(info[0], info[1], info[2])


class GuardedClient:
    """Sends requests of deliveries over the network.

    per_host: connections to one server at most. `lookup` resolves names, `new_socket` makes sockets and `tls` replaces the default
    context: tests replace them.
    """

    def __init__(
        self,
        egress: Egress,
        clock: Clock,
        per_host: int,
        *,
        lookup: ResolveHost = system_lookup,
        new_socket: Callable[[AddrInfoType], socket.socket] = new_socket,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._egress, self._clock, self._per_host = egress, clock, per_host
        self._lookup, self._new_socket, self._tls = lookup, new_socket, tls
        self._pool: ConnectionPool[AnswerReader] | None = None
        self._names: NameLookups | None = None

    async def send(self, exchange: Exchange, delivery: OutgoingDelivery) -> Verdict:
        """Send one request. If a kept connection turns out to be closed, send a second one at once: the next attempt, with the same id."""
        pool = self._pool or self._open()
        ends_at, began = pool.loop.time() + exchange.seconds, self._clock.monotonic()
        connection = pool.take(exchange.place)
        try:
            request = exchange.request(delivery)
            if connection is None:
                connection = await self._connect(exchange, ends_at)
            return await _post(exchange, delivery, connection, request, ends_at)
        except (AnswerRefused, OSError, ValueError) as error:
            verdict = _verdict_of(error, exchange, connection)
            # A receiver may close an idle connection at the moment of the write. This POST has an id and may arrive twice, and a back-off
            # would make a punctual event late for nothing. An answer that has begun shows that the receiver was there.
            closed = isinstance(error, ConnectionLost) and connection is not None and connection.used and not connection.answer.began
            if verdict.outcome != "retry" or not closed or pool.loop.time() >= ends_at:
                return verdict
        # By the caller's clock, which may differ from this one: it is corrected where the machine's is proven wrong.
        sent_again = delivery.fired + round((self._clock.monotonic() - began) * 1000)
        second = replace(delivery, fired=sent_again, attempt=delivery.attempt + 1)
        first_error, connection = verdict.error or "", None
        try:
            # Other kept connections may have been closed with the first one.
            connection = await self._connect(exchange, ends_at)
            verdict = await _post(exchange, second, connection, exchange.request(second), ends_at)
        except (AnswerRefused, OSError, ValueError) as error:
            verdict = _verdict_of(error, exchange, connection)
        return SecondVerdict.of(verdict, second.fired, first_error)

    def _open(self) -> ConnectionPool[AnswerReader]:
        self._names = NameLookups(self._lookup)
        # The scheduler limits deliveries per process, channel and tenant. A smaller limit here would let one tenant's slow endpoint starve
        # another's on the same host.
        policy = ConnectionPolicy(AnswerReader, KEPT_SECONDS, MAX_ANSWER_SECONDS)
        self._pool = ConnectionPool(self._guarded_socket, policy, most=self._per_host, tls=self._tls)
        return self._pool

    async def _connect(self, exchange: Exchange, ends_at: float) -> Connection[AnswerReader]:
        """Return a connection. Raises TimeoutError, EgressRefused, NameFailed, NotConnected, ConnectionLost, ssl.SSLError."""
        pool, names = self._pool or self._open(), self._names
        assert names is not None  # they are opened with the pool

        async def resolve(host: str, port: int) -> Sequence[AddrInfoType]:
            resolver = SafeResolver(self._egress, lambda host, port: names.resolve(exchange.tenant, host, port))
            try:
                return await resolver.resolve(host, port)
            except EgressRefused:
                raise
            except OSError as error:
                raise NameFailed() from error

        return await pool.make(exchange.place, resolve, ends_at)

    def _guarded_socket(self, place: Place, info: AddrInfoType) -> socket.socket:
        self._egress.check(place.host, str(info[4][0]), plain=not place.tls)
        return self._new_socket(info)

    async def close(self) -> None:
        """Close the connections. A later `send` opens a new pool."""
        pool, self._pool = self._pool, None
        names, self._names = self._names, None
        if pool is not None:
            await pool.close()
        if names is not None:
            await names.close()


async def _post(
    exchange: Exchange, delivery: OutgoingDelivery, connection: Connection[AnswerReader], request: bytes, ends_at: float
) -> Verdict:
    waiting = connection.post(request, ends_at, exchange.reader())
    try:
        answer = await waiting
    except asyncio.CancelledError:
        connection.give_up(waiting)
        raise
    return exchange.judge(answer, delivery)


def _verdict_of(error: Exception, exchange: Exchange, connection: Connection[AnswerReader] | None) -> Verdict:
    """Return the verdict on a request whose answer could not be read to the end of its head.

    Texts are this module's or the operating system's: no bytes of an answer get into an error.
    """
    if isinstance(error, EgressRefused):
        return Verdict("final", None, rules.one_line(f"egress refused: {exchange.shown}: {error}"))
    outcome = "could not be sent"
    if isinstance(error, TimeoutError):
        outcome = f"no answer within {exchange.seconds:g} s"
    elif isinstance(error, NameFailed):
        outcome = "the host's name could not be resolved"
        if isinstance(error.__cause__, NameUnresolved):
            outcome = f"{outcome}: {error.__cause__}"
    elif isinstance(error, ssl.SSLCertVerificationError):
        outcome = f"TLS failure: certificate refused: {error.verify_message}"
    elif isinstance(failure := error.__cause__ if isinstance(error, ConnectionLost) else error, ssl.SSLError):
        outcome = f"TLS failure: {failure.reason or 'handshake failed'}"
    elif isinstance(error, ConnectionLost) and error.errno is None:
        begun = connection is not None and connection.answer.began
        outcome = f"the connection was closed {'within the head of its' if begun else 'before an'} answer"
    elif isinstance(error, NotConnected):
        outcome = f"could not connect: {_strerror(error)}"
    elif isinstance(error, OSError):
        outcome = f"connection lost: {_strerror(error)}"
    elif isinstance(error, AnswerRefused):
        outcome = str(error)
    elif isinstance(error, ValueError):
        return Verdict("final", None, rules.one_line(f"{exchange.shown}: the request could not be made from the channel's settings"))
    if exchange.place.context is not None and isinstance(error, (ssl.SSLError, ConnectionLost)) and not (connection and connection.used):
        outcome += "; does the server accept the client certificate?"
    return Verdict("retry", None, rules.one_line(f"{exchange.shown}: {outcome}"), unreached=_is_unreached(error, connection))


def _is_unreached(error: Exception, connection: Connection[AnswerReader] | None) -> bool:
    """Return True if the error shows no sign of the receiver. A failure of TLS does."""
    if connection is None:
        return isinstance(error, (TimeoutError, NameFailed, NotConnected))
    return isinstance(error, ConnectionLost) and not connection.answer.began and not isinstance(error.__cause__, ssl.SSLError)


def _strerror(error: OSError) -> str:
    number = error.errno
    return os.strerror(number) if isinstance(number, int) and number > 0 else "no reason given"
