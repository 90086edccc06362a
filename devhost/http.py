"""The HTTP side of the host: one aiohttp server that turns requests into invocations and outcomes into responses.

A raw `web.Server` handler instead of an application with a router: the host's routing rules are not aiohttp's, and it
saves a third of the time per request.
"""

import asyncio
import logging
import os
import tempfile
from datetime import UTC, datetime
from typing import IO, Any, Self
from urllib.parse import parse_qsl

from aiohttp import web
from multidict import CIMultiDict

from devhost.protos import Msg, RpcHttp, RpcHttpCookie, TypedData
from devhost.routes import RouteTable, compile_route
from devhost.worker import FunctionInfo, InvocationResult, Worker

log = logging.getLogger("devhost.http")

MAX_BODY = 210_000_000  # bytes, the Functions host's own limit
SPOOLED = 256 * 1024
"""Bodies over this many bytes wait on disk until the app's function starts: the host's share of memory stays small."""
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
        self._loading = asyncio.Lock()
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

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        raw_path, _, raw_query = request.raw_path.partition("?")
        found = self.table.find(request.method, raw_path)
        if found is None:
            return web.Response(status=404)
        try:
            # Small bodies are the rule; their path stays short.
            body = await _spooled(request) if _length(request) > SPOOLED else SentBody(await _body(request))
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        except ConnectionResetError:
            # The caller closed the connection in the middle of its body: no answer can reach it.
            return web.Response(status=400)
        with body:
            if body.size > SPOOLED:
                # One file is read per turn of the loop, so that other requests are served between two of them.
                async with self._loading:
                    await asyncio.sleep(0)
            return await self._invoke(request, found, raw_query, body)

    async def _invoke(self, request: web.BaseRequest, found: Any, raw_query: str, body: "SentBody") -> web.StreamResponse:
        name, parameters = found
        headers = _headers(request)
        data = TypedData(
            http=RpcHttp(
                method=request.method,
                url=f"{request.scheme}://{request.host}{request.raw_path}",
                headers=headers,
                body=body if body.size else _EMPTY,
                params=parameters,
                query=_query(raw_query) if raw_query else {},
            )
        )
        trace = None
        if "traceparent" in headers:
            trace = Msg(trace_parent=headers["traceparent"], trace_state=headers.get("tracestate", ""), attributes={})
        return _response(await self._worker.invoke(self._functions[name], data, None, trace))


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=MAX_BODY)


type BodySource = bytes | IO[bytes]


class SentBody(TypedData):
    """A request's body, in memory or in a file. The library reads `bytes` when the function starts; until then a file stays on disk."""

    def __init__(self, content: BodySource) -> None:
        super().__init__(_content=content)

    @property
    def size(self) -> int:
        """The number of bytes."""
        return len(self._content) if isinstance(self._content, bytes) else self._content.seek(0, os.SEEK_END)

    def WhichOneof(self, group: str) -> str | None:
        """Name the only field."""
        return "bytes"

    def __getattr__(self, name: str) -> Any:
        if name != "bytes":
            return super().__getattr__(name)
        if isinstance(self._content, bytes):
            return self._content
        self._content.seek(0)
        return self._content.read()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if not isinstance(self._content, bytes):
            self._content.close()


def _length(request: web.BaseRequest) -> int:
    # The real host reads a body only when Content-Length announces one: chunked bodies arrive empty.
    return int(request.headers.get("Content-Length", "0"))


async def _spooled(request: web.BaseRequest) -> SentBody:
    """Write the body to a temporary file. Raises as `_body` does."""
    if _length(request) > MAX_BODY:
        raise web.HTTPRequestEntityTooLarge(max_size=MAX_BODY, actual_size=_length(request))
    await _continue(request)
    file = await asyncio.to_thread(tempfile.TemporaryFile)
    try:
        async for chunk in request.content.iter_chunked(_CHUNK):
            # A write of this size goes to the page cache, in microseconds.
            file.write(chunk)
    except BaseException:
        file.close()
        raise
    return SentBody(file)


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
