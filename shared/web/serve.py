"""Serves one call, from request to response, without the Functions library; functions and tests call `serve`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from itertools import takewhile
from typing import Any, Final, NamedTuple

from pydantic import ValidationError

from ..core import tracing
from ..core.clock import steady
from ..core.errors import Problem
from . import auth, parsing, problem
from .arrivals import NOT_NOTED
from .audited import carry_out
from .auth import ANONYMOUS
from .bodies import parse_body, parse_whole
from .etag import encode
from .fields.error_texts import fault_text
from .fields.params import NoQuery
from .routes import Answer, Call, Route, path_of

type GetApp = Callable[[], Awaitable[Any]]

ANSWER_WITHIN: Final = 25.0
"""Seconds within which a call is answered, however long storage is silent. Less than the 30 s for which clients usually wait."""
ANSWER_BATCH_WITHIN: Final = 120.0
"""The same for routes that take batches, which need many transactions. Less than the 180 s for which the client waits."""
_BATCH: Final = 1024 * 1024
"""A route with a larger body than this, in bytes, takes batches."""

_NO_QUERY = NoQuery()
_SAFE = {"x-content-type-options": "nosniff"}


class ApiRequest(NamedTuple):
    """A request as the host passes it. `headers` has lower-case names; `params` are the path's parameters, decoded."""

    method: str
    url: str
    headers: Mapping[str, str]
    query: Mapping[str, str]
    params: Mapping[str, str]
    body: bytes
    arrived: float | None = None
    """The moment at which the host handed it over, by `core.clock.steady`; None: just now."""


class ApiResponse(NamedTuple):
    """A response in bytes. `headers` includes content-type if there is a body."""

    status: int
    headers: dict[str, str]
    body: bytes


def serve(route: Route, get_app: GetApp, request: ApiRequest) -> Coroutine[Any, Any, ApiResponse]:
    """Check the request, run the handler and write the answer. Raises nothing but cancellation."""
    # Anonymous routes are not traced: probes arrive every second and are of no interest.
    traced = route.scopes and tracing.traced(request.headers)
    return _traced(route, get_app, request) if traced else _serve(route, get_app, request)


async def _traced(route: Route, get_app: GetApp, request: ApiRequest) -> ApiResponse:
    with tracing.serving(route.name, route.method, route.template, request.headers) as span:
        response = await _serve(route, get_app, request)
        if span is not None:
            tracing.answered(span, response.status)
        return response


class _Progress:
    """The progress of a call: its handler has begun, or its caller has been answered without it."""

    __slots__ = ("abandoned", "begun", "waiting")

    def __init__(self) -> None:
        self.begun = self.abandoned = False
        self.waiting: asyncio.Future[None] | None = None
        """Ends the wait for the answer."""

    def end(self) -> None:
        """Let the caller's task go on: the call has ended, or is late."""
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_result(None)


class _TimeLimit:
    """Ends the waits of late calls. One timer serves all calls of one limit, because one for each call would cost more than its wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self.loop, self._seconds = loop, seconds
        self._waiting: dict[_Progress, float] = {}
        """The time at which each call is late, in seconds of the loop's clock; the oldest call first."""
        self._timer: asyncio.TimerHandle | None = None

    def begin(self, call: _Progress) -> asyncio.Future[None]:
        """Return the wait of a call. It ends when the call has ended, or when it is late."""
        call.waiting = self.loop.create_future()
        self._waiting[call] = until = self.loop.time() + self._seconds
        if self._timer is None:
            self._timer = self.loop.call_at(until, self._look)
        return call.waiting

    def end(self, call: _Progress) -> None:
        """Stop watching the call."""
        self._waiting.pop(call, None)

    def _look(self) -> None:
        now = self.loop.time()
        # No copy of all: while storage is silent, thousands wait, and each is late at a time of its own.
        late = [call for call, _ in takewhile(lambda each: each[1] <= now, self._waiting.items())]
        for call in late:
            self.end(call)
            call.end()
        self._timer = self.loop.call_at(next(iter(self._waiting.values())), self._look) if self._waiting else None


_limits: dict[float, _TimeLimit] = {}
"""The limits of the event loop that serves calls, by their seconds."""


_late: set[asyncio.Task[ApiResponse]] = set()
"""Calls that were answered before their handlers had ended. The event loop itself keeps no reference."""


async def _serve(route: Route, get_app: GetApp, request: ApiRequest) -> ApiResponse:
    """Answer the call in time.

    A handler that is late is not cancelled: it may be in the middle of a change, and storage's own time-outs end it. One that has not
    begun never begins.
    """
    if route.standalone:
        return await _handle(route, get_app, request, _Progress())
    progress, loop = _Progress(), asyncio.get_running_loop()
    # It begins at once, and a call that waits for nothing has ended then.
    task = asyncio.Task(_handle(route, get_app, request, progress), loop=loop, eager_start=True)
    if task.done():
        return task.result()
    seconds = ANSWER_BATCH_WITHIN if route.max_body > _BATCH else ANSWER_WITHIN
    # It does the work of `asyncio.wait` in a third of the time, because every call pays for it.
    limit = _limits.get(seconds)
    if limit is None or limit.loop is not loop:
        limit = _limits[seconds] = _TimeLimit(loop, seconds)
    try:
        await limit.begin(progress)
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait((task,))
        raise
    finally:
        limit.end(progress)
    if task.done():
        return task.result()
    progress.abandoned = True
    _late.add(task)
    task.add_done_callback(_late.discard)
    found = problem.late(seconds, unknown=progress.begun and not route.reads, where=route.name)
    return _unserved(route, found, request.url)


async def _handle(route: Route, get_app: GetApp, request: ApiRequest, progress: _Progress) -> ApiResponse:
    app = call = None
    try:
        app = None if route.standalone else await get_app()
        call = await admit(route, app, request)
        if progress.abandoned:
            # The answer to the caller says that nothing was changed.
            raise problem.late(0, unknown=False, where=route.name)
        progress.begun = True
        audited = route.audited or (route.audited_for_operators and "admin" in call.key.scopes and not route.continues(call))
        return write(await (carry_out(route, call, app) if audited else route.handler(call)))
    except Exception as failure:
        found = problem.of(failure, where=route.name)
        if found.limit and app is not None and call is not None:
            # The receiver of an event has no key; the path names the tenant, and its token was checked.
            await app.limit_notices.reached(call.tenant or call.params.get("tenant", ""), found.limit, found.detail)
        problem.release(failure)
        return refuse(found, request.url) if app is not None else _unserved(route, found, request.url)
    finally:
        progress.end()


def _unserved(route: Route, found: Problem, url: str) -> ApiResponse:
    """Return the answer to a call that no application has served, or not in time."""
    return refuse(found, url) if route.unserved is None else write(route.unserved(found, path_of(url)))


async def admit(route: Route, app: Any, request: ApiRequest) -> Call[Any, Any, Any]:
    """Return the checked call; raise `Problem`. The key is checked first, so strangers learn nothing."""
    # Before anything is awaited. In a process that begins, the call may have waited for the application.
    waited = steady() - request.arrived if request.arrived is not None else 0.0
    arrival = app.arrivals.next(waited) if route.scopes else NOT_NOTED
    headers = request.headers
    key, tenant, service = ANONYMOUS, "", None if route.standalone else route.service(app)
    if route.scopes:
        guest = route.guest(service, request.url, headers) if route.guest is not None and "authorization" not in headers else None
        key = guest or auth.known_caller(app.directory, headers) or await auth.authenticate(app.directory, headers)
        auth.authorize(key, route.scopes, reads=route.reads)
    if route.own_token is not None:
        route.own_token(service, request.params, headers)
    if app is not None and route.method != "GET":
        # Before the body is checked: this version may not know what a newer one takes.
        await app.admit_write()
    query: Any = _NO_QUERY
    absent: Problem | None = None
    given = parsing.read_query(request.url, request.query) if "?" in request.url or request.query else {}
    if route.of_tenant:
        asked = given.pop("tenant", None)
        if asked is not None or key.tenant or not route.tenant_optional:
            try:
                # Nearly all calls act for the tenant of their key. It needs no check.
                tenant = key.tenant if asked is None and key.tenant else await auth.acting_for(app.directory, key, asked)
            except Problem as found:
                # What a dry run in a tenant that does not exist yet would be refused for, is said first.
                if found.status != 404 or given.get("dry_run") != "true":
                    raise
                absent = found
    if route.param_adapters:
        _check_params(route, request.params)
    if given or route.query is not NoQuery:
        query = parsing.parse_query(route.query_adapter, given)
    body: Any = None
    member: bytes | None = None
    media = ""
    raw = request.body if route.takes_body else b""
    if route.takes_body:
        parsing.check_length(headers, raw, route.max_body if app is None else min(route.max_body, app.body_limit))
        if raw:
            media = parsing.media_type(headers, route.media)
            if route.opaque is not None:
                body, member = await parse_body(route.body_adapter, raw, route.opaque)
            else:
                body = await parse_whole(route.body_adapter, raw) if route.reads_json else raw
        elif not route.body_optional:
            least = "a JSON body: at least {}" if route.reads_json else "a body"
            raise problem.unreadable("empty-body", f"The call needs {least}.")
    if absent is not None:
        raise absent
    return Call(service, tenant, key, request.params, query, headers, body, raw, media, request.url, arrival, member)


def _check_params(route: Route, params: Mapping[str, str]) -> None:
    for name, adapter in route.param_adapters.items():
        try:
            adapter.validate_strings(params.get(name, ""))
        except ValidationError as failure:
            fault = fault_text(failure.errors(include_url=False, include_input=False)[0])
            if route.method != "PUT":
                raise problem.not_found(f"resource: {{{name}}} {fault}") from None
            raise problem.invalid(f"{{{name}}}", fault) from None


def write(answer: Answer) -> ApiResponse:
    """Return the answer in bytes."""
    body = answer.body
    headers = {**(_SAFE if body is not None else {}), **(answer.headers or {})}
    if answer.etag is not None:
        headers["etag"] = answer.etag
    if body is None:
        return ApiResponse(answer.status, headers, b"")
    headers.setdefault("content-type", answer.content_type)
    # No cache on the way keeps a tenant's data, unless the route says so.
    headers.setdefault("cache-control", "no-store")
    if not isinstance(body, bytes):
        body = encode(body)
    elif answer.content_type.endswith("json") and not body.endswith(b"\n"):
        # The handler has made the JSON itself.
        body += b"\n"
    return ApiResponse(answer.status, headers, body)


def refuse(found: Problem, url: str) -> ApiResponse:
    """Return the problem in bytes."""
    body = encode(problem.document(found, path_of(url)))
    headers = {"content-type": problem.CONTENT_TYPE, "cache-control": "no-store", **_SAFE, **found.headers}
    return ApiResponse(found.status, headers, body)
