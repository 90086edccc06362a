"""Starts exporting as the environment asks for it. Called once per process, when the app is loaded.

| in the environment | what it does |
| --- | --- |
| `OTEL_EXPORTER_OTLP_ENDPOINT` | traces, metrics and logs go there by HTTP and protobuf; the other `OTEL_...` names hold too |
| `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `..._METRICS_...`, `..._LOGS_...` | one of the three goes there |
| `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `none`: this one goes nowhere |
| `APPLICATIONINSIGHTS_CONNECTION_STRING` | they go to Application Insights |
| `APPLICATIONINSIGHTS_AUTHENTICATION_STRING` | as whom: `Authorization=AAD;ClientId=...` for an identity |
| `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | how many requests are traced; all unless told |
| `OTEL_SDK_DISABLED` | `true`: nothing of this |

Source: the OpenTelemetry specification's environment variables. Nothing is imported where no endpoint is named.
"""

from __future__ import annotations

import atexit
import logging
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from opentelemetry import context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from prometheus_client import Metric as Family

from ...core import tracing
from ...core.clock import Millis
from .log_filter import ExporterLogFilter, hidden, secrets
from .service import Outlet

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace.export import SpanExporter

    from .points import CounterForm

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
INSIGHTS = "APPLICATIONINSIGHTS_CONNECTION_STRING"
SIGNALS: Final = ("TRACES", "METRICS", "LOGS")
CLOSING: Final = 5.0
"""Seconds that the end waits for what is left to be sent."""
PATIENCE: Final = 10
"""Seconds Application Insights has to answer: the time that OTLP's own exporters give the other side."""
log = logging.getLogger(__name__)
_ROOT = __name__.partition(".")[0]
"""The logger above all of the service's own."""


@dataclass(frozen=True)
class _Exporter:
    """An exporter of figures, as an outlet."""

    name: str
    exporter: MetricExporter
    totals: CounterForm
    resource: Resource

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send them; whether they arrived."""
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from .points import metrics_data

        data = metrics_data(families, now * 1_000_000, self.totals, self.resource)
        # Whoever traces all calls of the process (opentelemetry-instrument) is not to trace these.
        token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            return self.exporter.export(data) is MetricExportResult.SUCCESS
        finally:
            context.detach(token)


@dataclass(frozen=True)
class _Way:
    """A back end: an exporter of each of the three, or None where that one is not wanted there."""

    name: str
    totals: CounterForm
    spans: SpanExporter | None
    figures: MetricExporter | None
    records: LogRecordExporter | None


class Exporting:
    """What was started; nothing at all where nobody asked for it."""

    def __init__(self) -> None:
        self.outlets: list[Outlet] = []
        """Where figures go."""
        self._ends: list[Callable[[], object]] = []
        self._handler: logging.Handler | None = None
        self._complaints: ExporterLogFilter | None = None

    def listen(self, environ: Mapping[str, str]) -> None:
        """From now on what the libraries complain of is told as lines of the service."""
        self._complaints = ExporterLogFilter(environ)
        # The providers' own ways to end with the process may take a minute.
        atexit.register(self.close)

    def trace(self, resource: Resource, exporters: Iterable[SpanExporter]) -> None:
        """From now on spans are made, and go to these."""
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        for exporter in exporters:
            processor = BatchSpanProcessor(exporter)
            provider.add_span_processor(processor)
            self._ends.append(processor.shutdown)
        trace.set_tracer_provider(provider)

    def log(self, resource: Resource, exporters: Iterable[LogRecordExporter]) -> None:
        """From now on log lines of the service go to these too."""
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        from .logs import OtelLogHandler

        provider = LoggerProvider(resource, shutdown_on_exit=False)
        for exporter in exporters:
            processor = BatchLogRecordProcessor(exporter)
            provider.add_log_record_processor(processor)
            self._ends.append(processor.shutdown)
        self._handler = OtelLogHandler(provider)
        logging.getLogger(_ROOT).addHandler(self._handler)

    def measure(self, name: str, exporter: MetricExporter, totals: CounterForm, resource: Resource) -> None:
        """Figures go to this one too."""
        self.outlets.append(_Exporter(name, exporter, totals, resource))
        self._ends.append(exporter.shutdown)

    def close(self) -> None:
        """Send what is left, and end. Blocks for `CLOSING` seconds at most: where the other side does not answer, what is left is lost."""
        atexit.unregister(self.close)
        if self._handler is not None:
            logging.getLogger(_ROOT).removeHandler(self._handler)
        ends, self._ends = self._ends, []
        # Side by side, and none that the interpreter would wait for: each may take half a minute.
        threads = [Thread(target=end, daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        until = monotonic() + CLOSING
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))
        if self._complaints is not None:
            self._complaints.close()


def begin(environ: MutableMapping[str, str]) -> Exporting:
    """Start what the environment asks for. Raises nothing: an app without telemetry is better than none, and the log says why."""
    found = Exporting()
    starts: dict[str, Callable[[MutableMapping[str, str]], _Way]] = {}
    if any(_told(environ, name) for name in (OTLP, *map(_endpoint, SIGNALS))):
        starts["OTLP"] = _otlp
    if _told(environ, INSIGHTS):
        starts["Application Insights"] = _insights
    if not starts or _told(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return found
    # Before the first of them is made: they complain of settings, and quote them.
    found.listen(environ)
    ways: list[_Way] = []
    for name, start in starts.items():
        _tried(name, lambda start=start: ways.append(start(environ)), environ)  # type: ignore[misc]
    if ways:
        _tried("telemetry", lambda: _begin(found, ways, environ), environ)
    return found


def _tried(name: str, what: Callable[[], None], environ: Mapping[str, str]) -> None:
    try:
        what()
    except Exception as error:
        why = hidden(f"{type(error).__name__}: {error}", secrets(environ))
        text = "Telemetry could not be started; the service goes on without %s: %s"
        log.error(text, name, why, extra={"action": "telemetry_off", "outlet": name})


def _begin(found: Exporting, ways: list[_Way], environ: Mapping[str, str]) -> None:
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create(_named(environ))
    for way in ways:
        if way.figures is not None:
            found.measure(way.name, way.figures, way.totals, resource)
    spans = [way.spans for way in ways if way.spans is not None]
    records = [way.records for way in ways if way.records is not None]
    # Somebody else's SDK (opentelemetry-instrument, the worker's) exports spans and logs already; figures only the service has.
    others = tracing.on()
    if spans and not others:
        found.trace(resource, spans)
    if records and not others:
        found.log(resource, records)


def _told(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _endpoint(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"


def _wanted(environ: Mapping[str, str], signal: str) -> bool:
    return _told(environ, f"OTEL_{signal}_EXPORTER").lower() != "none"


def _otlp(environ: MutableMapping[str, str]) -> _Way:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from .points import CounterForm

    wanted = [_wanted(environ, signal) and bool(_told(environ, OTLP) or _told(environ, _endpoint(signal))) for signal in SIGNALS]
    for signal in (signal for signal, each in zip(SIGNALS, wanted, strict=True) if each):
        names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        name = next((name for name in names if _told(environ, name)), None)
        if name is not None and _told(environ, name) != "http/protobuf":
            raise ValueError(f"{name} is {environ[name]}; what is spoken here is http/protobuf")
    traces, metrics, logs = wanted
    return _Way(
        "OTLP",
        CounterForm.SUMS,
        OTLPSpanExporter() if traces else None,
        OTLPMetricExporter() if metrics else None,
        OTLPLogExporter() if logs else None,
    )


def _insights(environ: MutableMapping[str, str]) -> _Way:
    # The exporter tells its maker of itself, and asks it for orders, unless told not to: a deployment talks to its own resource alone.
    for name in ("STATSBEAT_DISABLED_ALL", "SDKSTATS_DISABLED", "CONTROLPLANE_DISABLED"):
        environ.setdefault(f"APPLICATIONINSIGHTS_{name}", "true")
    from azure.core.pipeline.policies import SansIOHTTPPolicy
    from azure.monitor.opentelemetry.exporter import AzureMonitorLogExporter, AzureMonitorMetricExporter, AzureMonitorTraceExporter

    from .points import CounterForm

    options: dict[str, Any] = {
        "connection_string": environ[INSIGHTS],
        # An instance's disk goes with it: what cannot be sent now is not kept there.
        "disable_offline_storage": True,
        # Left to itself it tries ten times within ten minutes, and waits five for an answer; what comes meanwhile is dropped.
        "retry_total": 1,
        "read_timeout": PATIENCE,
        # It logs every request and every answer, at INFO.
        "http_logging_policy": SansIOHTTPPolicy(),
    }
    traces, metrics, logs = (_wanted(environ, signal) for signal in SIGNALS)
    return _Way(
        "Application Insights",
        CounterForm.GAUGES,
        AzureMonitorTraceExporter(**options) if traces else None,
        AzureMonitorMetricExporter(**options) if metrics else None,
        AzureMonitorLogExporter(**options) if logs else None,
    )


def _named(environ: Mapping[str, str]) -> dict[str, str]:
    """The service's name, unless the environment gives one: what is passed to the SDK goes before that."""
    if environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return {}
    return {"service.name": environ.get("WEBSITE_SITE_NAME") or "tocsin"}
