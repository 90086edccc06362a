"""Answers the calls that a host passes to the routes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from ..core.errors import Problem
from . import problem
from .bodies import BodyBudget
from .indexed import Indexed
from .routes import Route
from .serve import ApiRequest, ApiResponse, GetApp, refuse, serve


class HostCalls:
    """Answers the calls of all routes of a process, which share one budget of bytes for bodies."""

    def __init__(
        self, find_route: Callable[[Indexed], Route], get_app: GetApp, on_call: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._find_route, self._get_app, self._on_call = find_route, get_app, on_call
        self._bodies = BodyBudget()

    async def answer(self, indexed: Indexed, request: ApiRequest) -> ApiResponse:
        """Return the answer of a route. Raises nothing but cancellation."""
        # Before anything is awaited: what is refused is freed at once. A body that is too long is refused without being read.
        size = len(request.body) if len(request.body) <= indexed.max_body else 0
        try:
            self._bodies.take(size)
        except Problem as busy:
            return refuse(busy, request.url)
        try:
            if self._on_call is not None:
                await self._on_call()
            return await serve(self._find_route(indexed), self._get_app, request)
        except Exception as failure:
            # The route's own failures are answered by `serve`; this is a module that cannot be imported.
            return refuse(problem.of(failure, where=indexed.name), request.url)
        finally:
            self._bodies.release(size)
