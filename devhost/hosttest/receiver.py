"""A receiver that answers 204 and remembers what arrived, and when."""

import time
from collections import defaultdict
from datetime import datetime
from typing import NamedTuple

from aiohttp import web


class Arrival(NamedTuple):
    """One delivery: milliseconds since 1970 of its arrival and of its due time."""

    at: float
    due: float


class ArrivalReceiver:
    """`arrivals`: the deliveries by event."""

    def __init__(self) -> None:
        self.arrivals: defaultdict[str, list[Arrival]] = defaultdict(list)
        self._runner = web.ServerRunner(web.Server(self._take, access_log=None), shutdown_timeout=1.0)

    async def start(self) -> str:
        """Listen on a free port of this machine; return the URL."""
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return f"http://127.0.0.1:{self._runner.addresses[0][1]}/"

    async def close(self) -> None:
        """Stop."""
        await self._runner.cleanup()

    async def _take(self, request: web.BaseRequest) -> web.StreamResponse:
        at = time.time() * 1000
        await request.read()
        if (event := request.headers.get("ce-id")) is not None:
            due = datetime.fromisoformat(request.headers["ce-tocsindue"]).timestamp() * 1000
            self.arrivals[event].append(Arrival(at, due))
        return web.Response(status=204)
