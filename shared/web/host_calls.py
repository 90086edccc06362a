"""Answers the calls of the Functions host."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import azure.functions as func

from ..core.clock import steady
from ..core.errors import Problem
from . import problem
from .bodies import BodyBudget
from .indexed import Indexed
from .routes import Route
from .serve import ApiRequest, GetApp, refuse, serve


class HostCalls:
    """Answers the calls of all routes of a process, which share one budget of bytes for bodies."""

    def __init__(
        self, find_route: Callable[[Indexed], Route], get_app: GetApp, on_call: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._find_route, self._get_app, self._on_call = find_route, get_app, on_call
        self._bodies = BodyBudget()

    async def answer(self, indexed: Indexed, req: func.HttpRequest) -> func.HttpResponse:
        """Return the answer of a route. Raises nothing but cancellation."""
        request = ApiRequest(req.method, req.url, req.headers, req.params, req.route_params, req.get_body(), steady())
        # Before anything is awaited: what is refused is freed at once. A body that is too long is refused without being read.
        size = len(request.body) if len(request.body) <= indexed.max_body else 0
        try:
            with self._bodies.hold(size):
                if self._on_call is not None:
                    await self._on_call()
                status, headers, body = await serve(self._find_route(indexed), self._get_app, request)
        except Problem as busy:
            status, headers, body = refuse(busy, request.url)
        except Exception as failure:
            # The route's own failures are answered by `serve`; this is a module that cannot be imported.
            status, headers, body = refuse(problem.of(failure, where=indexed.name), request.url)
        return func.HttpResponse(body, status_code=status, headers=headers)
