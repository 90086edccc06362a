"""The client certificates in use, as settings of TLS. They are read when first needed and again every five minutes of use."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...core.clock import Clock, Millis, to_text
from ...core.http1.pool import new_tls
from ...core.settings import Settings
from ..identity_tokens import IdentityTokens, TokenSource
from ..listed_tenants import TenantIdentity
from .bundle import load_bundle, parse_bundle
from .sources import SCOPE, CertificateFault, ReadSource, find_listed, parse_certificates, reader

RENEWED_AFTER = 300.0
"""Seconds after which a certificate in use is read again: a renewal in the vault takes this long to be used."""
RETRIED_AFTER = 15.0
"""Seconds after a failed read until the next one."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Kept:
    """One certificate of one tenant."""

    context: ssl.SSLContext | None = None
    digest: bytes = b""
    not_before: Millis = 0
    not_after: Millis = 0
    fault: str = ""
    read_at: float = float("-inf")
    """Monotonic time from which on it is to be read."""
    reading: asyncio.Task[None] | None = None

    def is_valid(self, now: Millis) -> bool:
        """Return True if there is a certificate that is valid now."""
        return self.context is not None and self.not_before <= now < self.not_after


class ClientCertificates:
    """Gives channels the certificate that their tenant may use. Belongs to one event loop.

    sources: where each is kept, as `parse_certificates` returns it. Two tenants never share settings of TLS, and so no connection, even if
    they have the same certificate.
    """

    def __init__(
        self,
        sources: Mapping[tuple[str, str], str],
        clock: Clock,
        read: ReadSource,
        *,
        tokens: TokenSource | None = None,
        context: Callable[[], ssl.SSLContext] = new_tls,
    ) -> None:
        """tokens: closed with it. context: makes settings of TLS without a certificate; tests replace it."""
        self._sources, self._clock, self._read, self._tokens, self._context = sources, clock, read, tokens, context
        self._kept: dict[tuple[str, str], _Kept] = {}

    @classmethod
    def from_settings(cls, settings: Settings, clock: Clock) -> ClientCertificates:
        """Return the certificates that the operator has listed. UnsafeSettings for a list that is none."""
        tokens = IdentityTokens(SCOPE, settings.client_id, clock)
        return cls(parse_certificates(settings), clock, reader(tokens), tokens=tokens)

    async def tls(self, tenant: TenantIdentity, name: str) -> ssl.SSLContext:
        """Return settings of TLS with the tenant's certificate. The same ones until it is renewed. Raises CertificateFault."""
        listed = find_listed(self._sources, tenant, name)
        if listed is None:
            raise CertificateFault("the operator has not listed it for this tenant")
        kept = self._kept.setdefault(listed, _Kept())
        if (kept.reading is None or kept.reading.done()) and self._clock.monotonic() >= kept.read_at:
            kept.reading = asyncio.get_running_loop().create_task(self._renew(tenant.name, name, self._sources[listed], kept))
        if kept.reading is not None and not kept.is_valid(self._clock.now()):
            # Shielded: a cancelled delivery must not end the read for the others.
            await asyncio.shield(kept.reading)
        if kept.context is None:
            raise CertificateFault(kept.fault)
        now = self._clock.now()
        if now >= kept.not_after:
            raise CertificateFault(f"it expired at {to_text(kept.not_after)}")
        if now < kept.not_before:
            raise CertificateFault(f"it is not valid before {to_text(kept.not_before)}")
        return kept.context

    async def _renew(self, tenant: str, name: str, source: str, kept: _Kept) -> None:
        pause = RETRIED_AFTER
        try:
            text = await self._read(source)
            digest = hashlib.sha256(text.encode(errors="replace")).digest()
            if kept.context is None or digest != kept.digest:
                context, not_before, not_after = await asyncio.to_thread(self._make, text)
                now = self._clock.now()
                # One that is valid later does not replace one that is valid now. Connections are kept apart by these settings, so from
                # here on no request uses a connection with the former certificate.
                if now >= not_before or not kept.is_valid(now):
                    kept.context, kept.digest, kept.not_before, kept.not_after = context, digest, not_before, not_after
            kept.fault, pause = "", RENEWED_AFTER
        except CertificateFault as error:
            kept.fault = str(error)
            extra = {"action": "client_certificate_unread", "tenant": tenant, "certificate": name}
            log.warning("The client certificate %s of %s could not be read: %s", name, tenant, error, extra=extra)
        except Exception as error:
            kept.fault = f"it could not be read ({type(error).__name__})"
            extra = {"action": "client_certificate_unread", "tenant": tenant, "certificate": name}
            log.warning("The client certificate %s of %s: %s", name, tenant, kept.fault, extra=extra)
        finally:
            kept.read_at = self._clock.monotonic() + pause

    def _make(self, text: str) -> tuple[ssl.SSLContext, Millis, Millis]:
        bundle = parse_bundle(text)
        context = self._context()
        load_bundle(context, bundle)
        return context, bundle.not_before, bundle.not_after

    async def close(self) -> None:
        """Stop reads and release connections. Certificates are read again when needed."""
        reading = [kept.reading for kept in self._kept.values() if kept.reading is not None]
        self._kept.clear()
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        if self._tokens is not None:
            await self._tokens.close()
