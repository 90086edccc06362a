"""The devhost shows the log lines that the Functions host shows, and drops those that it drops."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from devhost.worker.log_lines import ShownLines
from shared.ops.export.host_log import CONSOLE, OVERRIDE, log_levels
from tests.waiting import wait_until

from .conftest import Process
from .test_process import BARE, NOWHERE

APP = """
import asyncio, logging, sys
import azure.functions as func

app = func.FunctionApp(http_auth_level=func.AuthLevel.ANONYMOUS)
log = logging.getLogger("app")
log.warning("of the import")
began = []

@app.route("lines")
async def lines(req: func.HttpRequest) -> func.HttpResponse:
    log.warning("of the invocation")
    log.info("information of the invocation")
    await asyncio.to_thread(log.warning, "of a thread")
    began.append(asyncio.create_task(later()))
    return func.HttpResponse("ok")

async def later() -> None:
    await asyncio.sleep(0.1)
    log.error("of the background")
    print("printed", flush=True)
    print("printed: a warning of an error", file=sys.stderr, flush=True)
    print("printed: a failure", file=sys.stderr, flush=True)
    print("the end", file=sys.stderr, flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    app = tmp_path / "app"
    app.mkdir()
    (app / "function_app.py").write_text(APP)
    levels = {"default": "Warning", "Function": "Warning", CONSOLE: "Information"}
    (app / "host.json").write_text(json.dumps({"version": "2.0", "logging": {"logLevel": levels}}))
    return app


def shown(process: Process) -> list[str]:
    """The lines of the app, without their times and loggers, once it has printed the last one."""
    assert httpx.get(f"{process.ready()}/api/lines", timeout=180).text == "ok"
    wait_until(lambda: "the end" in process.text, "the last line")
    found = [line.split(" ", 2)[1:] for line in process.text.splitlines() if " app: " in line or " console: " in line]
    return [f"{level} {rest.partition(': ')[2]}" for level, rest in found]


def test_only_lines_of_running_invocations_and_printed_lines_are_shown(devhost: Callable[..., Process], folder: Path) -> None:
    process = devhost(*BARE, app=folder, AzureWebJobsStorage=NOWHERE)
    assert sorted(shown(process)) == sorted(
        ["W of the invocation", "I printed", "W printed: a warning of an error", "E printed: a failure", "I the end"]
    )


def test_app_settings_change_the_levels(devhost: Callable[..., Process], folder: Path) -> None:
    settings = {f"{OVERRIDE}Function": "Information"}
    process = devhost(*BARE, app=folder, AzureWebJobsStorage=NOWHERE, **settings)
    assert "I information of the invocation" in shown(process)


@pytest.mark.parametrize(("level", "seen"), [("Information", 3), ("Warning", 2), ("Error", 1), ("None", 0)])
def test_printed_lines_are_cut_by_the_level_of_the_console(level: str, seen: int) -> None:
    found: list[str] = []
    lines = ShownLines(log_levels({"logging": {"logLevel": {CONSOLE: level}}}, {}), found.append)
    for text in ("plain", "a warning", "an error"):
        lines.printed(text, error=True)
    assert len(found) == seen


def test_a_traceback_in_one_line_becomes_several_again_and_other_texts_stay() -> None:
    found: list[str] = []
    lines = ShownLines({}, found.append)
    lines.printed(r"ERROR x: failed\nTraceback (most recent call last)\nValueError", error=True)
    lines.printed(r'INFO x: tocsin-trace {"a":"b\nc"}', error=False)
    assert [line.count("\n") for line in found] == [3, 1]
