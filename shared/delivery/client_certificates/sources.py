"""The operator's list of client certificates (`TOCSIN_CLIENT_CERTIFICATES`), and reading them from where they are kept.

A certificate is kept in a Key Vault, as a certificate or as a secret; in a file; or in a variable of the environment. The list says which
tenant may use which: a channel names a certificate of its tenant, never a place, so no tenant can read another's, or any other secret.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
from collections.abc import Awaitable, Callable, Container, Mapping
from pathlib import Path

from ...core.errors import TocsinError, UnsafeSettings
from ...core.http_exchange import HttpReply, TransportFailure, exchange
from ...core.settings import Settings
from ..identity_tokens import NoIdentityToken, TokenSource
from ..listed_tenants import TenantIdentity, check_listed

SCOPE = "https://vault.azure.net/.default"
MAX_BYTES = 128 * 1024
"""Bytes of a certificate with its key and chain, as it is kept. A vault holds 25 KB."""
TIMEOUT = 10.0
"""Time limit of a request to the vault in seconds."""

type ReadSource = Callable[[str], Awaitable[str]]
"""Reads a certificate from where it is kept. Raises CertificateFault."""

_VAULT = r"https://[a-z0-9](?:[a-z0-9-]*[a-z0-9])?\.vault(?:\.azure\.net|\.usgovcloudapi\.net|\.azure\.cn)"
_SECRET = re.compile(rf"({_VAULT})/(?:secrets|certificates)/([0-9A-Za-z-]{{1,127}})", re.IGNORECASE)
_ENTRY = re.compile(r"([a-z0-9@-]{1,57})/([a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?)=(.+)")
_NAMES = re.compile(r"[a-z0-9@-]{1,57}/[a-z0-9-]{1,40}(?==)")
_LOCAL = re.compile(r"file:.+|env:[A-Za-z_][A-Za-z0-9_]*")


class CertificateFault(TocsinError):
    """Raised if there is no usable certificate. The message says why, and holds nothing of what was read."""


def parse_certificates(settings: Settings) -> Mapping[tuple[str, str], str]:
    """Return where each certificate is kept, by tenant, as the entry names it, and name. UnsafeSettings for an entry that is none."""
    found: dict[tuple[str, str], str] = {}
    for text in settings.client_certificates.split(","):
        if not text.strip():
            continue
        entry = _ENTRY.fullmatch(text.strip())
        # Without its value, in which someone may have put the certificate itself.
        names = _NAMES.match(text.strip())
        shown = names[0] if names else "an entry"
        if entry is None:
            raise UnsafeSettings(
                f"TOCSIN_CLIENT_CERTIFICATES: {shown} is not an entry such as "
                "shop@0123456789abcdef/bank=https://V.vault.azure.net/secrets/S"
            )
        tenant, name, source = entry.groups()
        check_listed(settings, "TOCSIN_CLIENT_CERTIFICATES", tenant)
        if not _SECRET.fullmatch(source) and not _LOCAL.fullmatch(source):
            raise UnsafeSettings(
                f"TOCSIN_CLIENT_CERTIFICATES: {shown} must be kept at https://V.vault.azure.net/secrets/S, file:/PATH or env:NAME"
            )
        if (tenant, name) in found:
            raise UnsafeSettings(f"TOCSIN_CLIENT_CERTIFICATES: {shown} is given twice")
        found[tenant, name] = source
    return found


def find_listed(certificates: Container[tuple[str, str]], tenant: TenantIdentity, name: str) -> tuple[str, str] | None:
    """Return the tenant and name by which a tenant's certificate is listed, or None."""
    return next(((each, name) for each in tenant.listed if (each, name) in certificates), None)


def reader(tokens: TokenSource) -> ReadSource:
    """Return a function that reads certificates. tokens: of the app's identity, for `SCOPE`."""

    async def read(source: str) -> str:
        if (found := _SECRET.fullmatch(source)) is not None:
            try:
                async with asyncio.timeout(TIMEOUT):
                    token = await tokens.get()
            except (NoIdentityToken, TimeoutError) as error:
                raise CertificateFault(f"no token for the vault ({type(error).__name__})") from None
            return await asyncio.to_thread(_from_vault, f"{found[1].lower()}/secrets/{found[2]}", token)
        kind, _, place = source.partition(":")
        return await asyncio.to_thread(_from_file, place) if kind == "file" else _from_environment(place)

    return read


def _from_vault(url: str, token: str) -> str:
    # The newest version: a source names none, so that renewals are found.
    reply = exchange("GET", f"{url}?api-version=7.4", headers={"Authorization": f"Bearer {token}"}, timeout=TIMEOUT, largest=2 * MAX_BYTES)
    return secret_of(reply)


def secret_of(reply: HttpReply | TransportFailure) -> str:
    """Return the value of a secret in the vault's answer. Raises CertificateFault."""
    if isinstance(reply, TransportFailure):
        raise CertificateFault("the vault does not answer in time" if reply.timed_out else "the vault cannot be reached")
    if reply.status in (401, 403):
        raise CertificateFault(f"the vault answered {reply.status}: the identity lacks the role Key Vault Secrets User, or it is disabled")
    if reply.status == 404:
        raise CertificateFault("the vault has no such certificate or secret")
    if reply.status != 200:
        raise CertificateFault(f"the vault answered {reply.status}")
    try:
        value = json.loads(reply.body)["value"]
    except (ValueError, KeyError, TypeError):
        value = None
    if not isinstance(value, str):
        raise CertificateFault("the vault's answer has no value")
    return value


def _from_file(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise CertificateFault(f"its file cannot be read: {error.strerror}") from None
    if len(data) > MAX_BYTES:
        raise CertificateFault(f"its file has more than {MAX_BYTES} bytes")
    if b"-----BEGIN " in data:
        return data.decode("latin-1")
    return base64.b64encode(data).decode()


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if not value:
        raise CertificateFault(f"the variable {name} is not set")
    return value
