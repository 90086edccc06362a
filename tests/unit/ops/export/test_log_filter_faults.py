"""Faults of telemetry do no harm to the service, and are reported once and without secrets."""

from __future__ import annotations

import logging
import os
import re
from typing import Any

import pytest
from opentelemetry import trace

from shared.ops.export import log_filter
from shared.ops.export import start as start_module
from shared.ops.export.log_filter import AGAIN, ExporterLogFilter, hidden, secrets
from shared.ops.export.service import MetricsPublisher
from shared.ops.export.start import INSIGHTS, OTLP, Exporting
from tests.unit.ops.export.collector import Collector

from .conftest import AT, NO_LISTENER, Lines, Server, read_figures, started

# ---- what is started


def test_one_back_end_that_cannot_be_started_leaves_the_other(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    providers: list[Any] = []
    environ.setattr(trace, "set_tracer_provider", providers.append)
    environ.setenv(OTLP, NO_LISTENER)
    environ.setenv(INSIGHTS, "InstrumentationKey=not-a-key")
    begun.append(started(os.environ))
    assert [outlet.name for outlet in begun[0].outlets] == ["OTLP"] and len(providers) == 1
    [(action, text)] = lines.texts
    assert action == "telemetry_off" and "Application Insights" in text and "Invalid instrumentation key" in text


def test_a_protocol_that_is_not_spoken_is_refused_by_name(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    environ.setenv(OTLP, NO_LISTENER)
    environ.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    begun.append(started(os.environ))
    assert begun[0].outlets == []
    [(action, text)] = lines.texts
    assert action == "telemetry_off" and re.search(r"OTEL_EXPORTER_OTLP_PROTOCOL\b.* grpc\b", text)


@pytest.mark.parametrize(
    ("given", "traces", "metrics", "logs"),
    [
        ({OTLP: NO_LISTENER}, 1, 1, 1),
        ({OTLP: NO_LISTENER, "OTEL_METRICS_EXPORTER": "none", "OTEL_LOGS_EXPORTER": "None"}, 1, 0, 0),
        ({OTLP: NO_LISTENER, "OTEL_TRACES_EXPORTER": "none"}, 0, 1, 1),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": f"{NO_LISTENER}/v1/traces"}, 1, 0, 0),
        ({"OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{NO_LISTENER}/v1/metrics"}, 0, 1, 0),
        (
            {
                "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT": f"{NO_LISTENER}/v1/metrics",
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
    begun.append(started(os.environ))
    assert (len(providers), len(begun[0].outlets), len(logging.getLogger("shared").handlers) - before) == (traces, metrics, logs)


# ---- secrets


def test_headers_that_cannot_be_read_are_not_quoted(environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines) -> None:
    environ.setenv(OTLP, NO_LISTENER)
    environ.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Authorization: Bearer hush-hush, x-team=blue-team")
    begun.append(started(os.environ))
    assert lines.actions == ["telemetry_complaint"] and "Header format invalid" in lines.text
    assert "hush" not in lines.text


async def test_an_endpoint_that_does_not_answer_is_reported_without_its_secrets(
    environ: pytest.MonkeyPatch, begun: list[Exporting], lines: Lines
) -> None:
    environ.setenv("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "http://me:hush-hush@127.0.0.1:9/v1/metrics?key=hush-key")
    begun.append(started(os.environ))
    assert await MetricsPublisher(read_figures, begun[0].outlets).run_once(AT) == {"sent": 0, "unsent": 1}
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
        begun.append(started(os.environ))
        publishing = MetricsPublisher(read_figures, begun[0].outlets, patience=60)
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
        begun.append(started(os.environ))
        assert await MetricsPublisher(read_figures, begun[0].outlets, patience=60).run_once(AT) == {"sent": 0, "unsent": 1}
        assert server.posts == 2
    assert set(lines.actions) == {"telemetry_complaint", "telemetry_unsent"}
    assert [record.name for record in lines.records if record.name.startswith("azure.core")] == [], "a line for every request"


def test_the_end_does_not_wait_for_a_collector_that_does_not_answer(environ: pytest.MonkeyPatch) -> None:
    with Server() as server:
        server.waiting.clear()
        environ.setenv(OTLP, f"http://127.0.0.1:{server.server_port}")
        environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
        environ.setattr(start_module, "CLOSING", 0.05)
        found = started(os.environ)
        logging.getLogger("shared.tests").error("a line", extra={"action": "x"})
        found.close()
        assert server.answers == 0, "it was waited for"


def test_the_end_sends_what_is_left(environ: pytest.MonkeyPatch) -> None:
    environ.setattr(start_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with Collector() as collector:
        environ.setenv(OTLP, collector.url)
        found = started(os.environ)
        logging.getLogger("shared.tests").error("a line", extra={"action": "x"})
        found.close()
        found.close()
        assert [line.body.string_value for line in collector.logs] == ["a line"]
