"""A back end of telemetry that fails as a test sets, and the log lines of the process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, MutableMapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from prometheus_client import Metric as Family

from shared.ops.export import start as start_module
from shared.ops.export.start import Exporting
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected

NO_LISTENER = "http://127.0.0.1:9"
"""An address without a listener."""
AT = 1_700_000_000_000


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The process's environment, which the exporters read themselves. The provider stays out of the API, which takes one for good."""
    monkeypatch.setattr(trace, "set_tracer_provider", lambda provider: None)
    monkeypatch.setattr(start_module, "CLOSING", 0.0)
    # What is still under way when a test ends must not try for long.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    yield monkeypatch


def started(environ: MutableMapping[str, str]) -> Exporting:
    """Return the exporters of the environment, as after the first invocation."""
    found = Exporting(environ)
    found.start()
    return found


@pytest.fixture
def begun(environ: pytest.MonkeyPatch) -> Iterator[list[Exporting]]:
    """Exporters that a test starts; they end with it."""
    found: list[Exporting] = []
    yield found
    for each in found:
        each.close()


class Server(ThreadingHTTPServer):
    """Answers every POST alike, or none while `waiting`."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        self.status, self.posts, self.answers = status, 0, 0
        self.waiting = threading.Event()
        """Set: answers go out."""
        self.waiting.set()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                self.rfile.read(int(self.headers["content-length"]))
                server.posts += 1
                server.waiting.wait(60)
                server.answers += 1
                self.send_response(server.status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Tests need no log of requests."""

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def __exit__(self, *_: object) -> None:
        self.waiting.set()
        self.shutdown()
        self.server_close()


class Lines(logging.Handler):
    """Records that reach the log of the process: its root, and not, as `caplog` does, loggers that do not propagate."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the record."""
        self.records.append(record)

    @property
    def text(self) -> str:
        """All records as formatted text."""
        return "\n".join(map(logging.Formatter().format, self.records))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Actions and sentences of the service's own lines."""
        return [(record.__dict__["action"], record.getMessage()) for record in self.records if record.name.startswith("shared.")]

    @property
    def actions(self) -> list[str]:
        """Actions of the service's own lines."""
        return [action for action, _ in self.texts]


@pytest.fixture
def lines() -> Iterator[Lines]:
    """Return the log lines from INFO on."""
    handler, root = Lines(), logging.getLogger()
    root.addHandler(handler)
    level = root.level
    root.setLevel(logging.INFO)
    yield handler
    root.setLevel(level)
    root.removeHandler(handler)


def figures() -> list[Family]:
    return collected(MetricsSnapshot(AT, tenants={"acme": TenantFigures()}))


async def read_figures() -> list[Family]:
    return figures()
