"""A collector of OTLP over HTTP with JSON: what is sent, decoded by the protocol's own classes."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from google.protobuf import json_format
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest


class JsonCollector:
    """`with JsonCollector() as collector`. answers: statuses of the next requests, then 200. Lines of other requests are not kept."""

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.lines: list[dict[str, Any]] = []
        self.resources: list[dict[str, Any]] = []
        self.requests: list[dict[str, str]] = []
        """Header fields of each request, by name in lower case, and its `path`."""
        self.changed = threading.Condition()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def wait_for(self, what: Any) -> None:
        """Wait until `what` returns true."""
        with self.changed:
            assert self.changed.wait_for(what, 60), (self.requests, self.lines)

    def take(self, headers: dict[str, str], body: bytes) -> int:
        with self.changed:
            self.requests.append(headers)
            status = self.answers.pop(0) if self.answers else 200
            if status == 200:
                for each in json_format.Parse(body, ExportLogsServiceRequest()).resource_logs:
                    self.resources.append(_values(each.resource.attributes))
                    for scope in each.scope_logs:
                        for line in scope.log_records:
                            named = {"text": line.body.string_value, "severity": line.severity_number, "at_ns": line.time_unix_nano}
                            self.lines.append({"logger": scope.scope.name, **named, **_values(line.attributes)})
            self.changed.notify_all()
            return status


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _handler(collector: JsonCollector) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            headers = {name.lower(): value for name, value in self.headers.items()} | {"path": self.path}
            self.send_response(collector.take(headers, body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            """Tests need no log of requests."""

    return Handler
