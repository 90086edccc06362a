"""The spans and contexts behind `tracing`, by the API of OpenTelemetry. `tracing` imports this where there is something to trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

HEADER = "traceparent"
_NAME = "tocsin"
_LONGEST = 512
_NOT_RECORDED = tuple("02468ace")
"""Last characters of a `traceparent` whose lowest bit says that the trace is not recorded."""
_W3C = TraceContextTextMapPropagator()


def provided() -> bool:
    """Return True when an SDK is configured."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


@contextmanager
def serving(name: str, method: str, template: str, headers: Mapping[str, str]) -> Iterator[Span | None]:
    """See `tracing.serving`."""
    parent = _context_of(headers[HEADER]) if HEADER in headers else None
    if not provided():
        token = otel_context.attach(parent) if parent is not None else None
        try:
            yield None
        finally:
            if token is not None:
                otel_context.detach(token)
        return
    attributes = {"http.request.method": method, "http.route": f"/api/{template}", "faas.name": name}
    tracer = trace.get_tracer(_NAME)
    with tracer.start_as_current_span(f"{method} /api/{template}", parent, SpanKind.SERVER, attributes) as span:
        yield span


def answered(span: Span, status: int) -> None:
    """Record the status of the answer in the span."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


def current(*, recorded: bool = True) -> str | None:
    """See `tracing.current`."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    text = _text(otel_context.get_current())
    return text if recorded or text is None or not provided() else f"{text[:-2]}{int(text[-2:], 16) & ~1:02x}"


@contextmanager
def taking_in(traceparent: str | None) -> Iterator[None]:
    """See `tracing.taking_in`."""
    parent = _context_of(traceparent) if traceparent is not None else None
    token = otel_context.attach(parent if parent is not None else Context())
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def serving_shard(shard: str) -> Iterator[None]:
    """See `tracing.serving_shard`."""
    with trace.get_tracer(_NAME).start_as_current_span("serve shard", None, SpanKind.CONSUMER, {"tocsin.shard": shard}):
        yield


def _context_of(text: str) -> Context | None:
    """The context that a well-formed `traceparent` names, or None: a malformed one counts as none (W3C, 4.3)."""
    if len(text) > _LONGEST:
        return None
    found = _W3C.extract({HEADER: text}, Context())
    return found if trace.get_current_span(found).get_span_context().is_valid else None


def _text(context: Context) -> str | None:
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, context)
    return carrier.get(HEADER)
