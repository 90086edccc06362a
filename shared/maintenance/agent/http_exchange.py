"""One HTTP exchange, bounded in time and size, over the standard library: the agent must stay small, and it must never wait without end.

No proxy is ever asked, whatever the environment says: IMDS is link-local, and the app is reached directly.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Buffer, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

LARGEST = 8 * 1024 * 1024
"""Bytes of a body that is read to its end: a document of 10,000 events is half as long."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What came back: any status, the whole body, header names in lower case."""

    status: int
    body: bytes
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TransportFailure:
    """Nothing that could be understood came back. `timed_out` tells a slow peer from one that is not there."""

    reason: str
    timed_out: bool = False


class _Watched(io.RawIOBase):
    """A socket's bytes until an instant: time-outs of sockets are for each packet, and a peer that sends one byte a second has forever."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        self._sock, self._end = sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("time is up")
        self._sock.settimeout(left)
        return self._sock.recv_into(buffer)


class _Stream:
    """What `HTTPResponse` wants of a socket: a file of its bytes."""

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
) -> HttpAnswer | TransportFailure:
    """Ask `url` and read the whole answer within `timeout` seconds. Never raises for what a network or a peer may do."""
    parts = urlsplit(url)
    end = time.monotonic() + timeout
    host, port = parts.hostname or "", parts.port
    if parts.scheme == "https":
        connection: http.client.HTTPConnection = http.client.HTTPSConnection(host, port, timeout=timeout, context=tls)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=timeout)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        connection.request(method, target, body=body, headers={**headers, "Connection": "close"})
        sock: socket.socket = connection.sock
        response = http.client.HTTPResponse(_Stream(sock, end), method=method)  # type: ignore[arg-type]
        response.begin()
        content = response.read(largest + 1)
        if len(content) > largest:
            return TransportFailure(f"an answer longer than {largest} bytes")
        # A body cut short by a lost connection is no body: read() with a bound does not raise for it.
        declared = response.headers.get("Content-Length", "")
        # As texts: no peer's number is too long for that.
        if declared.isdecimal() and method != "HEAD" and (declared.lstrip("0") or "0") != str(len(content)):
            return TransportFailure(f"the answer ended after {len(content)} of {declared[:20]} bytes")
        return HttpAnswer(response.status, content, {name.lower(): value for name, value in response.headers.items()})
    except TimeoutError:
        return TransportFailure(f"no answer within {timeout:g} s", timed_out=True)
    except (OSError, http.client.HTTPException) as error:
        return TransportFailure(f"{type(error).__name__}: {error}".rstrip(": "))
    finally:
        connection.close()


def root_of(url: str) -> str:
    """An http or https address without path, query or user, and without a slash at its end. ValueError says what it is to be like; what
    was given is not in it, for it may hold a password."""
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
