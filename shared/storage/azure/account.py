"""The endpoints of a storage account, and the credentials that authorize requests to it.

The settings give one of three credentials: an account key (connection string), a shared access signature (connection string),
or an identity (endpoint addresses; azure-identity provides the tokens). Signing follows the service's documented schemes.
Source: "Authorize with Shared Key" in the Azure Storage REST reference.

Nothing here puts a key, signature or token into an exception or a repr.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import time
from collections.abc import Mapping
from email.utils import formatdate
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Protocol
from urllib.parse import urlsplit

from ...core.errors import Unavailable, UnsafeSettings
from ...core.setting_names import CONNECTION, MIRROR
from .wire import percent

if TYPE_CHECKING:
    from azure.core.credentials_async import AsyncTokenCredential

    from ...core.settings import Settings

type Service = Literal["table", "queue"]

VERSION = "2020-12-06"
"""The first REST version whose tables take tokens; queues know it too."""

_SCOPE = "https://storage.azure.com/.default"
_DEV_ACCOUNT = "devstoreaccount1"
# The emulator's published key, no secret.
_DEV_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
# Azure keeps idle connections for a minute or more, Azurite for 5 s.
_IDLE, _IDLE_EMULATOR = 60.0, 4.0
_DEV_PORT: Mapping[Service, int] = {"table": 10002, "queue": 10001}


@lru_cache(4)
def http_date(second: int) -> str:
    """An HTTP date. second: seconds since 1970."""
    return formatdate(second, usegmt=True)


class Credential(Protocol):
    """Authorizes requests."""

    suffix: str
    """The text added to every query string (a shared access signature), without `?` or `&`; empty for other credentials."""

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        """Add the authorization to `headers`. `path` is percent-encoded, `query` is not, `size` is the body's length in bytes."""

    def refused(self) -> bool:
        """Discard what is cached, after the service answered 401. Return True when another try may succeed."""

    async def close(self) -> None:
        """Release connections."""


class SharedKey:
    """Signs with the account's key: SharedKeyLite for tables (no header but the date counts), SharedKey for queues."""

    suffix = ""

    def __init__(self, service: Service, account: str, key: str, setting: str = CONNECTION) -> None:
        self._service, self._account = service, account
        try:
            self._key = base64.b64decode(key, validate=True)
        except binascii.Error:
            raise UnsafeSettings(f"{setting}: AccountKey is not base64") from None

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        date = headers["x-ms-date"] = http_date(int(time.time()))
        resource = f"/{self._account}{path}"
        if self._service == "table":
            # The scheme signs only `comp` of the query, and no request here has it.
            text, scheme = f"{date}\n{resource}", "SharedKeyLite"
        else:
            own = "".join(f"{name}:{value}\n" for name, value in sorted(headers.items()) if name.startswith("x-ms-"))
            asked = "".join(f"\n{name}:{value}" for name, value in sorted(query.items()))
            kind = headers.get("Content-Type", "")
            text, scheme = f"{method}\n\n\n{size or ''}\n\n{kind}\n\n\n\n\n\n\n{own}{resource}{asked}", "SharedKey"
        digest = hmac.digest(self._key, text.encode(), hashlib.sha256)
        headers["Authorization"] = f"{scheme} {self._account}:{base64.b64encode(digest).decode()}"

    def refused(self) -> bool:
        return False

    async def close(self) -> None:
        pass


class Signature:
    """A shared access signature from a connection string, sent in the query string."""

    def __init__(self, text: str) -> None:
        self.suffix = text.lstrip("?")

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        headers["x-ms-date"] = http_date(int(time.time()))

    def refused(self) -> bool:
        return False

    async def close(self) -> None:
        pass


class Identity:
    """Bearer tokens of an azure-identity credential, kept until five minutes before they end."""

    suffix = ""
    _early = 300

    def __init__(self, credential: AsyncTokenCredential) -> None:
        self._credential = credential
        self._token, self._until = "", 0
        self._lock = asyncio.Lock()

    async def authorize(self, method: str, path: str, query: Mapping[str, str], headers: dict[str, str], size: int) -> None:
        now = int(time.time())
        if now >= self._until:
            async with self._lock:
                if now >= self._until:
                    await self._renew()
        headers["x-ms-date"] = http_date(now)
        headers["Authorization"] = self._token

    async def _renew(self) -> None:
        # Imported late, like the credentials: a start with a connection string need not wait for it.
        from azure.core.exceptions import AzureError

        try:
            found = await self._credential.get_token(_SCOPE)
        except AzureError as error:
            # The error's text can quote the request to the identity endpoint.
            raise Unavailable(f"no token for the storage account: {type(error).__name__}") from None
        # A token with less than ten minutes left is used for half of what it has, so that renewing cannot spin.
        left = found.expires_on - int(time.time())
        self._token, self._until = f"Bearer {found.token}", found.expires_on - min(self._early, left // 2)

    def refused(self) -> bool:
        self._until = 0
        return True

    async def close(self) -> None:
        await self._credential.close()


class Account:
    """One endpoint. `base` is its address without a trailing slash; `path` is the part of it after the host."""

    __slots__ = ("base", "credential", "idle_seconds", "path")

    def __init__(self, base: str, credential: Credential) -> None:
        self.base = base.rstrip("/")
        self.path = urlsplit(self.base).path
        self.credential = credential
        # Only emulators have the account's name in the path, or are spoken to without encryption.
        emulated = bool(self.path) or not self.base.startswith("https:")
        self.idle_seconds = _IDLE_EMULATOR if emulated else _IDLE
        """Seconds for which an unused connection is kept."""

    def url(self, path: str, query: Mapping[str, str]) -> str:
        """Return the address of a request. `path` is percent-encoded, `query` is not."""
        return self.base + self._tail(path, query)

    def target(self, path: str, query: Mapping[str, str]) -> str:
        """Return the part of `url` that follows the host."""
        return self.path + self._tail(path, query)

    def _tail(self, path: str, query: Mapping[str, str]) -> str:
        text = "&".join([f"{name}={percent(value)}" for name, value in query.items()])
        if suffix := self.credential.suffix:
            text = f"{text}&{suffix}" if text else suffix
        return f"{path}?{text}" if text else path


def from_connection_string(service: Service, text: str, setting: str = CONNECTION) -> Account:
    """Return the account that a connection string names. `setting` is the setting that holds the string.

    Raises `UnsafeSettings` when the string lacks an address or a key, or would send a signature unencrypted. The message omits the string.
    """
    pairs = (part.strip().partition("=") for part in text.split(";") if part.strip())
    parts = {name.lower(): value for name, _, value in pairs}
    name, key, signature = parts.get("accountname"), parts.get("accountkey"), parts.get("sharedaccesssignature")
    base = parts.get(f"{service}endpoint")
    if parts.get("usedevelopmentstorage", "").lower() == "true":
        name, key = _DEV_ACCOUNT, _DEV_KEY
        base = base or f"http://127.0.0.1:{_DEV_PORT[service]}/{_DEV_ACCOUNT}"
    if base is None and name is not None:
        scheme = parts.get("defaultendpointsprotocol", "https")
        base = f"{scheme}://{name}.{service}.{parts.get('endpointsuffix', 'core.windows.net')}"
    if base is None or urlsplit(base).scheme not in ("http", "https"):
        raise UnsafeSettings(f"{setting}: the connection string has neither AccountName nor a usable {service.capitalize()}Endpoint")
    if key is not None and name is not None:
        return Account(base, SharedKey(service, name, key, setting))
    if signature is not None:
        _encrypted(base, setting)
        return Account(base, Signature(signature))
    raise UnsafeSettings(f"{setting}: the connection string has neither AccountName and AccountKey nor SharedAccessSignature")


def from_settings(service: Service, settings: Settings) -> Account:
    """Return the account of the settings: the connection string's, or the service's address with the app's identity."""
    if settings.storage is not None:
        return from_connection_string(service, settings.storage.get_secret_value())
    base = settings.table_uri if service == "table" else settings.queue_uri
    if base is None:
        raise UnsafeSettings(f"no storage: set {CONNECTION} or {CONNECTION}__{service}ServiceUri")
    return _with_identity(base, settings.client_id, CONNECTION)


def queue_address(settings: Settings) -> str:
    """Return the address of the home account's queues; it holds no secret. Raises `UnsafeSettings`."""
    if settings.storage is not None:
        return from_connection_string("queue", settings.storage.get_secret_value()).base
    return settings.queue_uri or ""


def second_from_settings(service: Service, settings: Settings) -> Account:
    """Return the second account of the mirrored pair. Raises `UnsafeSettings`."""
    if settings.mirror is not None:
        return from_connection_string(service, settings.mirror.get_secret_value(), MIRROR)
    base = settings.mirror_table_uri if service == "table" else settings.mirror_queue_uri
    if base is None:
        raise UnsafeSettings(f"no second account: set {MIRROR} or {MIRROR}__{service}ServiceUri")
    return _with_identity(base, settings.mirror_client_id or settings.client_id, MIRROR)


def further(service: Service, text: str, settings: Settings, setting: str) -> Account:
    """Return one of a list of accounts: by a connection string, or by an account's name with the app's identity."""
    if "=" in text:
        return from_connection_string(service, text, setting)
    # The same cloud as the home account's.
    home = urlsplit(settings.table_uri or "").hostname or ""
    suffix = home.partition(".table.")[2] or "core.windows.net"
    return _with_identity(f"https://{text}.{service}.{suffix}", settings.client_id, setting)


def _with_identity(base: str, client_id: str | None, setting: str) -> Account:
    _encrypted(base, setting)
    from azure.identity.aio import DefaultAzureCredential, ManagedIdentityCredential

    if client_id is not None:
        return Account(base, Identity(ManagedIdentityCredential(client_id=client_id)))
    return Account(base, Identity(DefaultAzureCredential()))


def _encrypted(base: str, setting: str = CONNECTION) -> None:
    if urlsplit(base).scheme != "https":
        raise UnsafeSettings(f"{setting}: tokens and signatures travel over https only")
