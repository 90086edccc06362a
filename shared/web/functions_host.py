"""Gives the routes to the Functions host: `app.register_functions(bind(ROUTES, find_route, get_app))`.

The host gets one function per entry of the index. The handlers, and the layer that checks their calls, are imported at the first call:
a process that serves only queues or timers never needs them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import cache
from typing import TYPE_CHECKING

import azure.functions as func

from ..core.clock import steady
from .indexed import Indexed

if TYPE_CHECKING:
    from .host_calls import HostCalls
    from .routes import Route
    from .serve import ApiRequest, GetApp

type HttpFunction = Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]


def bind(
    index: Iterable[Indexed],
    find_route: Callable[[Indexed], Route],
    get_app: GetApp,
    on_call: Callable[[], Awaitable[None]] | None = None,
) -> func.Blueprint:
    """Return one function per entry.

    find_route: returns the route of an entry; asked on every call. `get_app` is awaited on every call and should keep the application: it
    runs inside the worker's loop, so it may open aio clients. on_call: awaited before each call, and before its trace begins.
    """

    @cache
    def calls() -> tuple[HostCalls, type[ApiRequest]]:
        from .host_calls import HostCalls
        from .serve import ApiRequest

        return HostCalls(find_route, get_app, on_call), ApiRequest

    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]
    for each in index:
        handler = blueprint.route(each.template, methods=[each.method], auth_level=func.AuthLevel.ANONYMOUS)(_function(each, calls))
        blueprint.function_name(each.name)(handler)
    return blueprint


class Response(func.HttpResponse):
    """A response whose headers are a plain mapping, with `content-type` in lower case if there is a body.

    The library's own class copies the headers one by one, and raises an exception inside for each name that is missing. That takes a tenth
    of the time of a call.
    """

    # Slots take the place of the base class's properties, each of which would be a call.
    __slots__ = ("_body", "headers", "status_code")
    status_code: int
    headers: dict[str, str]

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        # The base class's `__init__` is not called: it would copy the headers. Nothing else of it is needed.
        self.status_code, self.headers, self._body = status, headers, body

    mimetype, charset = "text/plain", "utf-8"
    """The content type of a response that names none."""

    def get_body(self) -> bytes:
        """See the base class."""
        return self._body


def _function(indexed: Indexed, calls: Callable[[], tuple[HostCalls, type[ApiRequest]]]) -> HttpFunction:
    async def handler(req: func.HttpRequest) -> func.HttpResponse:
        arrived = steady()
        found, request = calls()
        # The inner mapping has names in lower case. The outer one converts each name that is looked up, and each call looks up seven.
        headers = req.headers
        headers = getattr(headers, "__http_headers__", headers)
        given = request(req.method, req.url, headers, req.params, req.route_params, req.get_body(), arrived)
        return Response(*await found.answer(indexed, given))

    # Set by hand: `functools.wraps` would show the worker another signature and break indexing.
    handler.__name__ = indexed.name
    handler.__qualname__ = indexed.name
    return handler
