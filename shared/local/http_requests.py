"""Functions for HTTP servers that pass on requests as the Functions host does: header names in lower case, bodies of announced length."""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from ..core.answered_hosts import AnsweredHosts

FRAMING: Final = frozenset(("content-length", "transfer-encoding", "connection"))
"""Headers that the server computes from the body. Values from the app could contradict the body's length."""


def make_request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    """Return a request whose body has no limit of its own; for `web.Server`."""
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=0)


def refusal(request: web.BaseRequest, hosts: AnsweredHosts, advice: str) -> web.Response | None:
    """Return the answer to a request for another host; None if the request is to be answered. The body is not read."""
    given = request.headers.getall("Host", [])
    if hosts.includes(given):
        return None
    refused = web.Response(status=403, text=f"The local host does not answer for {', '.join(given)!r}. {advice}\n")
    refused.force_close()
    return refused


def body_length(request: web.BaseRequest) -> int:
    """Return the announced length of the body. The host reads a body only if its length is announced: chunked bodies arrive empty."""
    return int(request.headers.get("Content-Length", "0"))


async def read_body(request: web.BaseRequest) -> bytes:
    """Return the body. Raises ConnectionResetError if the caller has gone."""
    if body_length(request) == 0:
        return b""
    await send_continue(request)
    return await request.read()


async def send_continue(request: web.BaseRequest) -> None:
    """Tell a caller that waits for it to send its body."""
    if request.headers.get("Expect", "").lower() == "100-continue":
        # aiohttp answers this in its router, which is not used here; curl would wait a second for it.
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0


def joined_headers(request: web.BaseRequest) -> dict[str, str]:
    """Return the headers as the host passes them: names in lower case, values of one name joined by commas."""
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        name = name.lower()
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers
