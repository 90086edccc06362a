"""One HTTP exchange, bounded in time and size. It uses the standard library, so that the agent stays small.

Proxy settings of the environment are ignored: IMDS is link-local. A caller that wants a proxy names it.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Buffer, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

LARGEST = 8 * 1024 * 1024
"""Largest body that is accepted, in bytes. A document of 10,000 events has half of this."""


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An HTTP answer: any status, the whole body, header names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """No valid HTTP answer came. `timed_out` distinguishes a slow peer from one that cannot be reached."""

    reason: str
    timed_out: bool = False


@dataclass(frozen=True, slots=True)
class HttpProxy:
    """A proxy that opens tunnels to https addresses. authorization: its header `Proxy-Authorization`; '' for none."""

    host: str
    port: int
    authorization: str = field(default="", repr=False)


class _Watched(io.RawIOBase):
    """Reads a socket until a deadline. A socket's own timeout applies to each packet, so a peer could delay for ever by single bytes."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline has passed")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class _Stream:
    """The part of a socket that `HTTPResponse` needs: a file of its bytes."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._file = io.BufferedReader(_Watched(sock, end))

    def makefile(self, _mode: str) -> io.BufferedReader[_Watched]:
        return self._file


def exchange(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str],
    body: bytes | None = None,
    timeout: float,
    largest: int = LARGEST,
    tls: ssl.SSLContext | None = None,
    proxy: HttpProxy | None = None,
) -> HttpReply | TransportFailure:
    """Send a request and read the whole answer within `timeout` seconds. Network errors and bad answers are returned, never raised.

    proxy: for https addresses only. It sees the address, and nothing that is sent.
    """
    parts = urlsplit(url)
    end = time.monotonic() + timeout
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        first = (host, port) if proxy is None else (proxy.host, proxy.port)
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(*first, timeout=timeout, context=tls)
        if proxy is not None:
            connection.set_tunnel(host, port, {"Proxy-Authorization": proxy.authorization} if proxy.authorization else {})
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    def answer_from(sock: socket.socket, *_: object, **about: Any) -> http.client.HTTPResponse:
        return http.client.HTTPResponse(_Stream(sock, end), **about)  # type: ignore[arg-type]

    # That of a proxy too is read until the deadline.
    connection.response_class = answer_from  # type: ignore[assignment]
    try:
        connection.request(method, target, body=body, headers={**headers, "Connection": "close"})
        response = answer_from(connection.sock, method=method)
        response.begin()
        content = response.read(largest + 1)
        if len(content) > largest:
            return TransportFailure(f"an answer longer than {largest} bytes")
        # A body cut short by a lost connection is invalid, but read() with a bound does not raise for it.
        declared = response.headers.get("Content-Length", "")
        # Compared as texts, because a peer may send a number of any length.
        if declared.isdecimal() and method != "HEAD" and (declared.lstrip("0") or "0") != str(len(content)):
            return TransportFailure(f"the answer ended after {len(content)} of {declared[:20]} bytes")
        return HttpReply(response.status, content, {name.lower(): value for name, value in response.headers.items()})
    except TimeoutError:
        return TransportFailure(f"no answer within {timeout:g} s", timed_out=True)
    except (OSError, http.client.HTTPException) as error:
        return TransportFailure(f"{type(error).__name__}: {error}".rstrip(": "))
    finally:
        connection.close()


def root_of(url: str) -> str:
    """Return an http or https address without path, query and user, and without a trailing slash.

    Raises ValueError with the expected form. The message does not contain the address, which may hold a password.
    """
    wrong = ValueError("not an address like https://app.example, without path, query and user")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise wrong from None
    if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc or port == 0:
        raise wrong
    if parts.path not in ("", "/") or parts.query or parts.fragment or any(not "!" <= letter <= "~" for letter in url):
        raise wrong
    return url.rstrip("/")
