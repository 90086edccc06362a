"""A receiver that shows how events arrive in a fresh checkout: `shared.local.receiver` on its own port."""

import logging
import ssl
from collections import deque
from typing import Any

from aiohttp import web

from devhost.host.http import refusal
from shared.core.answered_hosts import AnsweredHosts
from shared.local.http_requests import make_request
from shared.local.receiver import ReceivedDeliveries, one_line

log = logging.getLogger("devhost.receiver")


class DevhostReceiver:
    """Answers deliveries, logs one line for each and remembers the last ones."""

    def __init__(self, hosts: AnsweredHosts | None = None) -> None:
        """hosts: those that are answered for; by default this machine's. Call inside a running loop."""
        self._hosts = hosts or AnsweredHosts()
        self._received = ReceivedDeliveries(_log)
        self._runner = web.ServerRunner(web.Server(self._handle, request_factory=make_request, access_log=None), shutdown_timeout=1.0)

    @property
    def deliveries(self) -> deque[dict[str, Any]]:
        """The last deliveries, in the order of their arrival."""
        return self._received.deliveries

    async def start(self, host: str, port: int) -> int:
        """Listens and returns the port, a free one for 0."""
        await self._runner.setup()
        await web.TCPSite(self._runner, host, port).start()
        return int(self._runner.addresses[0][1])

    async def start_tls(self, host: str, port: int, tls: ssl.SSLContext) -> int:
        """Listen for https too, after `start`; return the port, a free one for 0."""
        await web.TCPSite(self._runner, host, port, ssl_context=tls).start()
        return int(self._runner.addresses[-1][1])

    async def close(self) -> None:
        """Stops listening."""
        await self._runner.cleanup()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        if (refused_host := refusal(request, self._hosts)) is not None:
            return refused_host
        return await self._received.answer(request, "" if request.path == "/" else request.path, "/")


def _log(delivery: dict[str, Any]) -> None:
    status, shown = delivery["status"], one_line(delivery["body"])
    refused = f", answered {status}" if status >= 300 else ""
    log.info("received %s, %s ms late, attempt %s%s: %s", delivery["id"], delivery["late_ms"], delivery["attempt"], refused, shown)
