"""A plugin of pytest (`-p tests.verdicts --verdicts=FILE`): which failures are a machine's, not the code's. tests/run.py reads the file.

A test may be repeated only if every error of its set-up, call and teardown is a wait that ran out or something that did not start, and
neither its logs nor the outputs of the processes that it started meanwhile hold a traceback.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Generator, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from devhost.starting import DidNotStart

from .logs import OUTPUTS
from .waiting import StillWaiting

REPEATABLE = (StillWaiting, DidNotStart)
# They end a coroutine or a generator, and carry no failure of their own.
_CARRIERS = (asyncio.CancelledError, GeneratorExit, StopIteration, StopAsyncIteration)
TRACEBACK = "Traceback (most recent call last)"


@dataclass
class Failure:
    """The failures of one test, or of one file that could not be collected."""

    name: str
    repeatable: bool = True
    texts: list[str] = field(default_factory=list)
    """Each phase's failure in full, with what was captured."""
    reasons: list[str] = field(default_factory=list)
    """The reason why it may not be repeated."""


@dataclass
class Verdicts:
    """The results of one run of pytest."""

    passed: int = 0
    skipped: int = 0
    failures: list[Failure] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Verdicts:
        """Return the outcomes that a run wrote."""
        data = json.loads(path.read_text())
        return cls(data["passed"], data["skipped"], [Failure(**each) for each in data["failures"]])


def origins(error: BaseException) -> list[BaseException]:
    """The error and every error that it came from, without those that only carry others."""
    pending, seen = [error], dict[int, BaseException]()
    while pending:
        each = pending.pop()
        if id(each) not in seen:
            seen[id(each)] = each
            pending += [*(each.exceptions if isinstance(each, BaseExceptionGroup) else ()), *_came_from(each)]
    return [each for each in seen.values() if not isinstance(each, (BaseExceptionGroup, *_CARRIERS))]


def may_be_repeated(error: BaseException) -> bool:
    """True if the error, and every error that it came from, is a wait that ran out or something that did not start."""
    found = origins(error)
    return bool(found) and all(isinstance(each, REPEATABLE) and TRACEBACK not in str(each) for each in found)


def _came_from(error: BaseException) -> Iterator[BaseException]:
    """The errors from which this one came. The cause that a wait or a starter names is a part of it, and is left out."""
    cause = error.__cause__
    if cause is not None and isinstance(error, REPEATABLE) and not isinstance(cause, BaseExceptionGroup):
        yield from (each for each in (cause.__cause__, None if cause.__suppress_context__ else cause.__context__) if each is not None)
    elif cause is not None:
        yield cause
    if error.__context__ is not None and error.__context__ is not cause:
        yield error.__context__


class Plugin:
    """Judges in the process that ran the test, and writes in the one that was started: with xdist they differ."""

    def __init__(self, path: Path | None) -> None:
        """path: None in a process of xdist that runs tests."""
        self._path = path
        self._sizes: dict[Path, int] = {}
        self._results = Verdicts()
        self._failures: dict[str, Failure] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        self._sizes = {output: output.stat().st_size for output in OUTPUTS if output.exists()}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[Any]) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        if report.failed:
            # Of simple types: xdist sends it.
            report.not_repeatable = self._objection(call.excinfo, report)  # type: ignore[attr-defined]
        return report

    def _objection(self, excinfo: pytest.ExceptionInfo[BaseException] | None, report: pytest.TestReport) -> str:
        """Return the reason why this failure may not be repeated, or nothing."""
        if excinfo is None or not may_be_repeated(excinfo.value):
            return f"it failed in its {report.when} with something else than a wait that ran out or a start that failed"
        if any(TRACEBACK in text for title, text in report.sections):
            return "its log has a traceback"
        for output in OUTPUTS:
            if output.exists() and TRACEBACK.encode() in output.read_bytes()[self._sizes.get(output, 0) :]:
                return f"{output} has a traceback"
        return ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._add(report.nodeid, report, getattr(report, "not_repeatable", "the process that ran it ended"))
        elif report.skipped:
            self._results.skipped += 1
        elif report.when == "call":
            self._results.passed += 1

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._add(report.nodeid, report, "it could not be collected")

    def _add(self, name: str, report: Any, objection: str) -> None:
        failure = self._failures.setdefault(name, Failure(name))
        failure.texts.append("\n".join([str(report.longrepr), *(f"--- {title} ---\n{text}" for title, text in report.sections)]))
        if objection:
            failure.repeatable = False
            failure.reasons.append(objection)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        if self._path is not None:
            self._results.failures = list(self._failures.values())
            self._path.write_text(json.dumps(asdict(self._results)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--verdicts", type=Path, metavar="FILE", help="Write which failures may be repeated to this file, as JSON.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--verdicts")
    if path is not None:
        config.pluginmanager.register(Plugin(None if hasattr(config, "workerinput") else path.absolute()), "tests.verdicts.Plugin")
