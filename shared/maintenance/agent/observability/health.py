"""The agent's HTTP endpoints for probes and metrics, on the loopback address by default.

GET /live          200 while the agent's loop runs; 503 if the agent should be restarted
GET /ready         200 while it can work; 503 with the reasons otherwise
GET /maintenance   200 while the node may serve, 503 while the agent keeps it out of service (for a load balancer's probe); and its events
GET /metrics       Prometheus text

The metrics are written without a library, which would cost a quarter of the agent's memory.

Source: https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import json
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Literal

from ..timings import PROBE_REQUEST

log = logging.getLogger(__name__)


type Labels = tuple[tuple[str, str], ...]

FAMILIES: Final[Mapping[str, tuple[Literal["counter", "gauge"], str]]] = {
    "tocsin_agent_polls_total": ("counter", "Polls of the document at IMDS, by outcome: good, nonsense, refused, silence."),
    "tocsin_agent_document_age_seconds": ("gauge", "Age of the last valid document."),
    "tocsin_agent_document_incarnation": ("gauge", "Incarnation of the last valid document."),
    "tocsin_agent_clock_error_seconds": (
        "gauge",
        "Seconds by which the machine's clock is at least ahead of the metadata service's; negative: behind; 0: it may be right.",
    ),
    "tocsin_agent_events": ("gauge", "Events that the agent follows, by phase."),
    "tocsin_agent_node_disabled": ("gauge", "1 while the agent keeps the node out of service."),
    "tocsin_agent_hook_runs_total": ("counter", "Runs of hooks that ended, by hook and outcome: done, failed, late, stopped."),
    "tocsin_agent_hook_seconds_total": ("counter", "Run time of hooks, by hook."),
    "tocsin_agent_approvals_total": ("counter", "Approvals sent to IMDS, by outcome: posted, refused, silence."),
    "tocsin_agent_reports_total": ("counter", "Reports to the app, by outcome: taken, refused, silence."),
    "tocsin_agent_reports_waiting": ("gauge", "Reports on disk that the app has not received yet."),
    "tocsin_agent_warnings_total": ("counter", "Warnings in the log, by action."),
    "tocsin_agent_log_lines_total": (
        "counter",
        "Log lines for a collector, journald or syslog, by outcome: sent, refused, dropped.",
    ),
    "tocsin_agent_stalls_total": ("counter", "Ticks that came more than 3 s late because the machine was frozen."),
    "tocsin_agent_stalled_seconds_total": ("counter", "Total time for which the machine was frozen."),
    "process_cpu_seconds_total": ("counter", "Processor time of the agent, without its hooks."),
    "process_resident_memory_bytes": ("gauge", "Memory of the agent, without its hooks."),
}


class AgentFigures:
    """Counters and gauges; any thread may change or read them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, dict[Labels, float]] = {}

    def add(self, name: str, more: float = 1, **labels: str) -> None:
        """Raise a counter."""
        key = tuple(sorted(labels.items()))
        with self._lock:
            family = self._values.setdefault(name, {})
            family[key] = family.get(key, 0) + more

    def put(self, name: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        with self._lock:
            self._values.setdefault(name, {})[tuple(sorted(labels.items()))] = value

    def replace(self, name: str, label: str, values: Mapping[str, float]) -> None:
        """Set a gauge for each value of its one label, and remove all other values."""
        with self._lock:
            self._values[name] = {((label, key),): value for key, value in values.items()}

    def value(self, name: str, **labels: str) -> float:
        """Return a value; 0 if it was never set."""
        with self._lock:
            return self._values.get(name, {}).get(tuple(sorted(labels.items())), 0)

    def text(self) -> str:
        """Return all metrics as text, in the order of `FAMILIES`."""
        lines: list[str] = []
        with self._lock:
            for name, (kind, about) in FAMILIES.items():
                lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}"]
                for labels, value in sorted(self._values.get(name, {}).items()):
                    shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in labels)
                    lines.append(f"{name}{{{shown}}} {value:.15g}" if shown else f"{name} {value:.15g}")
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


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
