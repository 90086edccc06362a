"""Keeps the spans of the time before the exporters are started."""

from __future__ import annotations

from collections.abc import Sequence
from threading import Lock
from typing import Final

from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor

MOST: Final = 1_000
"""Spans that are kept. Further ones are not exported."""


class EarlySpans(SpanProcessor):
    """Keeps the first spans until `pass_to` names the processors that get them, and all that follow."""

    def __init__(self) -> None:
        self._kept: list[ReadableSpan] = []
        self._targets: Sequence[SpanProcessor] | None = None
        self._lock = Lock()

    @property
    def kept(self) -> int:
        """The number of spans that wait for processors."""
        return len(self._kept)

    def on_end(self, span: ReadableSpan) -> None:
        """Keep the span, or pass it on."""
        if self._targets is None:
            with self._lock:
                if self._targets is None:
                    if len(self._kept) < MOST:
                        self._kept.append(span)
                    return
        for target in self._targets:
            target.on_end(span)

    def pass_to(self, targets: Sequence[SpanProcessor]) -> None:
        """Pass the kept spans to the targets, and from now on every span. Without targets, nothing is kept any more."""
        with self._lock:
            kept, self._kept, self._targets = self._kept, [], targets
        for span in kept:
            for target in targets:
                target.on_end(span)
