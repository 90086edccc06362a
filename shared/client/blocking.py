"""`Client`: the blocking client. Threads may share one."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from ..core.clock import steady
from . import http
from .exchange import RetrySettings
from .locking.blocking import Lock
from .operations.blocking import Operations


class Client(Operations):
    """The API of one Tocsin app, for one key.

    ::

        with Client("https://app.example", key) as tocsin:
            event = tocsin.schedule({"order": 17}, delay=timedelta(days=30))
            tocsin.cancel(event.id)

    `tenant`: tenant to act for, needed with an admin key. `timeout`: longest time without a byte, in seconds. `retries`: largest number of
    retries of a call that is safe to repeat. `transport`: transport of httpx, for proxies, own certificates and tests. `sleep`, `clock`:
    for pauses between tries and for locks, in tests. `allow_plain_http`: True lets the key travel over plain http:// to another machine,
    False forbids it; None follows TOCSIN_ALLOW_PLAIN_HTTP, which is off by default. Every operation raises the errors of
    `tocsin.client.errors`, and ValueError and TypeError for arguments that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        transport: httpx.BaseTransport | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = steady,
        allow_plain_http: bool | None = None,
    ) -> None:
        """Raises ValueError for an address or key that cannot be used."""
        options = http.client_options(url, key, timeout, transport=transport, allow_plain_http=allow_plain_http)
        super().__init__(
            httpx.Client(**options, transport=transport),
            tenant,
            RetrySettings(retries),
            pause=sleep,
            new_lock=lambda make, on_lost: Lock(make, self._run, on_lost, clock),
        )
