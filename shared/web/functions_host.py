"""Binds the route table to the Functions host: `app.register_functions(bind(routes, get_app))`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import azure.functions as func

from ..core.clock import steady
from ..core.errors import Problem
from .bodies import BodyBudget
from .routes import Route, Routes
from .serve import ApiRequest, GetApp, refuse, serve

type HttpFunction = Callable[[func.HttpRequest], Awaitable[func.HttpResponse]]


def bind(routes: Routes, get_app: GetApp, on_call: Callable[[], Awaitable[None]] | None = None) -> func.Blueprint:
    """Return one function per route. Raises ValueError for an ambiguous table.

    `get_app` is awaited on every call and should keep the application: it runs inside the worker's loop, so it may open aio clients.
    on_call: awaited before each call, and before its trace begins.
    """
    routes.check()
    bodies = BodyBudget()
    blueprint = func.Blueprint()  # type: ignore[no-untyped-call]
    for route in routes:
        serving = _function(route, get_app, bodies, on_call)
        handler = blueprint.route(route.template, methods=[route.method], auth_level=func.AuthLevel.ANONYMOUS)(serving)
        blueprint.function_name(route.name)(handler)
    return blueprint


def _function(route: Route, get_app: GetApp, bodies: BodyBudget, on_call: Callable[[], Awaitable[None]] | None) -> HttpFunction:
    async def handler(req: func.HttpRequest) -> func.HttpResponse:
        request = ApiRequest(req.method, req.url, req.headers, req.params, req.route_params, req.get_body(), steady())
        # Before anything is awaited: what is refused is freed at once. A body that is too long is refused without being read.
        size = len(request.body) if len(request.body) <= route.max_body else 0
        try:
            with bodies.hold(size):
                if on_call is not None:
                    await on_call()
                status, headers, body = await serve(route, get_app, request)
        except Problem as busy:
            status, headers, body = refuse(busy, request.url)
        return func.HttpResponse(body, status_code=status, headers=headers)

    # Set by hand: `functools.wraps` would show the worker another signature and break indexing.
    handler.__name__ = route.name
    handler.__qualname__ = route.name
    handler.__doc__ = route.summary
    return handler
