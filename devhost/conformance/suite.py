"""Runs tests/conformance against the account, in a pytest of its own, and reports one line for each file."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from devhost.azurite import ROOT
from devhost.conformance import plugin
from devhost.conformance.access import StorageAccess
from devhost.conformance.report import Report
from shared.storage.azure.account import Service

TESTS = "tests/conformance"
GATE = f"{TESTS}/test_gate.py"
_STOP = 10.0
"""Seconds that pytest gets to end after SIGTERM."""


@dataclass
class _Played:
    """The results that pytest has reported so far."""

    count: int = 0
    done: int = 0
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    passed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    failed: list[tuple[str, str]] = field(default_factory=list)
    left_out: list[tuple[str, str]] = field(default_factory=list)
    operations: dict[Service, int] | None = None


async def run(access: StorageAccess, report: Report, what: str, paths: list[str], select: str = "") -> None:
    """Run the tests of some paths and report them. select: an expression for pytest's `-k`."""
    with tempfile.NamedTemporaryFile(prefix="conformance-", suffix=".txt", delete=False) as output:
        played, code = await _play(access, report, what, [*paths, *(["-k", select] if select else [])], output.fileno())
    for name in sorted({*played.passed, *(_file(name) for name, _ in played.failed)}):
        lost = [test for test, _ in played.failed if _file(test) == name]
        detail = f"{played.passed[name]} tests hold, {played.seconds[name]:.1f} s"
        report.add(name, "FAILED" if lost else "ok", f"{len(lost)} tests failed, {detail}" if lost else detail)
    for test, text in played.failed:
        report.text(f"           {test.removeprefix(TESTS + '/')}: {text}")
    for reason in sorted({reason for _, reason in played.left_out}):
        names = [_short(name) for name, other in played.left_out if other == reason]
        report.add(f"{len(names)} tests of the suite", "left out", f"{reason} ({', '.join(names)})")
    if played.operations is None or code not in (0, 1) or played.done == 0:
        report.add(what, "FAILED", f"pytest ended with {code} after {played.done} of {played.count} tests; its output is in {output.name}")
    elif played.failed:
        report.text(f"           pytest's output is in {output.name}")
    else:
        os.unlink(output.name)
    access.add(played.operations or {})


def _file(name: str) -> str:
    return Path(name.partition("::")[0]).stem.removeprefix("test_").replace("_", " ")


def _short(name: str) -> str:
    return name.rpartition("::")[2].partition("[")[0]


async def _play(access: StorageAccess, report: Report, what: str, arguments: list[str], output: int) -> tuple[_Played, int]:
    reader, writer = os.pipe()
    # Options of another pytest, such as -n, are not for this one.
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**inherited, **access.environment(), plugin.PIPE: str(writer), "PYTHONPATH": str(ROOT)}
    options = ["-p", "devhost.conformance.plugin", "-p", "no:cacheprovider", "-q", "-o", "filterwarnings=default"]
    played = _Played()
    try:
        # A session of its own: Ctrl-C is for this process, which then ends the child and removes what it has made.
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "pytest", *options, *arguments,
            cwd=ROOT, env=environment, stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output, pass_fds=(writer,),
            start_new_session=True,
        )  # fmt: skip
    finally:
        os.close(writer)
    stream = asyncio.StreamReader(limit=2**20)
    with os.fdopen(reader) as pipe:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(stream), pipe)
        try:
            async for line in stream:
                _note(played, json.loads(line))
                report.progress(what, played.done, max(1, played.count))
            code = await process.wait()
        finally:
            transport.close()
            await _end(process)
            report.end_progress()
    return played, code


def _note(played: _Played, message: dict[str, Any]) -> None:
    match message.pop("kind"):
        case "collected":
            played.count = message["count"]
            played.left_out = [(name, reason) for name, reason in message["left_out"]]
        case "test":
            played.done += 1
            name = _file(message["name"])
            played.seconds[name] += message["seconds"]
            if message["outcome"] == "passed":
                played.passed[name] += 1
            elif message["outcome"] == "skipped":
                played.left_out.append((message["name"], message["text"]))
            else:
                played.failed.append((message["name"], message["text"]))
        case "end":
            played.operations = {"table": message["table"], "queue": message["queue"]}


async def _end(process: asyncio.subprocess.Process) -> None:
    """End the child and everything that it has started, so that nothing is created after the removal."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), _STOP)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
