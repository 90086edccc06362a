"""Traces: one event followed from its request through storage and queue to each of its deliveries, by W3C Trace Context.

    POST (server span) ──traceparent stored with the event──► deliver (producer span, one per attempt) ──traceparent header──► receiver
    serve shard (consumer span, one per owner) ◄──────link──────┘

Only the OpenTelemetry API is used here; `exporting` sets an SDK and exporters up where the environment asks for them. Without an SDK no
span is made, and a `traceparent` that came with a request goes on to the receiver as it is; without either nothing is done at all.
Source: https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

if TYPE_CHECKING:
    from .channels.ports import Delivery, Target, Verdict

HEADER = "traceparent"
_NAME = "tocsin"
_LONGEST = 512
_NOT_RECORDED = tuple("02468ace")
"""Ends of a `traceparent` whose lowest bit says that nobody records the trace."""
_W3C = TraceContextTextMapPropagator()


def on() -> bool:
    """Whether an SDK is configured: else spans would be made for nobody."""
    return not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider)


def traced(headers: Mapping[str, str]) -> bool:
    """Whether a request needs `serving`. Names of headers in lower case."""
    return HEADER in headers or on()


@contextmanager
def serving(name: str, method: str, template: str, headers: Mapping[str, str]) -> Iterator[Span | None]:
    """The span of a request: a child of what its `traceparent` names, if that is well-formed, else of the host's own span, if any.

    Without an SDK no span is made (None), but what the request brought can be had from `current`.
    """
    parent = _context_of(headers[HEADER]) if HEADER in headers else None
    if not on():
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
    """Tell how a request was answered."""
    span.set_attribute("http.response.status_code", status)
    if status >= 500:
        span.set_status(Status(StatusCode.ERROR))


def current() -> str | None:
    """The `traceparent` to be stored with what is taken in now; None when nobody traces this request."""
    if not trace.get_current_span().get_span_context().is_valid:
        return None
    return _text(otel_context.get_current())


@contextmanager
def taking_in(traceparent: str | None) -> Iterator[None]:
    """Within it `current` is the trace that an event brought which came otherwise than by a request: none, if it brought none.

    What takes it in (a timer, a queue's function) may serve thousands: its own trace is none of theirs.
    """
    parent = _context_of(traceparent) if traceparent is not None else None
    token = otel_context.attach(parent if parent is not None else Context())
    try:
        yield
    finally:
        otel_context.detach(token)


@contextmanager
def serving_shard(shard: str) -> Iterator[None]:
    """The span of an owner's work on a shard: a child of the host's own span, if any. What it delivers is linked to it."""
    with trace.get_tracer(_NAME).start_as_current_span("serve shard", None, SpanKind.CONSUMER, {"tocsin.shard": shard}):
        yield


@contextmanager
def delivering(target: Target, delivery: Delivery) -> Iterator[Span]:
    """The span of one attempt: a child of the request that brought the event, linked to the work on its shard.

    Its own `traceparent` goes out with the delivery; that of the request where nobody records this trace, for then no span is made.
    """
    if delivery.traceparent is not None and delivery.traceparent.endswith(_NOT_RECORDED) and _parent_decides(trace.get_tracer_provider()):
        yield trace.INVALID_SPAN
        return
    parent = _context_of(delivery.traceparent) if delivery.traceparent is not None else None
    served_by = trace.get_current_span().get_span_context()
    span = trace.get_tracer(_NAME).start_span(
        f"deliver {target.spec.type}",
        # A root of its own, rather than a child of an invocation that serves a thousand events.
        parent if parent is not None else Context(),
        SpanKind.PRODUCER,
        {
            "tocsin.tenant": target.tenant,
            "tocsin.channel": target.name,
            "tocsin.event": delivery.id,
            "tocsin.attempt": delivery.attempt,
            "tocsin.late_ms": delivery.late_ms,
        },
        [Link(served_by)] if served_by.is_valid else None,
    )
    with trace.use_span(span, end_on_exit=True):
        delivery.traceparent = _text(otel_context.get_current())
        yield span


def delivered(span: Span, verdict: Verdict) -> None:
    """Tell how an attempt ended."""
    span.set_attribute("tocsin.outcome", verdict.outcome)
    if verdict.status is not None:
        span.set_attribute("http.response.status_code", verdict.status)
    if verdict.outcome != "delivered":
        span.set_status(Status(StatusCode.ERROR, verdict.error))


@lru_cache(maxsize=4)
def _parent_decides(provider: trace.TracerProvider) -> bool:
    """Whether it records nothing of a trace that its parent does not record, as an SDK does unless told otherwise."""
    sampler = getattr(provider, "sampler", None)
    told = sampler.get_description() if sampler is not None else ""
    return told.startswith("ParentBased") and "remoteParentNotSampled:AlwaysOffSampler" in told


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
