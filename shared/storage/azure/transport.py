"""Requests to a storage account: authorization, timeouts, bounded retries, and the meaning of a failure.

Why not the SDK's pipeline: azure-core folds a connection reset after sending and a connection that was never made into one
`ServiceRequestError`, and the difference decides whether a write may be sent again. It also costs more than the store itself
(docs/explain/storage.md has the figures).

A call that may be repeated is tried again on 408, 429, 5xx, time-outs and resets. One that may not is tried again only when
the service cannot have seen it (connection never made, or ended before a byte was written) or said so (429).
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from ...core import backoff
from ...core.clock import Clock, SystemClock
from ...core.durations import retry_after_of
from ...core.errors import OutcomeUnknown, Unavailable
from ...core.http1.head import AnswerRefused
from ...core.pressure import PressureGauge
from ..server_time import elapsed_ms
from .account import VERSION, Account
from .connections import AccountConnections, NotSent

EMULATOR_CONNECTIONS = 16
"""Most open connections to an emulator. Azurite has one thread, which accepts one connection in each turn of its event loop: while 40
requests are in flight on older connections, those on new ones wait for seconds."""


@dataclass(frozen=True, slots=True)
class TransportPolicy:
    """Bounds of a call: `attempts` tries, times in seconds, and at most `connections` open connections."""

    attempts: int = 5
    total: float = 30.0
    """No wait for a retry begins that would end more than this many seconds after the call."""
    request: float = 10.0
    """Timeout of one request, answer included."""
    connect: float = 3.0
    base: float = 0.1
    """The wait before the first retry is at most this, and doubles."""
    cap: float = 5.0
    connections: int = 128
    idle: float | None = None
    """Seconds for which an unused connection is kept; by default `Account.idle_seconds`."""


class HttpAnswer(NamedTuple):
    """An answer of the service. `doubtful`: an earlier try of the same call may have been applied too.

    `sent` and `received` are the moments of the try that was answered, by the transport's `elapsed`, in milliseconds.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes
    doubtful: bool
    sent: float = 0.0
    received: float = 0.0


class Transport:
    """Calls to one account. Its connections are made on first use, inside the running loop."""

    def __init__(
        self,
        account: Account,
        clock: Clock | None = None,
        policy: TransportPolicy | None = None,
        *,
        chance: Callable[[], float] = random.random,
        elapsed: Callable[[], float] | None = None,
        pressure: PressureGauge | None = None,
    ) -> None:
        """elapsed: reads the monotonic time of `HttpAnswer.sent` and `received`, in milliseconds; the clock's by default. pressure: counts
        each try, and those that were refused or not answered."""
        self.account = account
        self.transactions: Counter[str] = Counter()
        self.bytes_read = 0
        """Bytes of all answers' bodies. Not among the transactions, which are counted as they are billed."""
        self._clock = clock or SystemClock()
        self._elapsed = elapsed or elapsed_ms(self._clock)
        self._policy = policy or TransportPolicy()
        self._chance = chance
        self._record = pressure.record if pressure is not None else _ignore
        self._connections: AccountConnections | None = None

    def _open(self) -> AccountConnections:
        if self._connections is None:
            idle = self.account.idle_seconds if self._policy.idle is None else self._policy.idle
            self._connections = self._make_connections(self._policy, idle)
        return self._connections

    def _make_connections(self, policy: TransportPolicy, idle: float) -> AccountConnections:
        # Only emulators have the account's name in the path.
        most = min(policy.connections, EMULATOR_CONNECTIONS) if self.account.path else policy.connections
        return AccountConnections(self.account.base, most=most, kept=idle, connect=policy.connect)

    async def call(
        self,
        name: str,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes = b"",
        repeat: bool,
    ) -> HttpAnswer:
        """Send one request, counted under `name` in `transactions` each time it goes out, and return its answer.

        `path` is percent-encoded and relative to the account; `query` is not encoded. With `repeat` False a request whose
        fate is open raises `OutcomeUnknown`. Raises `Unavailable` when the retries are used up. Other answers, also 4xx, are
        returned.
        """
        credential, policy, clock = self.account.credential, self._policy, self._clock
        asked = query or {}
        target, signed = self.account.target(path, asked), self.account.path + path
        connections, started = self._open(), clock.monotonic()
        doubtful, renewed, attempt = False, False, 0
        while True:
            attempt += 1
            send = {"x-ms-version": VERSION, **(headers or {})}
            await credential.authorize(method, signed, asked, send, len(body))
            self.transactions[name] += 1
            wait: float | None = None
            request = connections.request(method, target, send, body)
            try:
                reply, sent = await connections.exchange(request, policy.request, self._elapsed)
            except NotSent as error:
                failed = str(error)
            except (AnswerRefused, OSError) as error:
                failed = type(error).__name__
                if not repeat:
                    self._record(True)
                    _unknown(failed)
                doubtful = True
            else:
                received, status, content = self._elapsed(), reply.status, reply.body
                assert status is not None  # the answer is complete
                self.bytes_read += len(content)
                if status == 401 and not renewed and credential.refused():
                    renewed = True
                    continue
                if status not in (408, 429) and status < 500:
                    self._record(False)
                    return HttpAnswer(status, reply.headers, content, doubtful, sent, received)
                failed = f"status {status}"
                if status != 429:
                    if not repeat:
                        self._record(True)
                        _unknown(failed, self._asked_wait(reply.headers))
                    doubtful = True
                wait = self._asked_wait(reply.headers)
            self._record(True)
            if wait is None:
                wait = self._chance() * backoff.exponential(policy.base, attempt - 1, policy.cap)
            if attempt >= policy.attempts or clock.monotonic() - started + wait > policy.total:
                # The cause stays out: its text may quote the address, and with it a signature.
                raise Unavailable(f"the {name} request failed {attempt} times, last: {failed}") from None
            await clock.sleep(wait)

    def _asked_wait(self, headers: Mapping[str, str]) -> float | None:
        """Seconds the service asks to wait in `Retry-After`, a number or a date; None when it does not."""
        return retry_after_of(headers.get("Retry-After"), self._clock.now(), math.inf)

    async def close(self) -> None:
        """Close the connections and the credential."""
        if self._connections is not None:
            await self._connections.close()
        await self.account.credential.close()


def _ignore(refused: bool) -> None:
    """Count nothing."""


def _unknown(failed: str, retry_after: float | None = None) -> NoReturn:
    lost = OutcomeUnknown(f"the write's answer is lost: {failed}")
    lost.retry_after = retry_after
    raise lost from None
