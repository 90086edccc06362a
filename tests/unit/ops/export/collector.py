"""A collector of OTLP over HTTP, in a thread of its own: what an exporter sends, decoded by the protocol's own classes."""

from __future__ import annotations

import gzip
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    """`with Collector() as collector`. Lists grow as things come in."""

    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.metrics: list[Any] = []
        self.logs: list[Any] = []
        self.services: set[str] = set()
        self.refuse = False
        """Answer 400, which is for good."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        """The endpoint."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def take(self, path: str, body: bytes) -> None:
        """One request's worth."""
        found: Any
        if path == "/v1/traces":
            found = ExportTraceServiceRequest.FromString(body).resource_spans
            self.spans += [span for each in found for scope in each.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            found = ExportMetricsServiceRequest.FromString(body).resource_metrics
            self.metrics += [metric for each in found for scope in each.scope_metrics for metric in scope.metrics]
        else:
            found = ExportLogsServiceRequest.FromString(body).resource_logs
            self.logs += [line for each in found for scope in each.scope_logs for line in scope.log_records]
        for each in found:
            self.services.add(attributes(each.resource)["service.name"])

    def named(self, start: str) -> list[Any]:
        """Spans whose name begins so."""
        return [span for span in list(self.spans) if span.name.startswith(start)]


def attributes(thing: Any) -> dict[str, Any]:
    """Return the attributes of a span, a log line, a point or a resource."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


def _handler(collector: Collector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if not collector.refuse:
                collector.take(self.path, gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            self.send_response(400 if collector.refuse else 200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Tests need no log of requests."""

    return Handler
