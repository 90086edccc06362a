"""Faults of telemetry do no harm to the service, and are reported once and without secrets."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from prometheus_client import Metric as Family

from shared.core.clock import Millis
from shared.ops.export import log_filter
from shared.ops.export import start as begin_module
from shared.ops.export.log_filter import AGAIN, ExporterLogFilter, hidden, secrets
from shared.ops.export.points import CounterForm
from shared.ops.export.service import MetricsPublisher
from shared.ops.export.start import INSIGHTS, OTLP, Exporting, _Exporter, begin
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from tests.unit.ops.export.collector import Collector, attributes

NOBODY = "http://127.0.0.1:9"
"""An address without a listener."""
AT = 1_700_000_000_000


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The process's environment, which the exporters read themselves. The provider stays out of the API, which takes one for good."""
    monkeypatch.setattr(trace, "set_tracer_provider", lambda provider: None)
    monkeypatch.setattr(begin_module, "CLOSING", 0.0)
    # What is still under way when a test ends must not try for long.
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    yield monkeypatch


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
    """Records that reach the log of the process: its root, and not, as `caplog` does, loggers that keep their lines to themselves."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        """One more."""
        self.records.append(record)

    @property
    def text(self) -> str:
        """All of it."""
        return "\n".join(map(logging.Formatter().format, self.records))

    @property
    def texts(self) -> list[tuple[str, str]]:
        """Actions and sentences of the service's own lines."""
        return [(record.__dict__["action"], record.getMessage()) for record in self.records if record.name.startswith("shared.")]

    @property
    def actions(self) -> list[str]:
        """Actions alone."""
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


async def look() -> list[Family]:
    return figures()


# ---- what is started


def test_one_back_end_that_cannot_be_started_leaves_the_other(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    providers: list[Any] = []
    environ.setattr(trace, "set_tracer_provider", providers.append)
    environ.setenv(OTLP, NOBODY)
    environ.setenv(INSIGHTS, "InstrumentationKey=not-a-key")
    begun.append(begin(os.environ))
    assert [outlet.name for outlet in begun[0].outlets] == ["OTLP"] and len(providers) == 1
    [(action, text)] = lines.texts
    assert action == "telemetry_off" and "Application Insights" in text and "Invalid instrumentation key" in text


def test_a_protocol_that_is_not_spoken_is_refused_by_name(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    environ.setenv(OTLP, NOBODY)
    environ.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    begun.append(begin(os.environ))
    assert begun[0].outlets == []
    [(action, text)] = lines.texts
    assert action == "telemetry_off" and "OTEL_EXPORTER_OTLP_PROTOCOL is grpc" in text


@pytest.mark.parametrize(
    ("given", "traces", "metrics", "logs"),
    [
        ({OTLP: NOBODY}, 1, 1, 1),
        ({OTLP: NOBODY, "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "None"}, 1, 0, 0),
        ({OTLP: NOBODY, "OTEL_TRACES_EXPORTER": "none"}, 0, 1, 1),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{NOBODY}/v1/traces"}, 1, 0, 0),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{NOBODY}/v1/metrics"}, 0, 1, 0),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{NOBODY}/v1/metrics",
                "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc",
                "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "http/protobuf",
            },
            *(0, 1, 0),
        ),
    ],
)
def test_each_of_the_three_can_be_left_out(
    environ: pytest.MonkeyPatch, begun: list[Exporting], given: dict[str, str], traces: int, metrics: int, logs: int
) -> None:
    providers: list[Any] = []
    environ.setattr(trace, "set_tracer_provider", providers.append)
    for name, value in given.items():
        environ.setenv(name, value)
    before = len(logging.getLogger("shared").handlers)
    begun.append(begin(os.environ))
    assert (len(providers), len(begun[0].outlets), len(logging.getLogger("shared").handlers) - before) == (traces, metrics, logs)


# ---- secrets


def test_headers_that_cannot_be_read_are_not_quoted(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    environ.setenv(OTLP, NOBODY)
    environ.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer hush-hush, x-team=blue-team")
    begun.append(begin(os.environ))
    assert lines.actions == ["telemetry_complaint"] and "Header format invalid" in lines.text
    assert "hush" not in lines.text


async def test_an_endpoint_that_does_not_answer_is_reported_without_its_secrets(
    environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines
) -> None:
    environ.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://me:hush-hush@127.0.0.1:9/v1/metrics?key=hush-key")
    begun.append(begin(os.environ))
    assert await MetricsPublisher(look, begun[0].outlets).run_once(AT) == {"sent": 0, "unsent": 1}
    assert {"telemetry_complaint", "telemetry_unsent"} == set(lines.actions)
    assert "hush" not in lines.text


@pytest.mark.parametrize(
    ("environment", "text", "shown"),
    [
        ({"OTEL_EXPORTER_OTLP_HEADERS": "api-key=c2VjcmV0%20x"}, "sent 'c2VjcmV0 x'", "sent '***'"),
        ({"OTEL_EXPORTER_OTLP_HEADERS": "k=ab%0Acd"}, "in header value: 'ab\\ncd'", "in header value: '***'"),
        ({"OTEL_EXPORTER_OTLP_LOGS_HEADERS": "k=abcd,api-key=secret"}, "secret of abcd", "*** of ***"),
        ({OTLP: "https://user:passw@host/x"}, "Invalid URL 'user:passw@host/x', passw", "Invalid URL '***@host/x', ***"),
        ({OTLP: "https://host/x?code=abc"}, "url: /x?code=abc (Caused", "url: /x?*** (Caused"),
        ({OTLP: "http://[x"}, "http://[x is no URL", "*** is no URL"),
        ({}, "to https://a:b@c/d?e=f", "to https://***@c/d?***"),
        ({}, "why? because", "why? because"),
        ({}, "x" * 1_000, "x" * 500),
    ],
)
def test_secrets_are_hidden(environment: dict[str, str], text: str, shown: str) -> None:
    assert hidden(text, secrets(environment)) == shown


# ---- the back end fails


def test_a_sentence_is_reported_once_in_ten_minutes(lines: Lines) -> None:
    now = 0.0
    listening = ExporterLogFilter({}, lambda: now)
    source = logging.getLogger("opentelemetry.exporter.x")
    try:
        source.info("all is well")
        for number in range(3):
            source.warning("batch %d failed", number)
        source.error("another")
        now = AGAIN
        source.warning("batch %d failed", 7)
        for number in range(200):
            source.warning(f"made of {number}")
    finally:
        listening.close()
    texts = [text for _, text in lines.texts]
    assert texts[:3] == ["Telemetry: batch 0 failed", "Telemetry: another", "Telemetry: batch 7 failed"] and len(texts) == 203
    assert source.name not in {record.name for record in lines.records}, "the original line is not logged too"
    assert logging.getLogger("opentelemetry").propagate and logging.getLogger("opentelemetry").handlers == []


def test_a_complaint_within_a_complaint_ends(lines: Lines) -> None:
    class Full(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            logging.getLogger("opentelemetry.sdk").warning("Queue full, dropping %s.", "logs")

    listening, full = ExporterLogFilter({}), Full()
    log_filter.log.addHandler(full)
    try:
        logging.getLogger("opentelemetry.exporter").error("away")
    finally:
        log_filter.log.removeHandler(full)
        listening.close()
    assert {text for _, text in lines.texts} == {"Telemetry: away", "Telemetry: Queue full, dropping logs."}


@pytest.mark.parametrize("status", [400, 404, 500])
async def test_a_collector_that_refuses_is_reported_once(
    environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines, status: int
) -> None:
    with Server(status) as server:
        environ.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", f"http://127.0.0.1:{server.server_port}/v1/metrics")
        environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        begun.append(begin(os.environ))
        publishing = MetricsPublisher(look, begun[0].outlets, patience=60)
        for _ in range(3):
            assert await publishing.run_once(AT) == {"sent": 0, "unsent": 1}
        server.status = 200
        assert await publishing.run_once(AT) == {"sent": 1, "unsent": 0}
    assert lines.actions == ["telemetry_complaint", "telemetry_unsent", "telemetry_resumed"]
    assert str(status) in lines.text


async def test_application_insights_that_is_unavailable_is_asked_twice_and_not_for_minutes(
    environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines
) -> None:
    with Server(503) as server:
        for signal in ("TRACES", "LOGS"):
            environ.setenv(f"OTEL_{signal}_EXPORTER", "none")
        ingestion = f"http://127.0.0.1:{server.server_port}/"
        environ.setenv(INSIGHTS, f"InstrumentationKey=11111111-2222-3333-4444-555555555555;IngestionEndpoint={ingestion}")
        begun.append(begin(os.environ))
        assert await MetricsPublisher(look, begun[0].outlets, patience=60).run_once(AT) == {"sent": 0, "unsent": 1}
        assert server.posts == 2
    assert set(lines.actions) == {"telemetry_complaint", "telemetry_unsent"}
    assert [record.name for record in lines.records if record.name.startswith("azure.core")] == [], "a line for every request"


def test_the_end_does_not_wait_for_a_collector_that_does_not_answer(environ: pytest.MonkeyPatch) -> None:
    with Server() as server:
        server.waiting.clear()
        environ.setenv(OTLP, f"http://127.0.0.1:{server.server_port}")
        environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        environ.setattr(begin_module, "CLOSING", 0.05)
        found = begin(os.environ)
        logging.getLogger("shared.tests").error("a line", extra={"action": "x"})
        found.close()
        assert server.answers == 0, "it was waited for"


def test_the_end_sends_what_is_left(environ: pytest.MonkeyPatch) -> None:
    environ.setattr(begin_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with Collector() as collector:
        environ.setenv(OTLP, collector.url)
        found = begin(os.environ)
        logging.getLogger("shared.tests").error("a line", extra={"action": "x"})
        found.close()
        found.close()
        assert [line.body.string_value for line in collector.logs] == ["a line"]


# ---- the service


class Outlet:
    """An exporter that answers as the test sets."""

    name = "it"

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.goes = threading.Event()
        self.goes.set()

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """The next answer."""
        self.asked += 1
        self.goes.wait(60)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_an_outlet_that_hangs_holds_up_neither_the_timer_nor_is_joined_by_another_thread() -> None:
    outlet, other = Outlet(), Outlet()
    outlet.goes.clear()
    publishing = MetricsPublisher(look, (outlet, other), patience=0.05)
    for _ in range(3):
        assert (await publishing.run_once(AT))["unsent"] >= 1
    assert outlet.asked == 1
    outlet.goes.set()
    patient = MetricsPublisher(look, (outlet, other), patience=60)
    assert await patient.run_once(AT) == {"sent": 2, "unsent": 0}


async def test_an_outlet_that_is_away_is_reported_when_it_begins_and_when_it_is_over(lines: Lines) -> None:
    publishing = MetricsPublisher(look, [Outlet(True, False, False, True, True, False)], patience=60)
    counts = [(await publishing.run_once(AT))["sent"] for _ in range(6)]
    assert counts == [1, 0, 0, 1, 1, 0]
    assert lines.actions == ["telemetry_unsent", "telemetry_resumed", "telemetry_unsent"]


async def test_an_exporter_that_breaks_leaves_the_others_and_says_so_with_its_trace(lines: Lines) -> None:
    publishing = MetricsPublisher(look, (Outlet(RuntimeError("a bug")), Outlet()), patience=60)
    assert await publishing.run_once(AT) == {"sent": 1, "unsent": 1}
    assert lines.actions == ["telemetry_failed", "telemetry_unsent"] and "a bug" in lines.text


def test_sending_figures_is_not_traced_even_where_all_calls_are() -> None:
    seen: list[object] = []

    class Exporter:
        def export(self, data: object) -> MetricExportResult:
            seen.append(context.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
            return MetricExportResult.SUCCESS

    exporter: Any = Exporter()
    assert _Exporter("it", exporter, CounterForm.SUMS, Resource.get_empty()).send(figures(), AT)
    assert seen == [True] and context.get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


# ---- log lines


def handed_over(**record: Any) -> None:
    """Hand a record to the handler of the service's lines, and to no other: a test run cannot show all of them."""
    [handler] = [each for each in logging.getLogger("shared").handlers if type(each).__module__ == "shared.ops.export.logs"]
    handler.handle(logging.makeLogRecord({"name": "shared.x", "levelno": logging.ERROR, "action": "x", **record}))


def test_a_line_that_cannot_be_written_does_no_harm_to_its_neighbours(environ: pytest.MonkeyPatch) -> None:
    environ.setattr(begin_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    error = ValueError("\ud800")
    with Collector() as collector:
        environ.setenv(OTLP, collector.url)
        found = begin(os.environ)
        handed_over(msg="before")
        handed_over(msg="half a \ud800 pair", big=2**70, name_of="\udcff", small=-5)
        handed_over(msg="with a trace", exc_info=(ValueError, error, None))
        handed_over(msg="after")
        found.close()
        assert [line.body.string_value for line in collector.logs] == ["before", "half a ? pair", "with a trace", "after"]
        given = attributes(collector.logs[1])
        assert (given["big"], given["name_of"], given["small"]) == (str(2**70), "?", -5)
        assert attributes(collector.logs[2])["exception.message"] == "?"


def test_a_line_that_cannot_even_be_put_together_does_not_reach_the_code_that_logs_it(
    environ: pytest.MonkeyPatch, begun: list[Exporting]
) -> None:
    environ.setattr(logging, "raiseExceptions", False)
    environ.setenv(OTLP, NOBODY)
    begun.append(begin(os.environ))
    handed_over(msg="%d", args=("no number",))
