"""Traces: one event followed from its request through storage and queue to each of its deliveries, by W3C Trace Context.

    POST (server span) ──traceparent stored with the event──► deliver (producer span, one per attempt) ──traceparent header──► receiver
    serve shard (consumer span, one per owner) ◄──────link──────┘

Only the OpenTelemetry API is used here; `exporting` sets an SDK and exporters up where the environment asks for them. Without an SDK no
span is made, and a `traceparent` that came with a request goes on to the receiver as it is; without either nothing is done at all, and the
API is not imported. Source: https://www.w3.org/TR/trace-context/.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.trace import Span

HEADER = "traceparent"
_API = "opentelemetry.trace"
_PROVIDER = "OTEL_PYTHON_TRACER_PROVIDER"
"""The variable by which the API itself makes an SDK's provider."""
_PROVIDED = bool(os.environ.get(_PROVIDER))
"""True if it is set. Read once, because every call asks."""


def _imported() -> bool:
    """Return True if an SDK or a context may be set: nobody can have set one without the API."""
    return _PROVIDED or _API in sys.modules


def on() -> bool:
    """Return True when an SDK is configured. Without one, spans are not made."""
    if not _imported():
        return False
    # An import also waits until the API is complete, where a thread imports it just now.
    from .spans import provided

    return provided()


def traced(headers: Mapping[str, str]) -> bool:
    """Return True when a request needs `serving`. The names of `headers` are in lower case."""
    # The test of `_imported` is repeated here, because every call asks: two more function calls would cost as much as the rest.
    return HEADER in headers or ((_PROVIDED or _API in sys.modules) and on())


def serving(name: str, method: str, template: str, headers: Mapping[str, str]) -> AbstractContextManager[Span | None]:
    """The span of a request: a child of what its `traceparent` names, if that is well-formed, else of the host's own span, if any.

    Without an SDK no span is made (None), and `current` returns what the request brought.
    """
    from . import spans

    return spans.serving(name, method, template, headers)


def answered(span: Span, status: int) -> None:
    """Record the status of the answer in the span."""
    from . import spans

    spans.answered(span, status)


def current(*, recorded: bool = True) -> str | None:
    """Return the `traceparent` to store with what this request brings; None when the request is not traced.

    recorded: False marks the trace as not recorded. Without an SDK the request's own decision goes through unchanged.
    """
    if not _imported():
        return None
    from . import spans

    return spans.current(recorded=recorded)


def taking_in(traceparent: str | None) -> AbstractContextManager[None]:
    """Make `current` return the trace of an event that did not come by a request; None when the event brought none.

    The timer or queue function that accepts the event may serve thousands of events: its own trace belongs to none of them.
    """
    if traceparent is None and not _imported():
        return nullcontext()
    from . import spans

    return spans.taking_in(traceparent)


def serving_shard(shard: str) -> AbstractContextManager[None]:
    """The span of an owner's work on a shard: a child of the host's own span, if any. What it delivers is linked to it."""
    from . import spans

    return spans.serving_shard(shard)
