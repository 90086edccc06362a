"""Requests to a storage account over one aiohttp session: authorization, timeouts, bounded retries, and the meaning of a failure.

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

import aiohttp
from yarl import URL

from ...core import backoff
from ...core.clock import Clock, SystemClock
from ...core.durations import retry_after_of
from ...core.errors import OutcomeUnknown, Unavailable
from ..server_time import elapsed_ms
from .account import VERSION, Account
from .connections import RequestBody, StorageConnector

# These aiohttp itself sends again on a kept connection that turns out closed: never for what must not be repeated.
_RESENT_BY_AIOHTTP = frozenset({"PUT", "DELETE"})
_SKIP = ("Accept", "Accept-Encoding", "User-Agent", "Content-Type")


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
    """Calls to one account. The session is made on first use, inside the running loop."""

    def __init__(
        self,
        account: Account,
        clock: Clock | None = None,
        policy: TransportPolicy | None = None,
        *,
        chance: Callable[[], float] = random.random,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        """elapsed: reads the monotonic time of `HttpAnswer.sent` and `received`, in milliseconds; the clock's by default."""
        self.account = account
        self.transactions: Counter[str] = Counter()
        self.bytes_read = 0
        """Bytes of all answers' bodies. Not among the transactions, which are counted as they are billed."""
        self._clock = clock or SystemClock()
        self._elapsed = elapsed or elapsed_ms(self._clock)
        self._policy = policy or TransportPolicy()
        self._chance = chance
        self._session: aiohttp.ClientSession | None = None

    def _open(self) -> aiohttp.ClientSession:
        if self._session is None:
            policy = self._policy
            self._session = aiohttp.ClientSession(
                connector=StorageConnector(
                    limit=policy.connections,
                    keepalive_timeout=self.account.idle_seconds if policy.idle is None else policy.idle,
                ),
                # Waiting for a pooled connection ends before the whole request does: then it is certain that nothing was sent.
                timeout=aiohttp.ClientTimeout(total=policy.request, connect=policy.request * 0.8, sock_connect=policy.connect),
                cookie_jar=aiohttp.DummyCookieJar(),
                skip_auto_headers=_SKIP,
                auto_decompress=False,
            )
        return self._session

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
        assert repeat or method not in _RESENT_BY_AIOHTTP, "such a write goes into a batch"
        credential, policy, clock = self.account.credential, self._policy, self._clock
        asked = query or {}
        url = URL(self.account.url(path, asked), encoded=True)
        signed = self.account.path + path
        session, started = self._open(), clock.monotonic()
        doubtful, renewed, attempt = False, False, 0
        while True:
            attempt += 1
            send = {"x-ms-version": VERSION, **(headers or {})}
            await credential.authorize(method, signed, asked, send, len(body))
            self.transactions[name] += 1
            wait: float | None = None
            # Each try has its own moments: a retry must not widen the bounds of the service's time that a write's answer proves.
            sent = self._elapsed()
            data = RequestBody(body) if body else None
            try:
                async with session.request(method, url, data=data, headers=send, allow_redirects=False) as reply:
                    content = await reply.read()
                    received = self._elapsed()
                    self.bytes_read += len(content)
            except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
                failed = type(error).__name__
            except (TimeoutError, aiohttp.ClientError, OSError) as error:
                failed = type(error).__name__
                if data is None or data.handed_over:
                    if not repeat:
                        _unknown(failed)
                    doubtful = True
            else:
                status = reply.status
                if status == 401 and not renewed and credential.refused():
                    renewed = True
                    continue
                if status not in (408, 429) and status < 500:
                    return HttpAnswer(status, reply.headers, content, doubtful, sent, received)
                failed = f"status {status}"
                if status != 429:
                    if not repeat:
                        _unknown(failed, self._asked_wait(reply.headers))
                    doubtful = True
                wait = self._asked_wait(reply.headers)
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
        """Close the session and the credential."""
        if self._session is not None:
            await self._session.close()
        await self.account.credential.close()


def _unknown(failed: str, retry_after: float | None = None) -> NoReturn:
    lost = OutcomeUnknown(f"the write's answer is lost: {failed}")
    lost.retry_after = retry_after
    raise lost from None
