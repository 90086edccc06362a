"""The HTTP side of the host: one aiohttp server that turns requests into invocations and outcomes into responses.

A raw `web.Server` handler instead of an application with a router: the host's routing rules are not aiohttp's, and it
saves a third of the time per request.
"""

import asyncio
import logging
import tempfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import CIMultiDict

from devhost.host.protos import Msg, RpcHttp, RpcHttpCookie, TypedData
from devhost.host.routes import RouteTable, compile_route
from devhost.host.worker import FunctionInfo, InvocationResult, Worker

log = logging.getLogger("devhost.http")

MAX_BODY = 210_000_000  # bytes, the Functions host's own limit
SPOOLED = 256 * 1024
"""Bodies over this many bytes wait on disk until they have arrived: the host's share of memory stays small."""
_CHUNK = 64 * 1024
_EMPTY = TypedData()
# The server computes these from the body; a second opinion of the app would break the framing.
_FRAMING = frozenset(("content-length", "transfer-encoding", "connection"))
_SAME_SITE = {1: "lax", 2: "strict", 3: "none"}


class HttpFunctions:
    """Serves all HTTP-triggered functions on one port."""

    def __init__(self, worker: Worker, functions: list[FunctionInfo], *, prefix: str = "api") -> None:
        """`functions` may hold others, which are left out. Call inside a running loop."""
        served = [function for function in functions if function.trigger["type"] == "httpTrigger"]
        self._functions = {function.name: function for function in served}
        self.table = RouteTable(
            compile_route(f.name, f.trigger.get("route") or f.name, f.trigger.get("methods") or (), prefix) for f in served
        )
        self._worker = worker
        self._loading, self._spooling = asyncio.Lock(), asyncio.Lock()
        # One thread: each thread's share of the allocator keeps what a freed body took.
        self._disk = ThreadPoolExecutor(1, "devhost-bodies")
        # The host hands bodies over as they came, compressed ones too.
        self._server = web.Server(self._handle, request_factory=_request, access_log=None, auto_decompress=False)
        # Time for answers that are being written after the invocations have ended.
        self._runner = web.ServerRunner(self._server, shutdown_timeout=2.0)
        self._site: web.TCPSite | None = None

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port, a free one for 0. Raises OSError when the port is taken."""
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, host, port)
        await self._site.start()
        return int(self._runner.addresses[0][1])

    async def stop_accepting(self) -> None:
        """Refuses new connections and closes each open one after the request it is serving."""
        if self._site is not None:
            await self._site.stop()
            self._site = None
            self._server.pre_shutdown()

    async def close(self) -> None:
        """Stops accepting and closes all connections; call it when no invocation runs any more."""
        await self.stop_accepting()
        await self._runner.cleanup()
        self._disk.shutdown(wait=False)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        found = self.table.find(request.method, raw_path)
        if found is None:
            return web.Response(status=404)
        try:
            # Small bodies are the rule; their path stays short.
            body = await self._large_body(request) if _length(request) > SPOOLED else await _body(request)
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        except ConnectionResetError:
            # The caller closed the connection in the middle of its body: no answer can reach it.
            return web.Response(status=400)
        return await self._invoke(request, found, raw_query, body)

    async def _invoke(self, request: web.BaseRequest, found: Any, raw_query: str, body: bytes) -> web.StreamResponse:
        name, parameters = found
        headers = _headers(request)
        data = TypedData(
            http=RpcHttp(
                method=request.method,
                url=f"{request.scheme}://{request.host}{request.raw_path}",
                headers=headers,
                body=TypedData(bytes=body) if body else _EMPTY,
                params=parameters,
                query=_query(raw_query) if raw_query else {},
            )
        )
        trace = None
        if "traceparent" in headers:
            trace = Msg(trace_parent=headers["traceparent"], trace_state=headers.get("tracestate", ""), attributes={})
        return _response(await self._worker.invoke(self._functions[name], data, None, trace))

    async def _large_body(self, request: web.BaseRequest) -> bytes:
        """Return the body, which waits on disk until it has arrived. Raises as `_body` does."""
        if _length(request) > MAX_BODY:
            raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY, actual_size=_length(request))
        await _continue(request)
        with await asyncio.get_running_loop().run_in_executor(self._disk, tempfile.TemporaryFile) as file:
            async for chunk in request.content.iter_chunked(_CHUNK):
                # One chunk of all requests per turn of the loop. The connections of the others fill their buffers and pause meanwhile.
                async with self._spooling:
                    # A write of this size goes to the page cache, in microseconds.
                    file.write(chunk)
                    await asyncio.sleep(0)
            file.seek(0)
            # One after the other: the function starts in the turn of the loop in which this returns, so two bodies at most wait in memory.
            async with self._loading:
                return await asyncio.get_running_loop().run_in_executor(self._disk, file.read)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=MAX_BODY)


def _length(request: web.BaseRequest) -> int:
    # The real host reads a body only when Content-Length announces one: chunked bodies arrive empty.
    return int(request.headers.get("Content-Length", "0"))


async def _body(request: web.BaseRequest) -> bytes:
    if _length(request) == 0:
        return b""
    await _continue(request)
    return await request.read()


async def _continue(request: web.BaseRequest) -> None:
    if request.headers.get("Expect", "").lower() == "100-continue":
        # aiohttp answers this in its router, which is not used here; curl would wait a second for it.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def _headers(request: web.BaseRequest) -> dict[str, str]:
    # As the host does: names in lower case, headers of one name joined by commas.
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers


def _query(raw_query: str) -> dict[str, str]:
    query: dict[str, str] = {}
    for name, value in parse_qsl(raw_query):
        query[name] = f"{query[name]},{value}" if name in query else value
    return query


def _response(outcome: InvocationResult) -> web.Response:
    value = outcome.value
    if outcome.error is not None:
        return web.Response(status=500)
    if value is None or value.http is None:
        return web.Response(text=(value.string if value is not None else None) or "")
    http = value.http
    body: bytes = (http.body.bytes if http.body is not None else None) or b""
    headers = CIMultiDict(http.headers)
    for name in _FRAMING.intersection(map(str.lower, headers)):
        del headers[name]
    for cookie in http.cookies or ():
        headers.add("Set-Cookie", set_cookie(cookie))
    return web.Response(status=int(http.status_code), body=body, headers=headers)


def set_cookie(cookie: Msg) -> str:
    """The Set-Cookie header of an RpcHttpCookie, its attributes in the order in which the host writes them."""
    text = f"{cookie.name}={cookie.value}"
    if cookie.expires is not None:
        moment = datetime.fromtimestamp(cookie.expires.value.seconds, UTC)
        text += f"; expires={moment:%a, %d %b %Y %H:%M:%S} GMT"
    if cookie.max_age is not None:
        text += f"; max-age={cookie.max_age.value:.0f}"
    for name, field in (("domain", cookie.domain), ("path", cookie.path)):
        if field is not None and field.value:
            text += f"; {name}={field.value}"
    if cookie.secure is not None and cookie.secure.value:
        text += "; secure"
    if cookie.same_site in _SAME_SITE and cookie.same_site != RpcHttpCookie.SameSite["None"]:
        text += f"; samesite={_SAME_SITE[cookie.same_site]}"
    if cookie.http_only is not None and cookie.http_only.value:
        text += "; httponly"
    return text
