"""The agent's HTTP endpoints for probes and metrics, on the loopback address by default.

GET /live          200 while the agent's loop runs; 503 if the agent should be restarted
GET /ready         200 while it can work; 503 with the reasons otherwise
GET /maintenance   200 while the node may serve, 503 while the agent keeps it out of service (for a load balancer's probe); and its events
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
from typing import Any

from ..timings import PROBE_REQUEST

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentHealth:
    """The agent's health at one moment."""

    live: bool
    reasons: tuple[str, ...]
    """Reasons for which the agent is not ready; empty when it is."""
    in_service: bool
    """False while the node is out of service, or on the way out or back."""
    node: dict[str, Any] = field(default_factory=dict)
    """Details of the node: node, vm, incarnation, events."""


class HealthServer:
    """Serves the endpoints on `host`:`port` (0: a free one) from its own threads. Raises OSError if the port is taken."""

    def __init__(
        self, host: str, port: int, look: Callable[[], AgentHealth], metrics: Callable[[], str], about: Callable[[], dict[str, str]] = dict
    ) -> None:
        """about: fields of log lines."""
        self._server = _Server((host, port), _Handler)
        self._server.look, self._server.metrics, self._server.about = look, metrics, about

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start serving."""
        threading.Thread(target=self._server.serve_forever, name="health", daemon=True).start()

    def close(self) -> None:
        """Release the port without waiting for requests that are being served. Takes up to half a second."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    look: Callable[[], AgentHealth]
    metrics: Callable[[], str]
    about: Callable[[], dict[str, str]]

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A client that closed the connection needs no log line.
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            log.exception("A health request failed", extra={"action": "agent_health_failed", **self.about()})


class _Handler(BaseHTTPRequestHandler):
    timeout = PROBE_REQUEST
    server: _Server
    server_version, sys_version = "tocsin-agent", ""

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._send(200, "text/plain; version=0.0.4; charset=utf-8", self.server.metrics())
            return
        health = self.server.look()
        match path:
            case "/live":
                self._send_json(200 if health.live else 503, {"live": health.live})
            case "/ready":
                ready = health.live and not health.reasons
                self._send_json(200 if ready else 503, {"ready": ready, "reasons": list(health.reasons)})
            case "/maintenance":
                self._send_json(200 if health.in_service else 503, {"in_service": health.in_service, **health.node})
            case _:
                self._send_json(404, {"detail": "no such path; use /live, /ready, /maintenance or /metrics"})

    do_HEAD = do_GET

    def _send_json(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, "application/json", json.dumps(body) + "\n")

    def _send(self, status: int, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""
