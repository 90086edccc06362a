"""The HTTP side of the host: one aiohttp server that turns requests into invocations and outcomes into responses.

A raw `web.Server` handler instead of an application with a router: the host's routing rules are not aiohttp's, and it
saves a third of the time per request. Answers are framed as the host's server (Kestrel) frames them: a body is chunked.
"""

import asyncio
import logging
import os
import socket
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import HttpVersion11, web
from multidict import CIMultiDict

from devhost.host.routes import RouteTable, compile_route
from devhost.host.settings import SettingsError
from devhost.worker.model import FunctionInfo, InvocationResult, Invoker
from shared.core.answered_hosts import AnsweredHosts
from shared.local import http_requests
from shared.local.http_requests import FRAMING, body_length, joined_headers, make_request, read_body, send_continue

log = logging.getLogger("devhost.http")

MAX_BODY = 104_857_600
"""Largest body in bytes that the host accepts, unless the setting that `BODY_LIMIT` names has another value."""
BODY_LIMIT = "FUNCTIONS_REQUEST_BODY_SIZE_LIMIT"
LINGER = 1.0
"""Seconds for which the rest of a refused body is read, so that its sender sees the answer."""
AT_ONCE = 0.01
"""Seconds that running requests get when the host is cut. aiohttp takes 0 for no limit."""
LISTEN_AGAIN = 1.0
"""Seconds until the next try to listen on the port of a host that has ended."""
SPOOLED = 256 * 1024
"""Bodies over this many bytes wait on disk until they have arrived: the host's share of memory stays small."""
_CHUNK = 64 * 1024

type HostPage = Callable[[web.BaseRequest], Awaitable[web.Response | None]]
"""Answers requests for the host's own pages; None for all others."""


class HttpFunctions:
    """Serves all HTTP-triggered functions on one port."""

    def __init__(
        self,
        worker: Invoker,
        functions: list[FunctionInfo],
        *,
        prefix: str = "api",
        body_limit: int = MAX_BODY,
        host_page: HostPage | None = None,
        hosts: AnsweredHosts | None = None,
    ) -> None:
        """`functions` may hold others, which are left out. body_limit: in bytes. host_page: asked before the answer 404. hosts: those
        that are answered for; by default this machine's. Call inside a running loop."""
        served = [function for function in functions if function.trigger["type"] == "httpTrigger"]
        self._functions = {function.name: function for function in served}
        self.table = RouteTable(
            compile_route(f.name, f.trigger.get("route") or f.name, f.trigger.get("methods") or (), prefix) for f in served
        )
        self._worker = worker
        self._body_limit, self._host_page = body_limit, host_page
        self._hosts = hosts or AnsweredHosts()
        self._spooling = asyncio.Lock()
        # The host hands bodies over as they came, compressed ones too.
        self._server = web.Server(self._handle, request_factory=make_request, access_log=None, auto_decompress=False, lingering_time=LINGER)
        # Time for answers that are being written after the invocations have ended.
        self._runner = web.ServerRunner(self._server, shutdown_timeout=2.0)
        self._site: web.TCPSite | None = None
        self._host, self._port = "", 0
        self._reserved: socket.socket | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port, a free one for 0. Raises OSError when the port is taken."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port)
        await self._site.start()
        self._host, self._port = host, int(self._runner.addresses[0][1])
        return self._port

    async def stop_accepting(self) -> None:
        """Refuses new connections and closes each open one after the request it is serving."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
            self._server.pre_shutdown()

    async def cut(self) -> None:
        """Refuse connections, and close those that are open without an answer, as a host does that has ended. `listen_again` follows."""
        if self._site is None:
            return
        site, self._site = self._site, None
        await site.stop()
        self._reserve()
        await self._server.shutdown(AT_ONCE)

    def _reserve(self) -> None:
        """Bind the port without listening, so that no other process gets it meanwhile."""
        family, kind, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        reserved = socket.socket(family, kind)
        reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            reserved.bind(address)
        except OSError as error:
            reserved.close()
            log.warning("port %d cannot be reserved while the host is down: %s", self._port, error)
            return
        self._reserved = reserved

    def _release(self) -> None:
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    async def listen_again(self) -> None:
        """Listen again after `cut`; wait for the port if another process has got it."""
        while self._site is None:
            self._release()
            site = web.TCPSite(self._runner, self._host, self._port)
            try:
                await site.start()
            except OSError as error:
                log.error("port %d cannot be listened on, trying again: %s", self._port, error)
                await site.stop()
                await asyncio.sleep(LISTEN_AGAIN)
                continue
            self._site = site

    async def close(self) -> None:
        """Stops accepting and closes all connections; call it when no invocation runs any more."""
        await self.stop_accepting()
        self._release()
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        response = refusal(request, self._hosts) or await self._answer(request)
        response.headers["Server"] = "Kestrel"
        if response.body and request.version >= HttpVersion11:
            response.enable_chunked_encoding()
        return response

    async def _answer(self, request: web.BaseRequest) -> web.Response:
        raw_path, _, raw_query = request.raw_path.partition("?")
        found = self.table.find(request.method, raw_path)
        if found is None:
            page = await self._host_page(request) if self._host_page is not None else None
            return page or web.Response(status=404)
        length = body_length(request)
        if length > self._body_limit:
            # The rest of the body is not read, so the connection cannot be used again.
            refused = web.Response(status=500)
            refused.force_close()
            return refused
        try:
            # Small bodies are the rule; their path stays short.
            if length <= SPOOLED:
                return await self._invoke(request, found, raw_query, await read_body(request))
            path = await self._spool(request)
            try:
                return await self._invoke(request, found, raw_query, path)
            finally:
                _remove(path)
        except ConnectionResetError:
            # The caller closed the connection in the middle of its body: no answer can reach it.
            return web.Response(status=400)

    async def _invoke(self, request: web.BaseRequest, found: Any, raw_query: str, body: bytes | str) -> web.Response:
        """body: the body, or the path of the file that holds it."""
        name, parameters = found
        headers = joined_headers(request)
        url = f"{request.scheme}://{request.host}{request.raw_path}"
        data = "http", (request.method, url, headers, body, parameters, _query(raw_query) if raw_query else {})
        trace = None
        if "traceparent" in headers:
            trace = headers["traceparent"], headers.get("tracestate", "")
        return _response(await self._worker.invoke(self._functions[name], data, None, trace))

    async def _spool(self, request: web.BaseRequest) -> str:
        """Write the body to a file and return its path. Raises as `_body` does."""
        await send_continue(request)
        descriptor, path = tempfile.mkstemp(prefix="devhost-body-")
        try:
            with open(descriptor, "wb", buffering=0) as file:  # noqa: ASYNC230  writes of this size go to the page cache, in microseconds
                async for chunk in request.content.iter_chunked(_CHUNK):
                    # One chunk of all requests per turn of the loop. The connections of the others fill their buffers and pause meanwhile.
                    async with self._spooling:
                        file.write(chunk)
                        await asyncio.sleep(0)
        except BaseException:
            _remove(path)
            raise
        return path


def refusal(request: web.BaseRequest, hosts: AnsweredHosts) -> web.Response | None:
    """Return the answer to a request for another host; None if the request is to be answered. The body is not read."""
    return http_requests.refusal(request, hosts, "Use localhost, or name the host in DEVHOST_HOSTS.")


def body_limit(environ: Mapping[str, str]) -> int:
    """Return the largest body in bytes that the host accepts. Raises SettingsError."""
    given = environ.get(BODY_LIMIT, "")
    if given and not given.isdecimal():
        raise SettingsError(f"{BODY_LIMIT} must be a number of bytes, not {given!r}")
    return int(given or MAX_BODY)


def _remove(path: str) -> None:
    os.unlink(path)


def _query(raw_query: str) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(raw_query):
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


def _response(outcome: InvocationResult) -> web.Response:
    if outcome.error is not None:
        return web.Response(status=500)
    kind: str
    value: Any
    kind, value = outcome.value or ("string", "")
    if kind != "http":
        return web.Response(text=value if kind == "string" else "")
    status, given, body, cookies = value
    headers = CIMultiDict(given)
    for name in FRAMING.intersection(map(str.lower, headers)):
        del headers[name]
    for cookie in cookies:
        headers.add("Set-Cookie", cookie)
    return web.Response(status=status, body=body, headers=headers)
