"""The host's own pages: `/`, and what is below `/admin`."""

import hmac
from collections.abc import Awaitable, Callable, Mapping

from aiohttp import web

DISABLE_HOMEPAGE = "AzureWebJobsDisableHomepage"
MASTER_KEY = "DEVHOST_MASTER_KEY"
"""Environment variable with the key of the host's pages below `/admin`. Without it, only `ping` answers."""
PING = "/admin/host/ping"
DRAIN = "/admin/host/drain"
FUNCTIONS = "/admin/functions/"
"""The path before the name of a timer function; a POST runs the function."""
KILL = "/admin/host/kill/"
"""The path before the name of a group of functions, such as `http` or `function:NAME`; a POST ends its hosts as when a machine fails. The
Functions host has no such page."""

_HOME = """<!DOCTYPE html>
<html><head><title>Your Functions app is up and running</title></head>
<body><h1>Your Functions app is up and running</h1><p>This page stands for the home page of the Functions host.</p></body></html>
"""


class HostPages:
    """Answers the requests that reach no function and concern the host."""

    def __init__(
        self,
        environ: Mapping[str, str],
        drain: Callable[[], Awaitable[None]],
        running: Callable[[], int],
        run_timer: Callable[[str], Awaitable[bool]],
        kill: Callable[[str], Awaitable[int]],
        front: str | None = None,
    ) -> None:
        """drain: stops the listeners. running: returns how many invocations run. run_timer: runs a timer function; returns False if
        there is no such function. kill: ends the hosts of a group; returns how many. front: path to which `/` leads while the home page is
        off; the host itself answers 204 there."""
        self._homepage = environ.get(DISABLE_HOMEPAGE, "").lower() != "true"
        self._key = environ.get(MASTER_KEY, "")
        self._drain, self._running, self._run_timer, self._kill, self._front = drain, running, run_timer, kill, front
        self._drained = False

    async def __call__(self, request: web.BaseRequest) -> web.Response | None:
        """Return the answer, or None if the request is not for the host."""
        path = request.path
        if path == "/":
            return self._home()
        if path != "/admin" and not path.startswith("/admin/"):
            return None
        if path == PING:
            return web.Response()
        given = request.headers.get("x-functions-key", "")
        if not self._key or not hmac.compare_digest(given.encode(), self._key.encode()):
            return web.Response(status=401)
        return await self._administer(request.method, path)

    def _home(self) -> web.Response:
        if self._homepage:
            return web.Response(text=_HOME, content_type="text/html")
        return web.Response(status=204) if self._front is None else web.Response(status=302, headers={"location": self._front})

    async def _administer(self, method: str, path: str) -> web.Response:
        if (method, path) == ("POST", DRAIN):
            self._drained = True
            await self._drain()
            return web.Response(status=202)
        if (method, path) == ("GET", f"{DRAIN}/status"):
            count = self._running()
            state = "Disabled" if not self._drained else "InProgress" if count else "Completed"
            return web.json_response({"state": state, "outstandingInvocations": count, "outstandingRetries": 0})
        if method == "POST" and path.startswith(FUNCTIONS):
            return web.Response(status=202 if await self._run_timer(path.removeprefix(FUNCTIONS)) else 404)
        if method == "POST" and path.startswith(KILL):
            return web.Response(status=202 if await self._kill(path.removeprefix(KILL)) else 404)
        return web.Response(status=404)
