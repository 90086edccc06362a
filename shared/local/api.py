"""Answers API calls as the Functions host and the app together do, without the host."""

from __future__ import annotations

from collections.abc import Mapping

from ..core.clock import steady
from ..extras.parts import find_route
from ..extras.route_index import INDEX
from ..web import templates
from ..web.host_calls import HostCalls
from ..web.serve import ApiRequest, ApiResponse, GetApp

PREFIX = "/api/"
"""The start of the path of every route."""


class LocalApi:
    """Finds the route of a call and answers it. A handler is imported at its first call."""

    def __init__(self, get_app: GetApp, *, virtual_time: bool = False) -> None:
        """get_app: returns the application; awaited on every call. virtual_time: its clock stands still while a call waits for it."""
        self._calls, self._virtual = HostCalls(find_route, get_app), virtual_time

    async def answer(self, method: str, url: str, path: str, headers: Mapping[str, str], body: bytes) -> ApiResponse:
        """Return the answer to a call. path: that of `url`, not decoded. headers: with names in lower case.

        Raises nothing but cancellation.
        """
        arrived = None if self._virtual else steady()
        if path.startswith(PREFIX):
            rest = path.removeprefix(PREFIX)
            for route in INDEX:
                if route.method == method and (params := templates.match(route.template, rest)) is not None:
                    return await self._calls.answer(route, ApiRequest(method, url, headers, {}, params, body, arrived))
        # The host gives this answer if no route matches.
        return ApiResponse(404, {}, b"")
