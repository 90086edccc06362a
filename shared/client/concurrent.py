"""`AsyncClient`: the operations of `Client`, awaited. An instance belongs to one event loop."""

from __future__ import annotations

import httpx

from ..core.clock import Clock, SystemClock
from . import http
from .exchange import RetrySettings
from .locking.concurrent import AsyncLock
from .operations.concurrent import AsyncOperations


class AsyncClient(AsyncOperations):
    """The API of one Tocsin app, for one key.

    ::

        async with AsyncClient("https://app.example", key) as tocsin:
            event = await tocsin.schedule({"order": 17}, delay=timedelta(days=30))
            await tocsin.cancel(event.id)

    `tenant`: tenant to act for, needed with an admin key. `timeout`: longest time without a byte, in seconds. `retries`: largest number of
    retries of a call that is safe to repeat. `transport`: transport of httpx, for proxies, own certificates and tests. `clock`: clock for
    pauses between tries, and for locks. `allow_plain_http`: True lets the key travel over plain http:// to another machine, False forbids
    it; None follows TOCSIN_ALLOW_PLAIN_HTTP, which is off by default. Every operation raises the errors of `tocsin.client.errors`, and
    ValueError and TypeError for arguments that cannot be sent.
    """

    def __init__(
        self,
        url: str,
        key: str,
        *,
        tenant: str | None = None,
        timeout: float = 30.0,
        retries: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
        allow_plain_http: bool | None = None,
    ) -> None:
        """Raises ValueError for an address or key that cannot be used."""
        options = http.client_options(url, key, timeout, transport=transport, allow_plain_http=allow_plain_http)
        used = clock or SystemClock()
        super().__init__(
            httpx.AsyncClient(**options, transport=transport),
            tenant,
            RetrySettings(retries),
            pause=used.sleep,
            new_lock=lambda make, on_lost: AsyncLock(make, self._run, on_lost, used),
        )
