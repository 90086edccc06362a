"""Converts the families of `/api/metrics` to OpenTelemetry's metrics: the same names (counters without `_total`), labels and values.

Counters are stored in tables and only grow, whichever process reads them. So any process may send them: as cumulative sums with an
unknown start, or (`CounterForm.GAUGES`) as gauges of the total, for a back end that would otherwise add up the values of all processes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, auto

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

SCOPE = InstrumentationScope("tocsin")
_BEGAN = 0
"""The start of the sums: OTLP's value for an unknown time."""


class CounterForm(Enum):
    """The form in which a back end gets counters."""

    SUMS = auto()
    """Cumulative sums, and histograms."""
    GAUGES = auto()
    """Gauges of the total; histograms are left out."""


def metrics_data(families: Iterable[Family], at: int, totals: CounterForm, resource: Resource) -> MetricsData:
    """Return all families with samples. at: nanoseconds since 1970."""
    found = tuple(_metrics(families, at, totals))
    return MetricsData((ResourceMetrics(resource, (ScopeMetrics(SCOPE, found, ""),), ""),))


def _metrics(families: Iterable[Family], at: int, totals: CounterForm) -> Iterator[Metric]:
    for family in families:
        unit = "s" if family.name.endswith("_seconds") else ""
        if not family.samples or (family.type == "histogram" and totals is CounterForm.GAUGES):
            continue
        if family.type == "histogram":
            spread = Histogram(_histograms(family.samples, at), AggregationTemporality.CUMULATIVE)
            yield Metric(family.name, family.documentation, unit, spread)
            continue
        numbers = [NumberDataPoint(dict(each.labels), _BEGAN, at, float(each.value)) for each in family.samples]
        grows = family.type == "counter" and totals is CounterForm.SUMS
        data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True) if grows else Gauge(numbers)
        yield Metric(family.name, family.documentation, unit, data)


def _histograms(samples: Sequence[Sample], at: int) -> list[HistogramDataPoint]:
    """Return one point for each set of labels. Prometheus's buckets are cumulative; OTLP's are not."""
    bounds: dict[tuple[tuple[str, str], ...], list[tuple[float, int]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for sample in samples:
        place = tuple((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            bounds.setdefault(place, []).append((float(sample.labels["le"]), int(sample.value)))
        elif sample.name.endswith("_sum"):
            sums[place] = sample.value
    points = []
    for place, found in bounds.items():
        below = [0, *(count for _, count in found[:-1])]
        counts = [count - before for (_, count), before in zip(found, below, strict=True)]
        edges = [bound for bound, _ in found if math.isfinite(bound)]
        # Minimum and maximum are unknown; OTLP's fields are optional, though the library's class wants numbers.
        unknown: float = None  # type: ignore[assignment]
        total = sums.get(place, 0.0)
        points.append(HistogramDataPoint(dict(place), _BEGAN, at, found[-1][1], total, counts, edges, unknown, unknown))
    return points
