"""Answers all requests to the service on one port: API, dashboard, and the receiver with its page."""

from __future__ import annotations

import asyncio
import base64
import binascii
import errno
import hmac
import logging
import socket
from collections.abc import Sequence
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from multidict import CIMultiDict

from ..core.answered_hosts import AnsweredHosts, is_loopback
from ..core.errors import TocsinError
from .http_requests import FRAMING, body_length, joined_headers, make_request, read_body, refusal
from .invocations import LocalApi
from .receiver import ReceivedDeliveries, reads_page

MAX_BODY: Final = 17_000_000
"""Largest body in bytes, a little more than the largest batch."""
RECEIVER: Final = "/receiver"
"""Path of the receiver."""
FRONT_PAGE: Final = "/api/dashboard"
"""Page to which `/` leads."""
MOST_CONNECTIONS: Final = 400
"""Most open connections. With those that wait to be accepted (128) and those of deliveries, they stay below the usual 1,024 open files."""
GRACE: Final = 2.0
"""Seconds that running requests get at the end."""


def _is_own_failure(record: logging.LogRecord) -> bool:
    """Return False for the errors of requests that are not HTTP. Their senders get 400, and could fill the terminal with messages."""
    return not (record.exc_info and isinstance(record.exc_info[1], HttpProcessingError))


log = logging.getLogger(__name__)
log.addFilter(_is_own_failure)


class PortTaken(TocsinError):
    """Raised if the address cannot be listened on. The message says why.

    address: True if the address itself is the reason, and not its port.
    """

    def __init__(self, text: str, *, address: bool = False) -> None:
        super().__init__(text)
        self.address = address


def listen(host: str, port: int) -> list[socket.socket]:
    """Return the listening sockets. For `localhost` there are two, one per protocol, where the machine has both. Raises `PortTaken`.

    port: 0 chooses a free one.
    """
    if host != "localhost":
        return [_bound(host, port, socket.AF_INET6 if ":" in host else socket.AF_INET)]
    found = [_bound("127.0.0.1", port, socket.AF_INET)]
    if socket.has_ipv6 and port:
        try:
            found.append(_bound("::1", port, socket.AF_INET6))
        except PortTaken as taken:
            # Browsers and curl take 127.0.0.1 where the machine has no IPv6. Another server at [::1] would get their calls instead.
            if _answers("::1", port):
                found[0].close()
                raise taken from None
    return found


def _bound(host: str, port: int, family: socket.AddressFamily) -> socket.socket:
    if not host:
        # The system would listen on all addresses.
        raise PortTaken("cannot listen on an empty address", address=True)
    try:
        return socket.create_server((host, port), family=family)
    except OSError as failure:
        text = f"cannot listen on {host}, port {port}: {failure.strerror or failure}"
        raise PortTaken(text, address=failure.errno not in (errno.EADDRINUSE, errno.EACCES)) from None


def _answers(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        return probe.connect_ex((host, port)) == 0


class _BoundedServer(web.Server):
    """Closes the oldest connection for one too many: callers that never end their requests must not use up the open files."""

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        live = [each for each in self.connections if each.transport is not None]
        if len(live) > MOST_CONNECTIONS:
            live[0].force_close()


class LocalServer:
    """Serves the sockets of `listen`."""

    def __init__(
        self, sockets: Sequence[socket.socket], api: LocalApi, received: ReceivedDeliveries, hosts: AnsweredHosts | None, key: str
    ) -> None:
        """hosts: host names that requests may use; None for any. key: password of the receiver's page, with any user; '' if only this
        machine reaches the port. Call inside a running loop."""
        self._sockets, self._api, self._received, self._hosts, self._key = sockets, api, received, hosts, key
        server = _BoundedServer(self._handle, request_factory=make_request, access_log=None, auto_decompress=False, logger=log)
        self._server, self._runner = server, web.ServerRunner(server, shutdown_timeout=GRACE)
        self._sites: list[web.SockSite] = []

    async def start(self) -> None:
        """Answer requests."""
        await self._runner.setup()
        for each in self._sockets:
            self._sites.append(site := web.SockSite(self._runner, each))
            await site.start()

    async def stop_accepting(self) -> None:
        """Refuse new connections; each open one is closed after the request that it serves."""
        for site in self._sites:
            await site.stop()
        self._sites.clear()
        self._server.pre_shutdown()

    async def close(self) -> None:
        """Close all connections, and the sockets."""
        await self._runner.cleanup()
        for each in self._sockets:
            each.close()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        try:
            return await self._answer(request)
        except ConnectionResetError:
            # The caller has gone: no answer can reach it.
            return web.Response(status=400)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        advice = "Use localhost, or start it with --host."
        if self._hosts is not None and (refused := refusal(request, self._hosts, advice)) is not None:
            return refused
        path = request.raw_path.partition("?")[0]
        if path == "/":
            return web.Response(status=302, headers={"location": FRONT_PAGE})
        if path == RECEIVER or path.startswith(f"{RECEIVER}/"):
            return self._refused_to_others(request) or await self._received.answer(request, path.removeprefix(RECEIVER), f"{RECEIVER}/")
        if body_length(request) > MAX_BODY:
            too_long = web.Response(status=413)
            too_long.force_close()
            return too_long
        body = await read_body(request)
        url = f"{request.scheme}://{request.host}{request.raw_path}"
        answer = await self._api.answer(request.method, url, path, joined_headers(request), body)
        headers = CIMultiDict(answer.headers)
        for name in FRAMING.intersection(map(str.lower, headers)):
            del headers[name]
        return web.Response(status=answer.status, body=answer.body, headers=headers)

    def _refused_to_others(self, request: web.BaseRequest) -> web.Response | None:
        """Return the refusal of a request to the receiver; None if it is answered.

        The page shows payloads, so it asks for the key. Deliveries come from this process, so other machines are refused.
        """
        if not self._key:
            return None
        if reads_page(request):
            if hmac.compare_digest(_password(request).encode(), self._key.encode()):
                return None
            ask = {"www-authenticate": 'Basic realm="The key of tenant demo as password, any user"'}
            return web.Response(status=401, text="The page asks for the key of tenant demo as the password, with any user.\n", headers=ask)
        transport = request.transport
        peer, own = (transport.get_extra_info(name) or ("",) for name in ("peername", "sockname")) if transport else (("",), ("",))
        if is_loopback(peer[0]) or peer[0] == own[0]:
            return None
        refused = web.Response(status=403, text="The receiver takes deliveries of this service only.\n")
        refused.force_close()
        return refused


def _password(request: web.BaseRequest) -> str:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given, validate=True).decode(errors="replace").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""
