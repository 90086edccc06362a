"""Shared by both clients: turn a call into a request of httpx, and httpx's answers and errors into those of `exchange`."""

from __future__ import annotations

import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from typing import Any, Final

import httpx

from ..core.answered_hosts import is_loopback
from ..core.version import recorded_version
from .exchange import ApiCall, ApiReply, ConnectionFailure

_KEY = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

SLOW = 180.0
"""Seconds that the answer to a batch may take: longer than the host lets a call run."""

ALLOW_PLAIN_HTTP: Final = "TOCSIN_ALLOW_PLAIN_HTTP"
"""The environment variable that allows keys to travel over plain http to other machines: 1, true, yes or on."""


OF_NO_TENANT: Final = frozenset({"key", "storage", "tenant-overview", "tenants", "work"})
"""First parts of the paths of operations that do not act for a tenant, or name it in their path: they refuse `?tenant=`."""


class BadUrl(ValueError):
    """The address of the app cannot be used."""


class BadKey(ValueError):
    """The key is malformed. The message does not show it."""


class PlainHttpRefused(BadUrl):
    """The key would travel unencrypted to another machine."""


def api_base(url: str) -> str:
    """Return the address of the API under the app's address. Raises `BadUrl` for a malformed address."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        # httpx's message may repeat a password.
        raise BadUrl("the url is malformed: check its host and port, as in https://app.example") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise BadUrl("the url must start with https:// (or http://) and name a host, as in https://app.example")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise BadUrl("the url must not contain a user, query or fragment")
    return f"{str(parsed).rstrip('/')}/api/v1/"


def client_options(url: str, key: str, timeout: float, *, transport: object = None, allow_plain_http: bool | None = None) -> dict[str, Any]:
    """Return the arguments of httpx's client, except for its transport. Raises `BadUrl` and `BadKey`; no message shows the key.

    Plain http to another machine is refused with `PlainHttpRefused`, unless `allow_plain_http` or, if that is None, the environment
    variable allows it. A transport that is not one of httpx's own for networks decides itself how a request travels.
    """
    if not _KEY.fullmatch(key):
        raise BadKey("the key is malformed: a key has 8 to 200 letters, digits and . _ ~ + / -")
    base = api_base(url)
    parsed = httpx.URL(base)
    plain, local = parsed.scheme == "http", is_loopback(parsed.host)
    networked = transport is None or isinstance(transport, httpx.HTTPTransport | httpx.AsyncHTTPTransport)
    allowed = plain_http_is_allowed(os.environ) if allow_plain_http is None else allow_plain_http
    if plain and networked and not local and not allowed:
        text = f"the url http://{parsed.netloc.decode()} would send the key unencrypted to another machine; use https://"
        raise PlainHttpRefused(f"{text}, or allow it with allow_plain_http=True or {ALLOW_PLAIN_HTTP}=1")
    return {
        "base_url": base,
        # A proxy of the environment is another machine.
        "mounts": {"http://": None} if plain and local else None,
        "headers": {"authorization": f"Bearer {key}", "user-agent": f"tocsin-python/{recorded_version()}", "accept": "application/json"},
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        # Following a redirect would send the key to another host.
        "follow_redirects": False,
    }


def plain_http_is_allowed(environment: Mapping[str, str]) -> bool:
    """Return true if the environment allows plain http to other machines."""
    return environment.get(ALLOW_PLAIN_HTTP, "").strip().lower() in ("1", "true", "yes", "on")


def httpx_request(call: ApiCall[Any], tenant: str | None) -> dict[str, Any]:
    """Return the arguments of httpx's `request` for a call."""
    left_out = tenant is None or call.path.strip("/").partition("/")[0] in OF_NO_TENANT
    query = dict(call.query) if left_out else {**call.query, "tenant": tenant}
    headers = {**call.headers, "content-type": call.media} if call.body else dict(call.headers)
    timeout = SLOW if call.slow else call.timeout
    more = {"timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0))} if timeout is not None else {}
    return {"method": call.method, "url": call.path, "params": query or None, "content": call.body or None, "headers": headers, **more}


def to_reply(response: httpx.Response) -> ApiReply:
    """Return httpx's answer as a reply of the API."""
    headers: Mapping[str, str] = response.headers
    return ApiReply(response.status_code, headers, response.content)


def to_failure(error: httpx.TransportError) -> ConnectionFailure:
    """Return httpx's error as a connection failure. Its message names hosts and system errors, never headers."""
    sent = not isinstance(error, _UNSENT)
    what = "no connection to" if not sent else "no answer in time from" if isinstance(error, httpx.TimeoutException) else "no answer from"
    why = f"{what}{_address(error)}: {error}" if str(error) else f"{what}{_address(error)}"
    return ConnectionFailure(sent, why, error, lasting=any(map(_is_lasting, _causes(error))))


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_lasting(error: BaseException) -> bool:
    unknown = isinstance(error, socket.gaierror) and error.errno != socket.EAI_AGAIN
    return unknown or isinstance(error, ssl.SSLError)


def _address(error: httpx.TransportError) -> str:
    try:
        url = error.request.url
    except RuntimeError:  # the error came before a request was made
        return " the app"
    return f" {url.copy_with(query=None)}"
