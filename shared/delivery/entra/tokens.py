"""Tokens of Entra, one for each audience: a process keeps them until shortly before they expire, and has one request at a time for each.

The tokens come from the identity endpoint of App Service, for an identity that is attached to the app. The request is
GET {IDENTITY_ENDPOINT}?resource=..&api-version=2019-08-01&client_id=.. with the header X-IDENTITY-HEADER, whose value only the app's own
processes know. The answer is JSON with `access_token` and `expires_on` (seconds since 1970).
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson

from ...core.clock import Clock, Millis
from ...core.http_exchange import TransportFailure, exchange
from ...core.settings import Settings
from .audiences import token_fault

log = logging.getLogger(__name__)


API_VERSION: Final = "2019-08-01"
TIMEOUT: Final = 5.0
"""Seconds for one request to the endpoint, which runs on the same machine."""
MOST_REQUESTS: Final = 4
"""Largest number of requests to the endpoint at a time. They have their own threads: if it hangs, only deliveries with tokens wait."""
MAX_ANSWER: Final = 64 * 1024
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
MAX_TOKEN: Final = 16 * 1024
"""Longest token in characters: many servers refuse longer headers."""


class NoToken(Exception):
    """Raised if there is no token. Its text is the cause, on one line and without secrets."""


class FetchedToken(NamedTuple):
    """A token. expires: milliseconds since 1970."""

    token: str
    expires: Millis


class IdentityEndpoint:
    """Asks for tokens of one user-assigned identity. `close` does not wait for requests in flight."""

    def __init__(self, url: str, header: str, client_id: str) -> None:
        """url, header: as in IDENTITY_ENDPOINT and IDENTITY_HEADER; empty where the app has no identity."""
        self._url, self._header, self._client_id = url, header, client_id
        self._threads: ThreadPoolExecutor | None = None

    async def fetch(self, audience: str) -> FetchedToken:
        """Return a new token. Raises `NoToken`."""
        if urlsplit(self._url).scheme not in ("http", "https") or not self._header:
            raise NoToken("this host has no identity endpoint (IDENTITY_ENDPOINT, IDENTITY_HEADER)")
        threads = self._threads = self._threads or ThreadPoolExecutor(MOST_REQUESTS, thread_name_prefix="entra-token")
        return await asyncio.get_running_loop().run_in_executor(threads, self._fetch, audience)

    def _fetch(self, audience: str) -> FetchedToken:
        query = urlencode({"resource": audience, "api-version": API_VERSION, "client_id": self._client_id})
        url = f"{self._url}{'&' if '?' in self._url else '?'}{query}"
        answer = exchange("GET", url, headers={"X-IDENTITY-HEADER": self._header}, timeout=TIMEOUT, largest=MAX_ANSWER)
        if isinstance(answer, TransportFailure):
            # The failure's own text could name the address.
            raise NoToken(f"the identity endpoint gave {f'no answer within {TIMEOUT:g} s' if answer.timed_out else 'no valid answer'}")
        if answer.status != 200:
            raise NoToken(f"the identity endpoint answered {answer.status}{_ADVICE if answer.status == 400 else ''}")
        return read_token(answer.body, audience, self._client_id)

    def close(self) -> None:
        """Release the threads. A later `fetch` makes new ones."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.shutdown(wait=False, cancel_futures=True)


_ADVICE = ": does this directory know the audience, and is the identity of TOCSIN_TOKEN_CLIENT_ID attached to the app?"


def read_token(body: bytes, audience: str, client_id: str) -> FetchedToken:
    """Return the token in the endpoint's answer. Raises `NoToken` if it must not be sent."""
    try:
        found = orjson.loads(body)
        token, expires = found["access_token"], int(found["expires_on"])
    except (ValueError, TypeError, KeyError):
        raise NoToken("the identity endpoint's answer cannot be read") from None
    if not isinstance(token, str) or len(token) > MAX_TOKEN or not _TOKEN.fullmatch(token):
        raise NoToken("the identity endpoint's token is no JWT that a header can carry")
    if (fault := token_fault(token, audience, client_id)) is not None:
        raise NoToken(f"the identity endpoint's token {fault}")
    return FetchedToken(token, expires * 1000)


MOST_TOKENS: Final = 256
"""Largest number of audiences whose tokens a process keeps. The least recently used one makes room."""
AHEAD: Final = 900.0
"""Seconds before its end at which a token is renewed, at most half of its lifetime; up to a quarter more or less, by chance."""
MARGIN: Final = 60.0
"""Seconds before its end from which a token is not sent any more: its receiver's clock may be ahead."""
QUIET: Final = 5.0
"""Seconds after a failure in which the endpoint is not asked again for the audience; up to a quarter more or less, by chance."""

type FetchToken = Callable[[str], Awaitable[FetchedToken]]
"""Returns a new token of an audience, or raises `NoToken`."""


@dataclass(slots=True)
class _Entry:
    """The token of one audience and its last failure. Times are monotonic seconds."""

    token: str = ""
    until: float = -math.inf
    renew_at: float = -math.inf
    quiet_until: float = -math.inf
    cause: str = ""
    """The text of the last failure."""
    flight: asyncio.Task[None] | None = None


class EntraTokens:
    """Tokens by audience. One per process; belongs to one event loop."""

    def __init__(
        self, fetch: FetchToken, clock: Clock, *, chance: Callable[[], float] = random.random, on_close: Callable[[], None] = lambda: None
    ) -> None:
        self._fetch, self._clock, self._chance, self._on_close = fetch, clock, chance, on_close
        self._entries: dict[str, _Entry] = {}
        self._flights: set[asyncio.Task[None]] = set()

    async def get(self, audience: str) -> str:
        """Return a token, from memory if there is one. Raises `NoToken`.

        A token that ends soon is renewed beside the deliveries that use it, and a failure then delays none of them. After a failure
        without a token, all callers get its cause at once for a few seconds.
        """
        entry, now = self._entry(audience), self._clock.monotonic()
        if now < entry.until:
            if now >= max(entry.renew_at, entry.quiet_until) and entry.flight is None:
                self._start(audience, entry)
            return entry.token
        if entry.flight is None:
            if now < entry.quiet_until:
                raise NoToken(entry.cause)
            self._start(audience, entry)
        assert entry.flight is not None
        # One caller that gives up does not take the answer from the others.
        await asyncio.wait((entry.flight,))
        if self._clock.monotonic() < entry.until:
            return entry.token
        raise NoToken(entry.cause or "the service is stopping")

    async def close(self) -> None:
        """Cancel the requests in flight."""
        flights = list(self._flights)
        for flight in flights:
            flight.cancel()
        await asyncio.gather(*flights, return_exceptions=True)
        self._on_close()

    def _entry(self, audience: str) -> _Entry:
        entry = self._entries.pop(audience, None)
        if entry is None:
            entry = _Entry()
            while len(self._entries) >= MOST_TOKENS:
                del self._entries[next(iter(self._entries))]
        self._entries[audience] = entry
        return entry

    def _start(self, audience: str, entry: _Entry) -> None:
        entry.flight = asyncio.ensure_future(self._renew(audience, entry))
        # The entry may make room for another one meanwhile.
        self._flights.add(entry.flight)
        entry.flight.add_done_callback(self._flights.discard)

    async def _renew(self, audience: str, entry: _Entry) -> None:
        try:
            found = await self._fetch(audience)
            self._keep(entry, found)
        except NoToken as error:
            self._fail(audience, entry, str(error))
        except Exception as error:
            self._fail(audience, entry, f"asking for it failed: {type(error).__name__}")
        finally:
            entry.flight = None

    def _keep(self, entry: _Entry, found: FetchedToken) -> None:
        now = self._clock.monotonic()
        left = (found.expires - self._clock.now()) / 1000
        if left <= 0:
            raise NoToken("the identity endpoint's token has expired")
        entry.token, entry.until = found.token, now + left - min(MARGIN, left / 2)
        entry.renew_at = now + left - min(AHEAD, left / 2) * self._spread()
        entry.quiet_until, entry.cause = -math.inf, ""

    def _fail(self, audience: str, entry: _Entry, cause: str) -> None:
        entry.cause, entry.quiet_until = cause, self._clock.monotonic() + QUIET * self._spread()
        log.warning("No token of Entra for %s: %s", audience, cause, extra={"action": "entra_token_failed", "audience": audience})

    def _spread(self) -> float:
        return 0.75 + self._chance() / 2


def open_tokens(settings: Settings, clock: Clock) -> EntraTokens | None:
    """Return the tokens of the second identity; None if the settings name none."""
    if settings.token_client_id is None:
        return None
    endpoint = IdentityEndpoint(settings.identity_endpoint, settings.identity_header.get_secret_value(), settings.token_client_id)
    return EntraTokens(endpoint.fetch, clock, on_close=endpoint.close)
