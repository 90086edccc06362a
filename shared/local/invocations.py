"""API calls and messages of queues, handed to the app as the Functions host does, without the host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..app.application import Application
from ..core.clock import steady
from ..extras.parts import find_route
from ..extras.route_index import INDEX
from ..scheduler.queue_functions import QUEUE_FUNCTIONS, Act
from ..storage.names import ALL_QUEUES, QUEUE_SWEEPS
from ..storage.ports import Message
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


ACTS: Final[Mapping[str, Act]] = {queue: act for _, queue, act in QUEUE_FUNCTIONS if queue in ALL_QUEUES}
"""The action of each queue with a function, apart from that of the sweep."""


async def invoke(app: Application, queue: str, message: Message) -> None:
    """Carry out a message. The caller deletes it afterwards; if this raises, the message comes back."""
    if queue == QUEUE_SWEEPS:
        await app.timers.run_soon(message.text)
    elif not await app.leave_to_newer(queue, message):
        await ACTS[queue](app.scheduler, message, True)
