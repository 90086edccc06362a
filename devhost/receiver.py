"""A receiver for deliveries, so that a fresh checkout shows events arriving. `GET /` lists the last hundred as JSON.

It answers 204, and below `/status/` the status that the path names: a channel with the URL `http://localhost:7072/status/503` always fails.
"""

import json
import logging
import re
import ssl
from collections import deque
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from devhost.host.http import refusal
from shared.core.answered_hosts import AnsweredHosts

log = logging.getLogger("devhost.receiver")

KEPT = 100
BODY_SHOWN = 200  # characters
MAX_BODY = 4 * 1024 * 1024  # bytes
_STATUS = re.compile(r"/status/([2-5][0-9]{2})(?:/.*)?")


class DevhostReceiver:
    """Answers 204 to a delivery, or the status that its path names, logs one line for it and remembers it."""

    def __init__(self, hosts: AnsweredHosts | None = None) -> None:
        """hosts: those that are answered for; by default this machine's. Call inside a running loop."""
        self._hosts = hosts or AnsweredHosts()
        self.deliveries: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._runner = web.ServerRunner(web.Server(self._handle, request_factory=_request, access_log=None), shutdown_timeout=1.0)

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
        if request.method in ("GET", "HEAD"):
            return web.json_response(list(self.deliveries), dumps=lambda value: json.dumps(value, indent=2) + "\n")
        try:
            body = (await request.read()).decode(errors="replace")
        except web.HTTPRequestEntityTooLarge:
            return web.Response(status=413)
        headers = request.headers
        asked = _STATUS.fullmatch(request.path)
        status = int(asked[1]) if asked else 204
        delivery = {
            "at": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "path": request.path,
            "id": headers.get("ce-id"),
            "late_ms": headers.get("ce-tocsinlatems"),
            "attempt": headers.get("ce-tocsinattempt"),
            "headers": dict(headers),
            "body": body[:BODY_SHOWN],
            "status": status,
        }
        self.deliveries.append(delivery)
        shown = " ".join(body[:BODY_SHOWN].split()) + " ..." * (len(body) > BODY_SHOWN)  # one line for each delivery
        refused = f", answered {status}" if status >= 300 else ""
        log.info("received %s, %s ms late, attempt %s%s: %s", delivery["id"], delivery["late_ms"], delivery["attempt"], refused, shown)
        return web.Response(status=status)


def _request(message: Any, payload: Any, protocol: Any, writer: Any, task: Any) -> web.BaseRequest:
    return web.BaseRequest(message, payload, protocol, writer, task, task.get_loop(), client_max_size=MAX_BODY)
