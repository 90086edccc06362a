"""Shared by both clients: turn a call into a request of httpx, and httpx's answers and errors into those of `exchange`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx

from .exchange import ApiCall, ApiReply, ConnectionFailure

_KEY = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

SLOW = 180.0
"""Seconds that the answer to a batch may take: longer than the host lets a call run."""


def api_base(url: str) -> str:
    """Return the address of the API under the app's address. Raises ValueError for a malformed address."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        # httpx's message may repeat a password.
        raise ValueError("the url is malformed: check its host and port, as in https://app.example") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the url must start with https:// (or http://) and name a host, as in https://app.example")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ValueError("the url must not contain a user, query or fragment")
    return f"{str(parsed).rstrip('/')}/api/v1/"


def client_options(url: str, key: str, timeout: float) -> dict[str, Any]:
    """Return the arguments of httpx's client. Raises ValueError for a malformed address or key; the message does not show the key."""
    if not _KEY.fullmatch(key):
        raise ValueError("the key is malformed: a key has 8 to 200 letters, digits and . _ ~ + / -")
    return {
        "base_url": api_base(url),
        "headers": {"authorization": f"Bearer {key}", "user-agent": f"tocsin-python/{_version()}", "accept": "application/json"},
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        # Following a redirect would send the key to another host.
        "follow_redirects": False,
    }


def httpx_request(call: ApiCall[Any], tenant: str | None) -> dict[str, Any]:
    """Return the arguments of httpx's `request` for a call."""
    query = dict(call.query) if tenant is None else {**call.query, "tenant": tenant}
    headers = {**call.headers, "content-type": call.media} if call.body else dict(call.headers)
    more = {"timeout": httpx.Timeout(SLOW, connect=10.0)} if call.slow else {}
    return {"method": call.method, "url": call.path, "params": query or None, "content": call.body or None, "headers": headers, **more}


def to_reply(response: httpx.Response) -> ApiReply:
    """Return httpx's answer as a reply of the API."""
    headers: Mapping[str, str] = response.headers
    return ApiReply(response.status_code, headers, response.content)


def to_failure(error: httpx.TransportError) -> ConnectionFailure:
    """Return httpx's error as a connection failure. Its message names hosts and system errors, never headers."""
    sent = not isinstance(error, _UNSENT)
    what = "no answer in time" if isinstance(error, httpx.TimeoutException) else "no answer" if sent else "no connection"
    return ConnectionFailure(sent, f"{what}: {error}" if str(error) else what, error)


def _version() -> str:
    try:
        return version("tocsin")
    except PackageNotFoundError:
        return "0"
