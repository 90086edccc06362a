"""Bearer tokens of the app's identity for requests of channels."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from ..core.clock import Clock, Millis
from ..core.errors import TocsinError

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

_EARLY: Millis = 300_000
_PAUSE: Millis = 5_000


class NoIdentityToken(TocsinError):
    """Raised if the app's identity got no token. The message is the type of the identity library's error."""


class TokenSource(Protocol):
    """Gives tokens for one audience."""

    async def get(self) -> str:
        """Return a token that is valid now. Raises NoIdentityToken."""

    def refused(self) -> None:
        """Note that the present token was refused, so that the next `get` asks for another one."""

    async def close(self) -> None:
        """Release connections."""


class IdentityTokens:
    """Tokens of the app's identity for one scope, kept until five minutes before they end. Belongs to one event loop.

    Callers share one request. While it fails, a token that is still valid is used further, and the endpoint is asked every five seconds.
    """

    def __init__(self, scope: str, client_id: str | None, clock: Clock, credential: AsyncTokenCredential | None = None) -> None:
        """credential: replaces that of the app's identity in tests."""
        self._scope, self._client_id, self._clock, self._credential = scope, client_id, clock, credential
        self._token = ""
        self._renew_at: Millis = 0
        self._ends: Millis = 0
        self._request: asyncio.Task[None] | None = None

    async def get(self) -> str:
        """See `TokenSource`."""
        if self._clock.now() >= self._renew_at:
            if self._request is None or self._request.done():
                self._request = asyncio.get_running_loop().create_task(self._renew())
                self._request.add_done_callback(_look)
            # Shielded: a cancelled delivery must not take the token from the others.
            await asyncio.shield(self._request)
        return self._token

    def refused(self) -> None:
        """See `TokenSource`. A role that is granted meanwhile may be missing in the present token."""
        self._renew_at = min(self._renew_at, self._clock.now() + _PAUSE)

    async def _renew(self) -> None:
        # Imported here, because an app without such channels need not spend the time.
        from azure.core.exceptions import AzureError
        from azure.identity.aio import DefaultAzureCredential

        now = self._clock.now()
        try:
            if self._credential is None:
                self._credential = DefaultAzureCredential(managed_identity_client_id=self._client_id)
            found = await self._credential.get_token(self._scope)
        except (AzureError, OSError) as error:
            if now < self._ends:
                self._renew_at = now + _PAUSE
                return
            # The error's text can quote the request to the identity endpoint.
            raise NoIdentityToken(type(error).__name__) from None
        self._token, self._ends = found.token, found.expires_on * 1000
        # A token that ends soon is used for half of what it has left, so that renewing cannot spin.
        self._renew_at = self._ends - min(_EARLY, max(0, self._ends - now) // 2)

    async def close(self) -> None:
        """See `TokenSource`."""
        request, self._request = self._request, None
        if request is not None:
            request.cancel()
            await asyncio.gather(request, return_exceptions=True)
        credential, self._credential = self._credential, None
        if credential is not None:
            await credential.close()


def _look(request: asyncio.Task[None]) -> None:
    # Every caller may have been cancelled; reading the failure keeps asyncio from reporting it as never retrieved.
    if not request.cancelled():
        request.exception()
