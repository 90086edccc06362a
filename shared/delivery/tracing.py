"""Spans of deliveries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from opentelemetry import context as otel_context
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode

from ..core.spans import _NAME, _NOT_RECORDED, _context_of, _text
from .channels.ports import OutgoingDelivery, Target, Verdict


@contextmanager
def delivering(target: Target, delivery: OutgoingDelivery) -> Iterator[Span]:
    """Open the span of one attempt: a child of the request that brought the event, linked to the work on its shard.

    The delivery carries the span's own `traceparent`. If this trace is not recorded, no span is made and the delivery carries the
    request's.
    """
    if delivery.traceparent is not None and delivery.traceparent.endswith(_NOT_RECORDED) and _parent_decides(trace.get_tracer_provider()):
        yield trace.INVALID_SPAN
        return
    parent = _context_of(delivery.traceparent) if delivery.traceparent is not None else None
    served_by = trace.get_current_span().get_span_context()
    span = trace.get_tracer(_NAME).start_span(
        f"deliver {target.spec.type}",
        # A root of its own and not a child of an invocation that serves a thousand events.
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
    """Record the verdict of an attempt."""
    span.set_attribute("tocsin.outcome", verdict.outcome)
    if verdict.status is not None:
        span.set_attribute("http.response.status_code", verdict.status)
    if verdict.outcome != "delivered":
        span.set_status(Status(StatusCode.ERROR, verdict.error))


@lru_cache(maxsize=4)
def _parent_decides(provider: trace.TracerProvider) -> bool:
    """Return True if the provider records nothing of a trace that its parent does not record, which is the default of SDKs."""
    sampler = getattr(provider, "sampler", None)
    described = sampler.get_description() if sampler is not None else ""
    return described.startswith("ParentBased") and "remoteParentNotSampled:AlwaysOffSampler" in described
