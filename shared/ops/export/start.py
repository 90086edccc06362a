"""Starts the exporters that the environment configures, in a thread, soon after the first invocation of the process has begun.

They bring protobuf, and that has crashed the production worker where it was imported while the worker indexed functions
(azure-functions-python-worker, issues 1797 and 1858): all functions of the app vanish. Log lines and spans from before are kept and sent
then. The first invocation waits only until spans are recorded, and the one that sends the metrics until there is an exporter for them.

| variable | effect |
| --- | --- |
| `OTEL_EXPORTER_OTLP_ENDPOINT` | traces, metrics and logs are sent there by HTTP and protobuf; the other `OTEL_...` variables apply too |
| `OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`, `..._METRICS_...`, `..._LOGS_...` | one of the three is sent there |
| `OTEL_TRACES_EXPORTER`, `OTEL_METRICS_EXPORTER`, `OTEL_LOGS_EXPORTER` | `none`: this one is not sent |
| `APPLICATIONINSIGHTS_CONNECTION_STRING` | all three are sent to Application Insights |
| `APPLICATIONINSIGHTS_AUTHENTICATION_STRING` | the identity to use: `Authorization=AAD;ClientId=...` |
| `OTEL_TRACES_SAMPLER`, `OTEL_TRACES_SAMPLER_ARG` | the share of requests that is traced; by default all |
| `OTEL_METRIC_EXPORT_INTERVAL` | milliseconds between two exports of the metrics, in steps of a minute; by default `PERIODS` |
| `OTEL_SDK_DISABLED` | `true`: nothing is exported |

The variables follow the OpenTelemetry specification. Nothing is imported without an endpoint.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ...core import tracing
from ...core.clock import Millis
from .early_lines import EarlyLines
from .host_log import HostLog, enter_invocation
from .log_filter import ExporterLogFilter, hidden, secrets
from .service import Outlet

if TYPE_CHECKING:
    from opentelemetry.sdk._logs.export import LogRecordExporter
    from opentelemetry.sdk.metrics.export import MetricExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import SpanProcessor
    from opentelemetry.sdk.trace.export import SpanExporter
    from prometheus_client import Metric as Family

    from .early_spans import EarlySpans
    from .points import CounterForm

OTLP = "OTEL_EXPORTER_OTLP_ENDPOINT"
INSIGHTS = "APPLICATIONINSIGHTS_CONNECTION_STRING"
SIGNALS: Final = ("TRACES", "METRICS", "LOGS")
START_AFTER: Final = 2.0
"""Seconds from the first invocation to the start: its imports would delay the first event of a process that was started for it."""
CLOSING: Final = 5.0
"""Seconds that `close` waits for the remaining data to be sent."""
PERIODS: Final[Mapping[str, Millis]] = {"OTLP": 60_000, "Application Insights": 300_000}
"""Milliseconds between two exports of the metrics, by back end. Application Insights stores a row for each value, and charges for it."""
PATIENCE: Final = 10
"""Seconds to wait for an answer of Application Insights: the default of the OTLP exporters."""
log = logging.getLogger(__name__)
_ROOT = __name__.partition(".")[0]
"""The parent of all loggers of the service."""
EXPORTED: Final = {_ROOT: logging.INFO, "azure": logging.WARNING, "aiohttp": logging.WARNING, "asyncio": logging.WARNING}
"""The loggers whose lines are exported, or printed for the host, with the lowest level."""
TRACE: Final = "TOCSIN_TRACE"


@dataclass(frozen=True)
class _Exporter:
    """An exporter of metrics, as an outlet."""

    name: str
    exporter: MetricExporter
    totals: CounterForm
    resource: Resource
    period: Millis

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """Send the families and return True if they arrived."""
        from opentelemetry import context
        from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from .points import metrics_data

        data = metrics_data(families, now * 1_000_000, self.totals, self.resource)
        # Instrumentation of the whole process (opentelemetry-instrument) must not trace these calls.
        token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
        try:
            return self.exporter.export(data) is MetricExportResult.SUCCESS
        finally:
            context.detach(token)


@dataclass(frozen=True)
class _Way:
    """A back end: an exporter for each of the three signals, or None for a signal that is not sent there."""

    name: str
    totals: CounterForm
    spans: SpanExporter | None
    figures: MetricExporter | None
    records: LogRecordExporter | None


class Exporting:
    """The exporters that the environment configures, if any. Until `start` nothing of them is imported."""

    def __init__(self, environ: MutableMapping[str, str], app: Path | None = None) -> None:
        """app: the folder of the app, with host.json, if a Functions host runs this process. Lines that no exporter takes are then written
        where the host shows them, and lines that one takes do not reach the host."""
        self.outlets: list[Outlet] = []
        """The receivers of the metrics; empty until the start."""
        self._environ = environ
        self._ends: list[Callable[[], object]] = []
        self._complaints: ExporterLogFilter | None = None
        self._ways = _configured(environ)
        self._app = app
        wanted = EXPORTED if self._ways or app is not None else {}
        hosts = {name: HostLog(library=name != _ROOT) for name in wanted} if app is not None else {}
        self._lines = {name: EarlyLines(name, level, hosts.get(name)) for name, level in wanted.items()}
        self._logging = False
        self._started = not self._ways
        self._lock = Lock()
        self.others = False
        """True if another SDK in this process (opentelemetry-instrument, the worker's) already exports spans and logs."""
        self._recorded = False
        self._spans: EarlySpans | None = None
        self._processors: list[SpanProcessor] = []
        self._recording: asyncio.Task[None] | None = None
        self._starting: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()
        if self._ways:
            # A process may end before the start.
            atexit.register(self.close)
        else:
            self._leave_lines_to_host()

    async def on_call(self) -> None:
        """Record spans from the first invocation of this process on, and plan the start of the exporters. Every call awaits this first."""
        enter_invocation()
        if not self._started:
            await self._plan()

    async def _plan(self) -> None:
        if self._recording is None:
            self._recording = asyncio.create_task(asyncio.to_thread(self.record))
            self._starting = asyncio.create_task(self._start_soon(self._recording))
        await asyncio.shield(self._recording)

    async def started(self) -> None:
        """Start the exporters now, if they have not started yet, and wait until they have. The loop goes on meanwhile."""
        if not self._started:
            await self._plan()
        self._wanted.set()
        if self._starting is not None:
            await asyncio.shield(self._starting)

    async def _start_soon(self, recording: asyncio.Task[None]) -> None:
        await recording
        with suppress(TimeoutError):
            await asyncio.wait_for(self._wanted.wait(), START_AFTER)
        await asyncio.to_thread(self.start)

    def record(self) -> None:
        """Create spans, and keep them for the exporters. Raises nothing."""
        with self._lock:
            if not self._recorded:
                self._recorded = True
                self.others = tracing.on()
                if not self.others and _exports_spans(self._environ):
                    _tried("traces", self._record, self._environ)

    def _record(self) -> None:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        from .early_spans import EarlySpans

        spans = EarlySpans()
        provider = TracerProvider(resource=Resource.create(_named(self._environ)), shutdown_on_exit=False)
        provider.add_span_processor(spans)
        trace.set_tracer_provider(provider)
        self._spans = spans

    def start(self) -> None:
        """Start the exporters. Raises nothing: the app runs without telemetry, and the log gives the reason."""
        self.record()
        with self._lock:
            if not self._started:
                self._start()

    def _start(self) -> None:
        # Before the first exporter exists: exporters log and quote wrong settings.
        self.listen(self._environ)
        ways: list[_Way] = []
        for name, start in self._ways.items():
            _tried(name, lambda start=start: ways.append(start(self._environ)), self._environ)  # type: ignore[misc]
        if ways:
            _tried("telemetry", lambda: _begin(self, ways, self._environ), self._environ)
        if not self._logging:
            self._leave_lines_to_host()
        if self._spans is not None:
            self._spans.pass_to(self._processors)
        # They live as long as the process.
        gc.freeze()
        self._started = True

    @contextmanager
    def import_failures(self) -> Iterator[None]:
        """Send an exception that ends the import of the app to the back end of log lines. There are no functions left to lose."""
        try:
            yield
        except Exception:
            log.critical("The app could not be imported; it has no functions", exc_info=True, extra={"action": "app_import_failed"})
            self.start()
            self.close()
            raise

    def listen(self, environ: Mapping[str, str]) -> None:
        """Log the warnings of the exporting libraries as lines of the service."""
        self._complaints = ExporterLogFilter(environ)

    def trace(self, exporters: Iterable[SpanExporter]) -> None:
        """Send spans to these exporters too, those from before included."""
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        for exporter in exporters:
            processor = BatchSpanProcessor(exporter)
            self._processors.append(processor)
            self._ends.append(processor.shutdown)

    def log(self, resource: Resource, exporters: Iterable[LogRecordExporter]) -> None:
        """Send log lines of the service, and warnings of the libraries that send its requests, to these exporters too."""
        from opentelemetry.sdk._logs import LoggerProvider
        from opentelemetry.sdk._logs.export import BatchLogRecordProcessor

        from .logs import LibraryLogHandler, OtelLogHandler

        provider = LoggerProvider(resource, shutdown_on_exit=False)
        for exporter in exporters:
            processor = BatchLogRecordProcessor(exporter)
            provider.add_log_record_processor(processor)
            self._ends.append(processor.shutdown)
        own, libraries = OtelLogHandler(provider), LibraryLogHandler(provider)
        for name, lines in self._lines.items():
            lines.pass_to(own if name == _ROOT else libraries)
        self._logging = True

    def _leave_lines_to_host(self) -> None:
        for lines in self._lines.values():
            lines.pass_to_host()
        if self._app is None or _setting(self._environ, TRACE) in ("", "off"):
            return
        import orjson

        from .host_log import CONSOLE, OVERRIDE, log_levels, lowest_level

        try:
            host = orjson.loads((self._app / "host.json").read_bytes())
        except (OSError, orjson.JSONDecodeError):
            # The host reads comments too. Whatever is in the file, the app runs.
            host = {}
        if lowest_level(log_levels(host, self._environ), CONSOLE) > logging.INFO:
            text = (
                "%s is on, but nobody sees the trace: no exporter takes it, and the host leaves out lines of %s below its level. "
                "Name an exporter's endpoint, or set %s to Information."
            )
            log.warning(text, TRACE, CONSOLE, OVERRIDE + CONSOLE, extra={"action": "trace_unseen"})

    def measure(self, name: str, exporter: MetricExporter, totals: CounterForm, resource: Resource) -> None:
        """Send the metrics to this exporter too. Raises `ValueError` if the environment's period is not a whole number."""
        period = _setting(self._environ, "OTEL_METRIC_EXPORT_INTERVAL")
        self.outlets.append(_Exporter(name, exporter, totals, resource, int(period) if period else PERIODS[name]))
        self._ends.append(exporter.shutdown)

    def close(self) -> None:
        """Send the remaining data and stop; later lines go to the host, if one runs this process.

        Blocks for at most `CLOSING` seconds; data that cannot be sent by then is lost. It runs when the process ends: the providers' own
        exit handlers may take a minute.
        """
        atexit.unregister(self.close)
        # A process that was called may end before the start. The lines of one that was never called go to the host.
        if self._recorded and (any(lines.kept for lines in self._lines.values()) or (self._spans is not None and self._spans.kept)):
            self.start()
        for lines in self._lines.values():
            lines.pass_to_host()
        ends, self._ends = self._ends, []
        # In parallel and in daemon threads: each exporter may take half a minute.
        threads = [Thread(target=end, daemon=True) for end in ends]
        for thread in threads:
            thread.start()
        until = monotonic() + CLOSING
        for thread in threads:
            thread.join(max(0.0, until - monotonic()))
        if self._complaints is not None:
            self._complaints.close()


def _configured(environ: Mapping[str, str]) -> dict[str, Callable[[MutableMapping[str, str]], _Way]]:
    """Return the function that starts each back end that the environment names, by the back end's name."""
    if _setting(environ, "OTEL_SDK_DISABLED").lower() == "true":
        return {}
    found: dict[str, Callable[[MutableMapping[str, str]], _Way]] = {}
    if any(_setting(environ, name) for name in (OTLP, *map(_endpoint, SIGNALS))):
        found["OTLP"] = _otlp
    if _setting(environ, INSIGHTS):
        found["Application Insights"] = _insights
    return found


def _tried(name: str, what: Callable[[], None], environ: Mapping[str, str]) -> None:
    try:
        what()
    except Exception as error:
        why = hidden(f"{type(error).__name__}: {error}", secrets(environ))
        text = "Telemetry could not be started; the service runs without %s: %s"
        log.error(text, name, why, extra={"action": "telemetry_off", "outlet": name})


def _begin(found: Exporting, ways: list[_Way], environ: Mapping[str, str]) -> None:
    from opentelemetry.sdk.resources import Resource

    resource = Resource.create(_named(environ))
    for way in ways:
        if way.figures is not None:
            found.measure(way.name, way.figures, way.totals, resource)
    spans = [way.spans for way in ways if way.spans is not None]
    records = [way.records for way in ways if way.records is not None]
    # Another SDK already exports spans and logs; only the service has the metrics.
    if spans and not found.others:
        found.trace(spans)
    if records and not found.others:
        found.log(resource, records)


def _setting(environ: Mapping[str, str], name: str) -> str:
    return environ.get(name, "").strip()


def _endpoint(signal: str) -> str:
    return f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT"


def _wanted(environ: Mapping[str, str], signal: str) -> bool:
    return _setting(environ, f"OTEL_{signal}_EXPORTER").lower() != "none"


def _exports_spans(environ: Mapping[str, str]) -> bool:
    named = any(_setting(environ, name) for name in (OTLP, _endpoint("TRACES"), INSIGHTS))
    return named and _wanted(environ, "TRACES") and bool(_configured(environ))


def _otlp(environ: MutableMapping[str, str]) -> _Way:
    from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    from .points import CounterForm

    wanted = [_wanted(environ, signal) and bool(_setting(environ, OTLP) or _setting(environ, _endpoint(signal))) for signal in SIGNALS]
    for signal in (signal for signal, each in zip(SIGNALS, wanted, strict=True) if each):
        names = (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
        name = next((name for name in names if _setting(environ, name)), None)
        if name is not None and _setting(environ, name) != "http/protobuf":
            raise ValueError(f"{name} is {environ[name]}; only http/protobuf is supported")
    traces, metrics, logs = wanted
    return _Way(
        "OTLP",
        CounterForm.SUMS,
        OTLPSpanExporter() if traces else None,
        OTLPMetricExporter() if metrics else None,
        OTLPLogExporter() if logs else None,
    )


def _insights(environ: MutableMapping[str, str]) -> _Way:
    # By default the exporter sends statistics about itself to Microsoft and asks it for configuration. A deployment talks only to its own
    # resource.
    # It also adds a metric to each batch of spans, which Tocsin does not use.
    for name in ("STATSBEAT_DISABLED_ALL", "SDKSTATS_DISABLED", "CONTROLPLANE_DISABLED", "OPENTELEMETRY_RESOURCE_METRIC_DISABLED"):
        environ.setdefault(f"APPLICATIONINSIGHTS_{name}", "true")
    from azure.core.pipeline.policies import SansIOHTTPPolicy
    from azure.monitor.opentelemetry.exporter import AzureMonitorLogExporter, AzureMonitorMetricExporter, AzureMonitorTraceExporter

    from .points import CounterForm

    options: dict[str, Any] = {
        "connection_string": environ[INSIGHTS],
        # The disk of an instance is lost with the instance, so unsent data is not stored there.
        "disable_offline_storage": True,
        # By default it retries ten times within ten minutes and waits five minutes for an answer; data of that time is dropped.
        "retry_total": 1,
        "read_timeout": PATIENCE,
        # The default policy logs every request and answer at INFO.
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
    """Return the service's name, unless the environment gives one: attributes passed to the SDK would override it."""
    if environ.get("OTEL_SERVICE_NAME") or "service.name=" in environ.get("OTEL_RESOURCE_ATTRIBUTES", ""):
        return {}
    return {"service.name": environ.get("WEBSITE_SITE_NAME") or "tocsin"}
