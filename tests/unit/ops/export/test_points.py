"""Exporting: off unless asked for, the same figures under the same names, log lines with their action, no harm to the service."""

from __future__ import annotations

import gzip
import json
import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.metrics.export import Metric
from opentelemetry.sdk.resources import Resource
from prometheus_client import Metric as Family

from shared.maintenance.rows import AlarmsRow, FleetEvents
from shared.maintenance.service.figures import alarm_props
from shared.ops.export.logs import OtelLogHandler
from shared.ops.export.points import CounterForm, metrics_data
from shared.ops.export.service import MetricsPublisher
from shared.ops.export.start import Exporting
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from shared.scheduler.shard import ledger
from tests.logs import actions
from tests.paths import ROOT
from tests.unit.ops.export.collector import Collector, attributes
from tests.unit.scheduler.harness import World

from .conftest import started

RESOURCE = Resource.create({"service.name": "tocsin"})
AT = 1_700_000_000_000


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector, and an environment that names it."""
    with Collector() as running:
        # The exporters read the process's environment themselves.
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", running.url)
        yield running


@pytest.fixture
def exporting(collector: Collector, monkeypatch: pytest.MonkeyPatch) -> Iterator[Exporting]:
    """Begun with it. The provider stays out of the API, which takes one for good."""
    monkeypatch.setattr(trace, "set_tracer_provider", lambda provider: None)
    found = started({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url})
    yield found
    found.close()


def seen() -> list[Family]:
    """Figures of a tenant that has three deliveries and a dead event behind it."""
    observed = MetricsSnapshot(AT)
    tenant = observed.tenants["acme"] = TenantFigures(overdue=4)
    tenant.total.counts.update(accepted=4, delivered=3, dead=1)
    figures = tenant.total.channels["default"] = ledger.DeliveryFigures()
    figures.dead, figures.total = 1, 1_503
    figures.histogram.update({ledger.bucket_of(1): 2, ledger.bucket_of(1_500): 1})
    return collected(observed)


def points(totals: CounterForm) -> dict[str, Metric]:
    [of_resource] = metrics_data(seen(), AT * 1_000_000, totals, RESOURCE).resource_metrics
    return {metric.name: metric for metric in of_resource.scope_metrics[0].metrics}


def value(metric: Any, **labels: str) -> float:
    [found] = [point.value for point in metric.data.data_points if dict(point.attributes) == labels]
    return float(found)


def test_nothing_is_loaded_without_a_request() -> None:
    unwanted = ("opentelemetry.sdk", "opentelemetry.exporter", "azure.monitor")
    code = f"import sys, function_app; print([name for name in sys.modules if name.startswith({unwanted})])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env={"PATH": ""}, capture_output=True, text=True, timeout=300)
    assert ran.stdout.strip() == "[]", ran.stderr


@pytest.mark.parametrize(
    "given", [{}, {"OTEL_EXPORTER_OTLP_ENDPOINT": " "}, {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://x", "OTEL_SDK_DISABLED": "True"}]
)
def test_it_is_off_unless_an_endpoint_is_named(given: dict[str, str]) -> None:
    found = started(given)
    assert found.outlets == []
    found.close()


def test_a_failed_start_is_reported_and_does_not_end_the_service(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace, "set_tracer_provider", lambda provider: None)
    found = started({"APPLICATIONINSIGHTS_CONNECTION_STRING": "InstrumentationKey=not-a-key"})
    found.close()
    assert found.outlets == []
    assert actions(caplog) == ["telemetry_off"]


def test_counters_are_sums_that_any_process_may_go_on_with() -> None:
    found = points(CounterForm.SUMS)
    finished: Any = found["tocsin_events_finished"].data
    assert finished.is_monotonic and finished.aggregation_temporality == 2
    assert {point.start_time_unix_nano for point in finished.data_points} == {0}
    assert value(found["tocsin_events_finished"], tenant="acme", state="dead") == 1
    assert value(found["tocsin_events_overdue"], tenant="acme") == 4 and found["tocsin_lateness_seconds"].unit == "s"


def test_a_histogram_keeps_its_count_its_sum_and_each_bucket() -> None:
    data: Any = points(CounterForm.SUMS)["tocsin_lateness_seconds"].data
    [point] = data.data_points
    assert dict(point.attributes) == {"tenant": "acme", "channel": "default"}
    assert (point.count, point.sum, sum(point.bucket_counts)) == (3, 1.503, 3)
    assert len(point.bucket_counts) == len(point.explicit_bounds) + 1
    filled = {bound: count for bound, count in zip(point.explicit_bounds, point.bucket_counts, strict=False) if count}
    assert filled == {0.001: 2, 2.0: 1}


def test_a_back_end_that_would_add_totals_up_gets_them_as_gauges() -> None:
    found = points(CounterForm.GAUGES)
    assert not hasattr(found["tocsin_events_finished"].data, "is_monotonic") and "tocsin_lateness_seconds" not in found
    assert value(found["tocsin_events_finished"], tenant="acme", state="dead") == 1


def test_every_family_of_the_text_goes_out_under_its_name() -> None:
    assert set(points(CounterForm.SUMS)) == {family.name for family in seen() if family.samples}


async def test_a_look_of_the_app_reaches_the_collector(collector: Collector, exporting: Exporting) -> None:
    world = await World().open()
    await world.demo.create(delay="PT1H")
    publishing = MetricsPublisher(world.app.metrics.families, exporting.outlets)
    assert await publishing.run_once(AT) == {"sent": 1, "unsent": 0}
    [events] = [metric for metric in collector.metrics if metric.name == "tocsin_events"]
    exported = {(attributes(point)["tenant"], attributes(point)["state"]): point.as_double for point in events.gauge.data_points}
    assert exported["demo", "scheduled"] == 1
    assert {point.time_unix_nano for point in events.gauge.data_points} == {AT * 1_000_000}
    await world.close()


async def test_figures_that_do_not_arrive_are_reported_and_do_no_harm(
    collector: Collector, exporting: Exporting, caplog: pytest.LogCaptureFixture
) -> None:
    collector.refuse = True

    async def look() -> list[Family]:
        return seen()

    assert await MetricsPublisher(look, exporting.outlets).run_once(AT) == {"sent": 0, "unsent": 1}
    assert actions(caplog) == ["telemetry_complaint", "telemetry_unsent"]


def test_a_log_line_goes_out_with_its_action_and_its_trace() -> None:
    kept = InMemoryLogRecordExporter()
    provider = LoggerProvider()
    provider.add_log_record_processor(SimpleLogRecordProcessor(kept))
    logger = logging.getLogger("shared.tests.of.exporting")
    handler = OtelLogHandler(provider)
    logger.addHandler(handler)
    context = trace.SpanContext(1, 2, is_remote=True)
    try:
        with trace.use_span(trace.NonRecordingSpan(context)):
            logger.warning("%d shards", 3, extra={"action": "shards_resent", "count": 3, "rest": ("a",)})
        try:
            raise ValueError("a bug")
        except ValueError:
            logger.exception("It failed", extra={"action": "sweep_failed"})
        logger.debug("Not this", extra={"action": "shard_lost"})
    finally:
        logger.removeHandler(handler)
    first, second = (each.log_record for each in kept.get_finished_logs())
    assert (first.body, first.severity_text, first.trace_id, first.span_id) == ("3 shards", "WARNING", 1, 2)
    assert dict(first.attributes or {}) == {"action": "shards_resent", "count": 3, "rest": "('a',)"}
    exported = dict(second.attributes or {})
    assert exported["action"] == "sweep_failed" and exported["exception.type"] == "ValueError"
    assert "a bug" in str(exported["exception.stacktrace"])


INSIGHTS = """
import logging, os
from types import SimpleNamespace as Some
from shared.core import tracing
from shared.delivery import tracing as delivery_tracing
from shared.delivery.channels.ports import Verdict
from shared.ops.export.start import Exporting
from shared.ops.metrics.families import MetricsSnapshot, TenantFigures, collected
from tests.logs import actions
found = Exporting(os.environ)
found.start()
log = logging.getLogger("shared.x")
log.setLevel(logging.INFO)
with tracing.serving_shard("s1"):
    log.error("stuck", extra={"action": "shard_stuck"})
    try:
        raise ValueError("a bug")
    except ValueError:
        log.exception("It failed", extra={"action": "sweep_failed"})
    delivery = Some(id="e1", attempt=1, late_ms=7, traceparent=None)
    with delivery_tracing.delivering(Some(spec=Some(type="http"), tenant="acme", name="default"), delivery) as span:
        delivery_tracing.delivered(span, Verdict("delivered", 200))
seen = MetricsSnapshot(0, tenants={"acme": TenantFigures()})
assert [each.send(collected(seen), 1700000000000) for each in found.outlets] == [True]
found.close()
"""


def test_application_insights_gets_all_three_and_the_alerts_find_their_fields() -> None:
    bodies: list[bytes] = []

    class Ingestion(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            bodies.append(gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body)
            answer = b'{"itemsReceived": 1, "itemsAccepted": 1, "errors": []}'
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            """Tests need no log of requests."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Ingestion) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        connection = f"InstrumentationKey=11111111-2222-3333-4444-555555555555;IngestionEndpoint=http://127.0.0.1:{server.server_port}/"
        environment = {"PATH": "", "APPLICATIONINSIGHTS_CONNECTION_STRING": connection, "WEBSITE_SITE_NAME": "my-app"}
        command = [sys.executable, "-c", INSIGHTS]
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        server.shutdown()
    assert ran.returncode == 0, ran.stderr
    sent = [item for body in bodies for item in json.loads(body)]
    assert {item["tags"]["ai.cloud.role"] for item in sent} == {"my-app"}
    data = [(item["data"]["baseType"], item["data"]["baseData"]) for item in sent]
    [line] = [each for kind, each in data if kind == "MessageData"]
    assert (line["message"], line["properties"]["action"]) == ("stuck", "shard_stuck")
    # A table of its own, which charts of warnings ask too.
    [failure] = [each for kind, each in data if kind == "ExceptionData"]
    assert (failure["properties"]["action"], failure["severityLevel"]) == ("sweep_failed", 3)
    [detail] = failure["exceptions"]
    assert detail["typeName"] == "ValueError" and "a bug" in detail["stack"]
    assert [each["name"] for kind, each in data if kind == "RequestData"] == ["serve shard"]
    [delivery] = [each for kind, each in data if kind == "RemoteDependencyData"]
    exported = delivery["properties"]
    assert delivery["name"] == "deliver http" and (exported["tocsin.late_ms"], exported["tocsin.attempt"]) == ("7", "1")
    dead = [each for kind, each in data if kind == "MetricData" and each["metrics"][0]["name"] == "tocsin_events_finished"]
    assert {"tenant": "acme", "state": "dead"} in [each["properties"] for each in dead]
    assert {(each["metrics"][0]["value"], each["metrics"][0]["count"]) for each in dead} == {(0, 1)}
    measured = {each["metrics"][0]["name"] for kind, each in data if kind == "MetricData"}
    assert all(name.startswith("tocsin_") for name in measured), "each further row is billed"


def test_alarms_of_maintenance_are_counted_by_kind_whatever_node_they_name() -> None:
    found = alarm_props(FleetEvents({}, {}, None, AlarmsRow(("restore-failed n1", "restore-failed n2", "single-monitor"))))  # type: ignore[arg-type]
    assert found == {"alarms": '{"restore-failed":1,"single-monitor":1}'}
