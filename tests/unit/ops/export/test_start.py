"""The start of the exporters, and the log lines that reach them."""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest
from opentelemetry import context, trace
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY
from opentelemetry.sdk.trace import TracerProvider

from shared.ops.export import early_lines
from shared.ops.export import start as start_module
from shared.ops.export.start import OTLP, Exporting
from tests.paths import ROOT
from tests.unit.ops.export.collector import Collector, attributes
from tests.waiting import eventually

from .conftest import started


@pytest.fixture
def collector(environ: pytest.MonkeyPatch) -> Iterator[Collector]:
    """A collector, and an environment that names it. The end of the exporters waits until all has arrived."""
    environ.setattr(start_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with Collector() as running:
        environ.setenv(OTLP, running.url)
        yield running


def texts(collector: Collector) -> list[str]:
    return [line.body.string_value for line in collector.logs]


def test_lines_from_before_the_start_are_sent_and_warnings_of_libraries_too(collector: Collector) -> None:
    found = Exporting(os.environ)
    for when in ("early", "late"):
        logging.getLogger("shared.x").error("%s own line", when, extra={"action": "x"})
        logging.getLogger("azure.identity.aio").warning("%s warning of azure", when)
        logging.getLogger("aiohttp.server").error("%s error of aiohttp", when)
        logging.getLogger("azure.core").info("%s chatter", when)
        logging.getLogger("elsewhere").error("%s line of others", when)
        found.start()
    found.close()
    assert sorted(texts(collector)) == [
        *("early error of aiohttp", "early own line", "early warning of azure"),
        *("late error of aiohttp", "late own line", "late warning of azure"),
    ]
    logging.getLogger("azure.core").warning("after the end")
    assert len(collector.logs) == 6


def test_only_the_first_of_many_early_lines_are_kept(collector: Collector, environ: pytest.MonkeyPatch) -> None:
    environ.setattr(early_lines, "MOST", 3)
    found = Exporting(os.environ)
    for number in range(5):
        logging.getLogger("shared.x").error("%s", number, extra={"action": "x"})
    found.start()
    found.close()
    assert texts(collector) == ["0", "1", "2"]


def test_lines_of_libraries_show_no_users_and_queries_of_urls(collector: Collector) -> None:
    found = started(os.environ)
    try:
        raise ValueError("https://me:hush-hush@example.org/x?sig=hush-hush")
    except ValueError:
        logging.getLogger("azure.core").exception(
            "GET https://acct.table.core.windows.net/x?sv=1&sig=hush-hush", extra={"at": "/?hush-hush"}
        )
    found.close()
    [line] = collector.logs
    assert attributes(line)["exception.type"] == "ValueError" and "acct.table.core.windows.net" in line.body.string_value
    assert "hush" not in str(line)


def test_an_exporters_own_request_causes_no_line_to_be_exported(collector: Collector) -> None:
    found = started(os.environ)
    token = context.attach(context.set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))
    logging.getLogger("azure.core").warning("the request to the back end failed")
    context.detach(token)
    found.close()
    assert texts(collector) == []


def test_an_exporter_that_cannot_start_is_reported_to_the_other(collector: Collector, environ: pytest.MonkeyPatch) -> None:
    environ.setenv("APPLICATIONINSIGHTS_CONNECTION_STRING", "InstrumentationKey=not-a-key")
    started(os.environ).close()
    [line] = collector.logs
    assert attributes(line)["action"] == "telemetry_off"


def test_nothing_is_kept_where_no_lines_are_exported(environ: pytest.MonkeyPatch, begun: list[Exporting]) -> None:
    before = {name: list(logging.getLogger(name).handlers) for name in ("shared", "azure", "aiohttp")}
    environ.setenv(OTLP, "http://127.0.0.1:9")
    environ.setenv("OTEL_LOGS_EXPORTER", "none")
    begun.append(started(os.environ))
    assert {name: list(logging.getLogger(name).handlers) for name in before} == before


class Slow:
    """A function that waits for the test in its thread, and counts its calls."""

    def __init__(self, function: Callable[[], None]) -> None:
        self.function, self.goes, self.calls = function, threading.Event(), 0

    def __call__(self) -> None:
        self.calls += 1
        self.goes.wait(60)
        self.function()


async def test_calls_wait_until_spans_are_recorded_and_not_for_the_exporters(environ: pytest.MonkeyPatch, begun: list[Exporting]) -> None:
    environ.setenv(OTLP, "http://127.0.0.1:9")
    environ.setattr(start_module, "START_AFTER", 0.0)
    found = Exporting(os.environ)
    begun.append(found)
    record, start = Slow(found.record), Slow(found.start)
    environ.setattr(found, "record", record)
    environ.setattr(found, "start", start)
    calls = [asyncio.create_task(found.on_call()) for _ in range(3)]
    await eventually(lambda: record.calls, "the recording")
    assert not any(call.done() for call in calls)
    calls[0].cancel()
    record.goes.set()
    await asyncio.gather(*calls[1:])
    await eventually(lambda: start.calls, "the start")
    assert found.outlets == []
    waits = [asyncio.create_task(found.started()) for _ in range(2)]
    await found.on_call()
    start.goes.set()
    await asyncio.gather(*waits)
    assert len(found.outlets) == 1
    await found.started()
    assert start.calls == 1


async def test_exporters_start_some_time_after_the_first_call_unless_somebody_waits_for_them(
    environ: pytest.MonkeyPatch, begun: list[Exporting]
) -> None:
    environ.setenv(OTLP, "http://127.0.0.1:9")
    environ.setattr(start_module, "START_AFTER", 3600.0)
    found = Exporting(os.environ)
    begun.append(found)
    await found.on_call()
    assert found.outlets == []
    await found.started()
    assert len(found.outlets) == 1


def test_spans_and_lines_of_a_process_that_ends_before_the_start_are_sent(environ: pytest.MonkeyPatch) -> None:
    providers: list[TracerProvider] = []
    environ.setattr(trace, "set_tracer_provider", providers.append)
    environ.setattr(start_module, "CLOSING", 60.0)
    with Collector() as collector:
        environ.setenv(OTLP, collector.url)
        found = Exporting(os.environ)
        found.record()
        with providers[0].get_tracer("tocsin").start_as_current_span("early"):
            logging.getLogger("shared.tests").warning("early too")
        found.close()
        assert [span.name for span in collector.named("early")] == ["early"]
        assert [line.body.string_value for line in collector.logs] == ["early too"]


def test_an_app_that_cannot_be_imported_is_reported_before_it_fails() -> None:
    code = "import sys; sys.modules['shared.app.routes'] = None; import function_app"
    with Collector() as collector:
        environment = {"PATH": "", OTLP: collector.url}
        ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 1 and "shared.app.routes" in ran.stderr
        [line] = [line for line in collector.logs if attributes(line).get("action") == "app_import_failed"]
        assert "shared.app.routes" in attributes(line)["exception.stacktrace"]
