"""Starts exporting as the environment asks for it. Called once per process, when the app is loaded.

| in the environment | what it does |
| --- | --- |
| `OTEL_EXPORTER_OTLP_ENDPOINT` | traces, metrics and logs go there by HTTP and protobuf; the other `OTEL_...` names hold too |
| `APPLICATIONINSIGHTS_CONNECTION_STRING` | they go to Application Insights |
| `APPLICATIONINSIGHTS_AUTHENTICATION_STRING` | as whom: `Authorization=AAD;ClientId=...` for an identity |
| `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | how many requests are traced; all unless told |
| `OTEL_SDK_DISABLED` | `true`: nothing of this |

Source: the OpenTelemetry specification's environment variables. Nothing is imported where neither endpoint is named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from opentelemetry import trace
from prometheus_client import Metric as Family

from .. import telemetry
from ..clock import Millis
from .service import Outlet

if TYPE_CHECKING:
    from opentelemetry.sdk._logs import LoggerProvider
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SpanExporter

    from .points import Totals

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
INSIGHTS = "APPLICATIONINSIGHTS_CONNECTION_STRING"
log = logging.getLogger(__name__)
_ROOT = __name__.partition(".")[0]
"""The logger above all of the service's own."""


@dataclass(frozen=True)
class _Exporter:
    """An exporter of figures, as an outlet."""

    name: str
    exporter: MetricExporter
    totals: Totals
    resource: Resource

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send them; whether they arrived."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from .points import metrics_data

        data = metrics_data(families, now * 1_000_000, self.totals, self.resource)
        return self.exporter.export(data) is MetricExportResult.SUCCESS


class Exporting:
    """What was started; nothing at all where nobody asked for it."""

    def __init__(self) -> None:
        self.outlets: list[Outlet] = []
        """Where figures go."""
        self._providers: list[TracerProvider | LoggerProvider] = []
        self._exporters: list[MetricExporter] = []
        self._handler: logging.Handler | None = None

    def trace(self, resource: Resource, exporters: Iterable[SpanExporter]) -> None:
        """From now on spans are made, and go to these."""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=resource)
        for exporter in exporters:
            provider.add_span_processor(BatchSpanProcessor(exporter))
        trace.set_tracer_provider(provider)
        self._providers.append(provider)

    def log(self, resource: Resource, exporters: Iterable[LogRecordExporter]) -> None:
        """From now on log lines of the service go to these too."""
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        from .logs import Handler

        provider = LoggerProvider(resource)
        for exporter in exporters:
            provider.add_log_record_processor(BatchLogRecordProcessor(exporter))
        self._handler = Handler(provider)
        logging.getLogger(_ROOT).addHandler(self._handler)
        self._providers.append(provider)

    def measure(self, name: str, exporter: MetricExporter, totals: Totals, resource: Resource) -> None:
        """Figures go to this one too."""
        self.outlets.append(_Exporter(name, exporter, totals, resource))
        self._exporters.append(exporter)

    def close(self) -> None:
        """Send what is left, and end. Blocks for some seconds where the other side does not answer."""
        if self._handler is not None:
            logging.getLogger(_ROOT).removeHandler(self._handler)
        for provider in self._providers:
            provider.shutdown()
        for exporter in self._exporters:
            exporter.shutdown()


def begin(environ: MutableMapping[str, str]) -> Exporting:
    """Start what the environment asks for. Raises nothing: an app without telemetry is better than none, and the log says why."""
    found = Exporting()
    asked = [name for name in (OTLP, INSIGHTS) if environ.get(name, "").strip()]
    if not asked or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return found
    try:
        _start(found, environ, asked)
    except Exception:
        log.exception("Telemetry could not be started; the service goes on without", extra={"action": "telemetry_off"})
    return found


def _start(found: Exporting, environ: MutableMapping[str, str], asked: list[str]) -> None:
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create(_named(environ))
    spans: list[SpanExporter] = []
    records: list[LogRecordExporter] = []
    if OTLP in asked:
        _otlp(found, spans, records, resource)
    if INSIGHTS in asked:
        _insights(found, spans, records, resource, environ)
    # Somebody else's SDK (opentelemetry-instrument, the worker's) exports spans and logs already; figures only the service has.
    if not telemetry.on():
        found.trace(resource, spans)
        found.log(resource, records)


def _otlp(found: Exporting, spans: list[SpanExporter], records: list[LogRecordExporter], resource: Resource) -> None:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from .points import Totals

    spans.append(OTLPSpanExporter())
    records.append(OTLPLogExporter())
    found.measure("OTLP", OTLPMetricExporter(), Totals.SUMS, resource)


def _insights(
    found: Exporting, spans: list[SpanExporter], records: list[LogRecordExporter], resource: Resource, environ: MutableMapping[str, str]
) -> None:
    # The exporter tells its maker of itself, and asks it for orders, unless told not to: a deployment talks to its own resource alone.
    for name in ("STATSBEAT_DISABLED_ALL", "SDKSTATS_DISABLED", "CONTROLPLANE_DISABLED"):
        environ.setdefault(f"APPLICATIONINSIGHTS_{name}", "true")
    from azure.monitor.opentelemetry.exporter import AzureMonitorLogExporter, AzureMonitorMetricExporter, AzureMonitorTraceExporter

    from .points import Totals

    # An instance's disk goes with it: what cannot be sent now is not kept there.
    options: dict[str, Any] = {"connection_string": environ[INSIGHTS], "disable_offline_storage": True}
    spans.append(AzureMonitorTraceExporter(**options))
    records.append(AzureMonitorLogExporter(**options))
    found.measure("Application Insights", AzureMonitorMetricExporter(**options), Totals.GAUGES, resource)


def _named(environ: Mapping[str, str]) -> dict[str, str]:
    """The service's name, unless the environment gives one: what is passed to the SDK goes before that."""
    if environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return {}
    return {"service.name": environ.get("WEBSITE_SITE_NAME") or "tocsin"}
