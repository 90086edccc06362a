"""The publisher of metrics while exporters hang or fail, and log lines that cannot be written."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterable
from typing import Any

import pytest
from opentelemetry import context
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.metrics.export import MetricExportResult
from opentelemetry.sdk.resources import Resource
from prometheus_client import Metric as Family

from shared.core.clock import Millis
from shared.ops.export import start as start_module
from shared.ops.export.early_lines import EarlyLines
from shared.ops.export.points import CounterForm
from shared.ops.export.service import MetricsPublisher
from shared.ops.export.start import OTLP, Exporting, _Exporter
from tests.unit.ops.export.collector import Collector, attributes

from .conftest import AT, NO_LISTENER, Lines, figures, read_figures, started


class Outlet:
    """An exporter that answers as the test sets."""

    name = "it"
    period = 0

    def __init__(self, *answers: bool | Exception) -> None:
        self.answers = list(answers)
        self.asked = 0
        self.goes = threading.Event()
        self.goes.set()

    def send(self, families: Iterable[Family], now: Millis) -> bool:
        """The next answer."""
        self.asked += 1
        self.goes.wait(60)
        answer = self.answers.pop(0) if self.answers else True
        if isinstance(answer, Exception):
            raise answer
        return answer


async def test_an_outlet_that_hangs_holds_up_neither_the_timer_nor_is_joined_by_another_thread() -> None:
    outlet, other = Outlet(), Outlet()
    outlet.goes.clear()
    publishing = MetricsPublisher(read_figures, (outlet, other), patience=0.05)
    for _ in range(3):
        assert (await publishing.run_once(AT))["unsent"] >= 1
    assert outlet.asked == 1
    outlet.goes.set()
    patient = MetricsPublisher(read_figures, (outlet, other), patience=60)
    assert await patient.run_once(AT) == {"sent": 2, "unsent": 0}


async def test_an_outlet_that_is_away_is_reported_when_it_begins_and_when_it_is_over(lines: Lines) -> None:
    publishing = MetricsPublisher(read_figures, [Outlet(True, False, False, True, True, False)], patience=60)
    counts = [(await publishing.run_once(AT))["sent"] for _ in range(6)]
    assert counts == [1, 0, 0, 1, 1, 0]
    assert lines.actions == ["telemetry_unsent", "telemetry_resumed", "telemetry_unsent"]


async def test_each_outlet_gets_the_metrics_in_its_period_and_after_a_failure_a_minute_later() -> None:
    rare, often = Outlet(True, False, True), Outlet()
    rare.period, often.period = 300_000, 60_000
    read: list[Millis] = []

    async def families() -> list[Family]:
        read.append(now)
        return []

    publishing = MetricsPublisher(families, (rare, often), patience=60)
    asked = []
    for minute in range(12):
        # Timers are early and late by seconds.
        now = AT + minute * 60_000 + (-3_000 if minute % 2 else 3_000)
        await publishing.run_once(now)
        asked.append(rare.asked)
    assert asked == [1, 1, 1, 1, 1, 2, 3, 3, 3, 3, 3, 4]
    assert (often.asked, len(read)) == (12, 12)
    often.period = 300_000
    for minute in range(12, 15):
        await publishing.run_once(AT + minute * 60_000)
    assert len(read) == 13, "nothing is read while no outlet is due"


async def test_an_exporter_that_breaks_leaves_the_others_and_says_so_with_its_trace(lines: Lines) -> None:
    publishing = MetricsPublisher(read_figures, (Outlet(RuntimeError("a bug")), Outlet()), patience=60)
    assert await publishing.run_once(AT) == {"sent": 1, "unsent": 1}
    assert lines.actions == ["telemetry_failed", "telemetry_unsent"] and "a bug" in lines.text


def test_sending_figures_is_not_traced_even_where_all_calls_are() -> None:
    seen: list[object] = []

    class Exporter:
        def export(self, data: object) -> MetricExportResult:
            seen.append(context.get_value(_SUPPRESS_INSTRUMENTATION_KEY))
            return MetricExportResult.SUCCESS

    exporter: Any = Exporter()
    assert _Exporter("it", exporter, CounterForm.SUMS, Resource.get_empty(), 0).send(figures(), AT)
    assert seen == [True] and context.get_value(_SUPPRESS_INSTRUMENTATION_KEY) is None


def handed_over(**record: Any) -> None:
    """Hand a record to the handler of the service's lines, and to no other: a test run cannot show all of them."""
    [handler] = [each for each in logging.getLogger("shared").handlers if isinstance(each, EarlyLines)]
    handler.handle(logging.makeLogRecord({"name": "shared.x", "levelno": logging.ERROR, "action": "x", **record}))


def test_a_line_that_cannot_be_written_does_no_harm_to_its_neighbours(environ: pytest.MonkeyPatch) -> None:
    environ.setattr(start_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    error = ValueError("\ud800")
    with Collector() as collector:
        environ.setenv(OTLP, collector.url)
        found = started(os.environ)
        handed_over(msg="before")
        handed_over(msg="half a \ud800 pair", big=2**70, name_of="\udcff", small=-5)
        handed_over(msg="with a trace", exc_info=(ValueError, error, None))
        handed_over(msg="after")
        found.close()
        assert [line.body.string_value for line in collector.logs] == ["before", "half a ? pair", "with a trace", "after"]
        given = attributes(collector.logs[1])
        assert (given["big"], given["name_of"], given["small"]) == (str(2**70), "?", -5)
        assert attributes(collector.logs[2])["exception.message"] == "?"


def test_a_line_that_cannot_even_be_put_together_does_not_reach_the_code_that_logs_it(
    environ: pytest.MonkeyPatch, begun: list[Exporting]
) -> None:
    environ.setattr(logging, "raiseExceptions", False)
    environ.setenv(OTLP, NO_LISTENER)
    begun.append(started(os.environ))
    handed_over(msg="%d", args=("no number",))
