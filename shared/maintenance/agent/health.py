"""What the agent tells of itself over HTTP, on loopback unless told otherwise.

GET /live          200 while the agent's loop turns; 503 means: restart it
GET /ready         200 while it can do its work; 503 with reasons: look at it
GET /maintenance   200 while the node may serve, 503 while the agent keeps it out of service (for a load balancer's probe); its events
GET /metrics       Prometheus text
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

log = logging.getLogger(__name__)

PATIENCE: Final = 5.0
"""Seconds that a caller may take to ask."""


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """How the agent is at one moment."""

    live: bool
    reasons: tuple[str, ...]
    """Why it is not ready; empty: it is."""
    in_service: bool
    """False while the node is being taken out of service, is out of it, or is on its way back."""
    node: dict[str, Any] = field(default_factory=dict)
    """What is shown of it: node, vm, incarnation, events."""


class HealthServer:
    """Answers on `host`:`port` (0: a free one) from threads of its own. Raises OSError where the port is taken."""

    def __init__(self, host: str, port: int, look: Callable[[], AgentHealth], metrics: Callable[[], str]) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.look, self._server.metrics = look, metrics

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Free the port; whoever is being answered is not waited for. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    look: Callable[[], AgentHealth]
    metrics: Callable[[], str]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A caller that hung up is nobody's trouble.
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            log.exception("An answer about health failed", extra={"action": "agent_health_failed"})


class _Handler(BaseHTTPRequestHandler):
    timeout = PATIENCE
    server: _Server
    server_version, sys_version = "tocsin-agent", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, "text/plain; version=0.0.4; charset=utf-8", self.server.metrics())
            return
        health = self.server.look()
        match path:
            case "/live":
                self._tell(200 if health.live else 503, {"live": health.live})
            case "/ready":
                ready = health.live and not health.reasons
                self._tell(200 if ready else 503, {"ready": ready, "reasons": list(health.reasons)})
            case "/maintenance":
                self._tell(200 if health.in_service else 503, {"in_service": health.in_service, **health.node})
            case _:
                self._tell(404, {"detail": "there are /live, /ready, /maintenance and /metrics"})

    do_HEAD = do_GET

    def _tell(self, status: int, body: dict[str, Any]) -> None:
        self._answer(status, "application/json", json.dumps(body) + "\n")

    def _answer(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds; nobody reads of them."""
