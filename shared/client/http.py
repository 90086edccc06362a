"""What both shells share: the request of a call in httpx's terms, and what its answers and errors mean."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import httpx

from .exchange import Call, Failure, Reply

_KEY = re.compile(r"[A-Za-z0-9._~+/-]{8,200}=*")
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)

SLOW = 180.0
"""Seconds that a batch's answer may take: longer than a host lets any call run."""


def base(url: str) -> str:
    """Where the API is under the app's address. ValueError for what is no address."""
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL:
        # Its own words repeat what may be a password.
        raise ValueError("the url is no address: check its host and port") from None
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise ValueError("the url must start with https:// (or http://) and name a host")
    if parsed.userinfo or parsed.query or parsed.fragment:
        raise ValueError("the url must hold no user, query or fragment")
    return f"{str(parsed).rstrip('/')}/api/v1/"


def options(url: str, key: str, timeout: float) -> dict[str, Any]:
    """What httpx's client is made with. ValueError for a malformed key, without the key in it."""
    if not _KEY.fullmatch(key):
        raise ValueError("not a key: 8 to 200 letters, digits and . _ ~ + / -")
    return {
        "base_url": base(url),
        "headers": {"authorization": f"Bearer {key}", "user-agent": f"tocsin-python/{_version()}", "accept": "application/json"},
        "timeout": httpx.Timeout(timeout, connect=min(timeout, 10.0)),
        # A redirect would take the key to another host.
        "follow_redirects": False,
    }


def request(call: Call[Any], tenant: str | None) -> dict[str, Any]:
    """The request, as httpx takes it."""
    query = dict(call.query) if tenant is None else {**call.query, "tenant": tenant}
    headers = {**call.headers, "content-type": call.media} if call.body else dict(call.headers)
    more = {"timeout": httpx.Timeout(SLOW, connect=10.0)} if call.slow else {}
    return {"method": call.method, "url": call.path, "params": query or None, "content": call.body or None, "headers": headers, **more}


def reply(response: httpx.Response) -> Reply:
    """The answer."""
    headers: Mapping[str, str] = response.headers
    return Reply(response.status_code, headers, response.content)


def failure(error: httpx.TransportError) -> Failure:
    """What an error of the connection means. Its own words name hosts and system errors, never headers."""
    sent = not isinstance(error, _UNSENT)
    what = "no answer in time" if isinstance(error, httpx.TimeoutException) else "no answer" if sent else "not reached"
    return Failure(sent, f"{what}: {error}" if str(error) else what, error)


def _version() -> str:
    try:
        return version("tocsin")
    except PackageNotFoundError:
        return "0"
