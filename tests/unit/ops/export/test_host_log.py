"""Log lines of a process that a Functions host runs: each reaches an exporter, the host's channel, or the host's console log, and once."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from shared.ops.export import early_lines
from shared.ops.export import start as start_module
from shared.ops.export.host_log import CONSOLE, OVERRIDE
from shared.ops.export.start import OTLP, TRACE, Exporting
from tests.unit.ops.export.collector import Collector

from .conftest import NO_LISTENER, Lines

type Begin = Callable[..., Exporting]
log = logging.getLogger("shared.x")


@pytest.fixture
def begin(environ: pytest.MonkeyPatch, lines: Lines, tmp_path: Path) -> Iterator[Begin]:
    """Begin a hosted process with these variables; `lines` is then what the host's channel gets."""
    made: list[Exporting] = []
    host = {"logging": {"logLevel": {"default": "Warning", CONSOLE: "Information"}}}
    (tmp_path / "host.json").write_text(json.dumps(host))

    def begun(**variables: str) -> Exporting:
        for name, value in variables.items():
            environ.setenv(name, value)
        made.append(Exporting(os.environ, tmp_path))
        return made[-1]

    yield begun
    for each in made:
        each.close()
        for kept in each._lines.values():
            kept.close()


async def invoked(found: Exporting, work: Callable[[], object]) -> None:
    """Run work in an invocation."""
    await found.on_call()
    work()


def warn() -> None:
    log.warning("once", extra={"action": "x", "tenant": "acme"})


LINE = "WARNING shared.x (action=x tenant=acme): once\n"


async def test_a_warning_of_a_running_invocation_goes_to_the_host_alone(
    begin: Begin, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    await asyncio.create_task(invoked(begin(), warn))
    assert (lines.texts, capsys.readouterr()) == ([("x", "once (action=x tenant=acme)")], ("", ""))


@pytest.mark.parametrize("where", ["background", "callback", "thread", "no invocation"])
async def test_a_warning_that_the_host_would_drop_is_printed(
    begin: Begin, lines: Lines, capsys: pytest.CaptureFixture[str], where: str
) -> None:
    found, after = begin(), asyncio.Event()
    begun: list[asyncio.Task[None]] = []

    async def later() -> None:
        await after.wait()
        warn()

    async def invocation() -> None:
        await found.on_call()
        if where == "background":
            begun.append(asyncio.create_task(later()))
        elif where == "thread":
            await asyncio.to_thread(warn)
        else:
            asyncio.get_running_loop().call_soon(warn)
            await asyncio.sleep(0)

    if where == "no invocation":
        warn()
    else:
        await asyncio.create_task(invocation())
    after.set()
    await asyncio.gather(*begun)
    assert (lines.texts, capsys.readouterr()) == ([], ("", LINE))


async def test_a_task_of_a_running_invocation_belongs_to_it(begin: Begin, lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        warn()

    async def invocation() -> None:
        await found.on_call()
        await asyncio.gather(work(), asyncio.wait_for(work(), 60))

    found = begin()
    await asyncio.create_task(invocation())
    assert (len(lines.texts), capsys.readouterr()) == (2, ("", ""))


async def test_information_is_printed_on_standard_output_wherever_it_is_logged(
    begin: Begin, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    found = begin()
    await asyncio.create_task(invoked(found, lambda: log.info("inside an error")))
    log.info("outside")
    log.debug("nobody asked for this")
    printed = "INFO shared.x: inside an error\nINFO shared.x: outside\n"
    assert (lines.records, capsys.readouterr()) == ([], (printed, ""))


def test_a_record_is_one_line_that_shows_its_level_to_the_host(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin()
    try:
        raise ValueError("two\r\nlines")
    except ValueError:
        log.critical("with \ud800", exc_info=True)
    [line] = capsys.readouterr().err.splitlines()
    # The host finds the level by these words.
    assert line.startswith("CRITICAL ERROR shared.x: with \\ud800\\nTraceback") and line.endswith("ValueError: two\\r\\nlines")
    assert "warn" not in line.lower()


def test_lines_of_libraries_are_printed_from_warning_on_without_secrets(
    begin: Begin, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    begin()
    logging.getLogger("azure.core").warning("GET https://acct.queue.core.windows.net/x?sig=hush-hush")
    logging.getLogger("azure.core").info("chatter")
    logging.getLogger("asyncio").error("Task exception was never retrieved")
    # The worker's own lines are the host's.
    logging.getLogger("azure.functions").warning("of the worker")
    printed = capsys.readouterr().err
    assert "acct.queue" in printed and "never retrieved" in printed and "hush" not in printed and "worker" not in printed
    assert [record.getMessage() for record in lines.records] == ["chatter", "of the worker"]


async def test_with_an_exporter_nothing_of_the_service_goes_to_the_host(
    begin: Begin, environ: pytest.MonkeyPatch, lines: Lines, capsys: pytest.CaptureFixture[str]
) -> None:
    environ.setattr(start_module, "CLOSING", 60.0)
    environ.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "60")
    with Collector() as collector:
        found = begin(**{OTLP: collector.url})
        log.warning("before")
        await asyncio.create_task(invoked(found, lambda: log.warning("inside")))
        log.info("after")
        await asyncio.to_thread(found.close)
        assert [line.body.string_value for line in collector.logs] == ["before", "inside", "after"]
    assert (lines.records, capsys.readouterr()) == ([], ("", ""))


@pytest.mark.parametrize(
    "variables", [{"OTEL_LOGS_EXPORTER": "none"}, {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}], ids=["not wanted", "cannot start"]
)
def test_lines_that_no_exporter_takes_are_printed_from_the_first_one_on(
    begin: Begin, capsys: pytest.CaptureFixture[str], variables: dict[str, str]
) -> None:
    found = begin(**{OTLP: NO_LISTENER}, **variables)
    warn()
    found.start()
    warn()
    printed = [line for line in capsys.readouterr().err.splitlines(keepends=True) if "telemetry" not in line]
    assert printed == [LINE, LINE]


def test_a_complaint_about_the_export_is_printed_too(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    begin(**{OTLP: NO_LISTENER}).start()
    logging.getLogger("opentelemetry.exporter").error("no back end")
    [line] = [line for line in capsys.readouterr().err.splitlines() if "no back end" in line]
    assert "action=telemetry_complaint" in line


def test_lines_beyond_those_that_are_kept_for_the_exporter_are_printed(
    begin: Begin, environ: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    environ.setattr(early_lines, "MOST", 1)
    begin(**{OTLP: NO_LISTENER})
    log.warning("kept")
    log.warning("beyond")
    assert capsys.readouterr().err == "WARNING shared.x: beyond\n"


async def test_background_work_that_waits_for_the_exporters_is_no_invocation(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        await found.started()
        warn()

    found = begin()
    await asyncio.create_task(work())
    assert capsys.readouterr().err == LINE


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({TRACE: "all", f"{OVERRIDE}{CONSOLE}": "Warning"}, True),
        ({TRACE: "sampled:0.01", f"{OVERRIDE}{CONSOLE}": "Warning", OTLP: NO_LISTENER, "OTEL_LOGS_EXPORTER": "none"}, True),
        ({TRACE: "all", f"{OVERRIDE}{CONSOLE}": "Warning", OTLP: NO_LISTENER}, False),
        ({TRACE: "all"}, False),
        ({TRACE: "off", f"{OVERRIDE}{CONSOLE}": "Warning"}, False),
    ],
)
def test_a_trace_that_nobody_sees_is_reported_at_the_start(
    begin: Begin, capsys: pytest.CaptureFixture[str], variables: dict[str, str], says: bool
) -> None:
    begin(**variables).start()
    assert ("action=trace_unseen" in capsys.readouterr().err) == says


def test_a_host_file_with_comments_does_no_harm(begin: Begin, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "host.json").write_text('{"version": "2.0"} // a comment')
    begin(**{TRACE: "all"})
    warn()
    assert capsys.readouterr().err == LINE


def test_another_programs_process_keeps_its_log(environ: pytest.MonkeyPatch, lines: Lines, capsys: pytest.CaptureFixture[str]) -> None:
    found = Exporting(os.environ)
    warn()
    found.close()
    assert (lines.texts, capsys.readouterr()) == ([("x", "once")], ("", ""))
