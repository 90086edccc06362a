"""HTTP servers: a metadata service for each machine, and the control API. No decisions are made here."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Sequence
from typing import Any, Protocol

from aiohttp import web
from aiohttp.typedefs import Handler
from pydantic import TypeAdapter

from ...core.answered_hosts import AnsweredHosts
from ...core.clock import Clock, SettableClock, to_text
from ...core.errors import Problem, TocsinError
from ...web.fields.types import Duration, Strict
from ...web.parsing import load_json, parse_json
from ...web.problem import CONTENT_TYPE, conflict, invalid, not_found
from . import views
from .metadata_service import ImdsAnswer, ImdsRequest
from .model import Happening, World
from .scenario import StepSpec, steps_of

LOOPBACK = "127.0.0.1"
MAX_BODY = 4 * 1024 * 1024
"""Largest body of a request, in bytes."""
LONGEST_WAIT = 60.0
"""Longest time, in seconds, that `GET /log` waits."""
_NUMBER = re.compile(r"[0-9]{1,15}")
_LEAVE = 0.2
"""Seconds that running requests get at the end."""


class Emulation(Protocol):
    """The part of the emulator that its servers need. `service.Emulator` explains each."""

    clock: Clock

    @property
    def world(self) -> World: ...
    @property
    def urls(self) -> dict[str, str]: ...
    @property
    def history(self) -> Sequence[Happening]: ...
    def ask(self, vm: str, request: ImdsRequest) -> ImdsAnswer: ...
    def do_all(self, steps: list[StepSpec]) -> None: ...
    async def news(self, after: int, timeout: float) -> list[Happening]: ...


class PortTaken(TocsinError):
    """Raised if another process listens on the port."""


def _listen(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port))
    except OSError as failure:
        raise PortTaken(f"cannot listen on {host}:{port}: {failure.strerror or failure}") from None


class MetadataServers:
    """The metadata services of all machines. The port of a request decides which machine it belongs to."""

    def __init__(self, emulator: Emulation, names: list[str], host: str, port: int) -> None:
        self._emulator, self._names, self._host, self._port = emulator, names, host, port
        self._by_port: dict[int, str] = {}
        self._runner = web.ServerRunner(web.Server(self._handle, request_factory=_request, access_log=None), shutdown_timeout=_LEAVE)
        self.urls: dict[str, str] = {}

    async def start(self) -> None:
        """Listen. Raises `PortTaken`."""
        await self._runner.setup()
        for index, name in enumerate(self._names):
            sock = _listen(self._host, self._port + index if self._port else 0)
            port = sock.getsockname()[1]
            self._by_port[port] = name
            self.urls[name] = f"http://{LOOPBACK if self._host == '0.0.0.0' else self._host}:{port}"
            await web.SockSite(self._runner, sock).start()

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        name = self._by_port[request.transport.get_extra_info("sockname")[1]]
        try:
            body = await request.read()
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=400)
        headers = {key.lower(): value for key, value in request.headers.items()}
        answer = self._emulator.ask(name, ImdsRequest(request.method, request.path, request.query_string, headers, body))
        if answer.delay:
            await self._emulator.clock.sleep(answer.delay / 1000)
        if answer.dropped and request.transport is not None:
            request.transport.abort()
        return web.Response(status=answer.status, body=answer.body, headers={"Content-Type": answer.content_type})


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=MAX_BODY)


class Advance(Strict):
    """The body of `POST /clock`."""

    advance: Duration


_ADVANCE: TypeAdapter[Advance] = TypeAdapter(Advance)


@web.middleware
async def _problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    try:
        _refuse_pages(request)
        return await handler(request)
    except Problem as problem:
        found = problem
    except web.HTTPException as failure:
        found = not_found("route") if failure.status == 404 else Problem(failure.status, "not-taken", failure.reason)
    return web.Response(status=found.status, body=json.dumps(found.body(request.path)).encode(), headers={"Content-Type": CONTENT_TYPE})


def _refuse_pages(request: web.Request) -> None:
    """Raise a 403 for a request of a web page, whose browser names the page in Origin, or the page's host in Host."""
    if "Origin" in request.headers or not AnsweredHosts().includes(request.headers.getall("Host", [])):
        raise Problem(403, "web-page", "The control API answers programs on this machine only, and no web pages. Use http://127.0.0.1.")


class ControlServer:
    """The control API, for tests and tools: show the world and its log, run steps, and move a settable clock."""

    def __init__(self, emulator: Emulation, port: int) -> None:
        self._emulator, self._port = emulator, port
        app = web.Application(client_max_size=MAX_BODY, middlewares=[_problems])
        app.router.add_get("/", self._show)
        app.router.add_get("/log", self._log)
        app.router.add_post("/steps", self._steps)
        app.router.add_post("/clock", self._clock)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=_LEAVE)
        self.url = ""

    async def start(self) -> None:
        """Listen. Raises `PortTaken`."""
        await self._runner.setup()
        sock = _listen(LOOPBACK, self._port)
        self.url = f"http://{LOOPBACK}:{sock.getsockname()[1]}"
        await web.SockSite(self._runner, sock).start()

    async def close(self) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    async def _show(self, _: web.Request) -> web.Response:
        return _json(views.world_document(self._emulator.world, self._emulator.urls))

    async def _log(self, request: web.Request) -> web.Response:
        after, wait = (_number(request, name) for name in ("after", "wait"))
        lines = await self._emulator.news(after, min(wait, LONGEST_WAIT))
        return _json([views.happening_document(line) for line in lines])

    async def _steps(self, request: web.Request) -> web.Response:
        before = self._emulator.world.happened
        self._emulator.do_all(steps_of(load_json(await request.read())))
        return _json([views.happening_document(line) for line in self._emulator.history if line.number > before])

    async def _clock(self, request: web.Request) -> web.Response:
        advance = parse_json(_ADVANCE, await request.read()).advance
        if not isinstance(self._emulator.clock, SettableClock):
            raise conflict("clock-runs", "this emulator's clock runs by itself; start it with --speed 0 to move it by POST /clock")
        await self._emulator.clock.advance(advance / 1000)
        return _json({"now": to_text(self._emulator.world.now)})


def _number(request: web.Request, name: str) -> int:
    text = request.query.get(name, "0")
    if not _NUMBER.fullmatch(text):
        raise invalid(f"?{name}", "must be a whole number of at most 15 digits")
    return int(text)


def _json(document: Any) -> web.Response:
    """Return the answer; a newline at its end leaves a terminal's next prompt in a line of its own."""
    return web.json_response(document, dumps=lambda value: json.dumps(value) + "\n")
