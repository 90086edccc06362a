"""The identity endpoint of App Service: gives tokens of the identities that are attached to the app.

Protocol: GET {IDENTITY_ENDPOINT}?resource=..&api-version=2019-08-01&client_id=.. with the header X-IDENTITY-HEADER, whose value only the
app's own processes know. The answer is JSON with `access_token` and `expires_on` (seconds since 1970).
"""

from __future__ import annotations

import asyncio
import re
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import orjson

from ...core.clock import Millis
from ...core.http_exchange import TransportFailure, exchange
from .audiences import token_fault

API_VERSION: Final = "2019-08-01"
TIMEOUT: Final = 5.0
"""Seconds for one request to the endpoint, which runs on the same machine."""
MOST_REQUESTS: Final = 4
"""Requests to the endpoint at a time. They have threads of their own: an endpoint that hangs delays nothing but deliveries with tokens."""
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
