"""Writes log lines where the Functions host shows them, for a process without an exporter of log lines.

The host takes the lines that a worker sends while their invocation runs, and drops all others: those of background work, of threads, and
of the import. They are printed instead: the host logs what a worker prints under the category `Host.Function.Console`, a line of standard
output at Information, a line of standard error at Warning if it contains "warn", else at Error if it contains "error", "fail" or "severe".
A line with the prefix `LanguageWorkerConsoleLog` would reach the platform's own log alone.
Sources: azure-functions-host, GrpcWorkerChannel.Log, WorkerProcess and WorkerConsoleLogService; azure-functions-python-worker,
proxy_worker/dispatcher.py.

The levels from which the Functions host logs the lines of a category: those of host.json and of the app settings that override it.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import weakref
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Final

from .log_filter import without_users_and_queries

CONSOLE: Final = "Host.Function.Console"
"""The category of the lines that a worker prints."""
OVERRIDE: Final = "AzureFunctionsJobHost__logging__logLevel__"
"""Prefix of the app settings that override `logging.logLevel` of host.json; the rest of the name is the category."""
LEVELS: Final[Mapping[str, int]] = {
    "trace": logging.DEBUG,
    "debug": logging.DEBUG,
    "information": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
    "none": logging.CRITICAL + 1,
}
"""Levels of `logging` by .NET's names, in lower case."""
_DEFAULT: Final = "default"


def log_levels(host: Mapping[str, Any], environ: Mapping[str, str]) -> dict[str, int]:
    """Return the levels by category, in lower case. host: the document of host.json. Unknown names of levels are left out."""
    of_file = host.get("logging", {}).get("logLevel", {})
    of_settings = {name[len(OVERRIDE) :]: level for name, level in environ.items() if name.lower().startswith(OVERRIDE.lower())}
    found = {name.lower(): str(level).lower() for name, level in [*of_file.items(), *of_settings.items()]}
    return {name: LEVELS[level] for name, level in found.items() if level in LEVELS}


def lowest_level(levels: Mapping[str, int], category: str) -> int:
    """Return the level from which a category is logged: that of the longest name with which the category begins, else the default."""
    names = [name for name in levels if name != _DEFAULT and category.lower().startswith(name)]
    return levels[max(names, key=len)] if names else levels.get(_DEFAULT, logging.INFO)


_OWN: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""The fields of every record; any other field came with `extra`."""
_FORM: Final = logging.Formatter()
_invocation: ContextVar[weakref.ref[asyncio.Task[Any]] | None] = ContextVar("invocation", default=None)


def extra_fields(record: logging.LogRecord) -> dict[str, Any]:
    """Return the fields that came with `extra`."""
    return {name: value for name, value in vars(record).items() if name not in _OWN}


def enter_invocation() -> None:
    """Remember that the current task, and what it begins, works for an invocation. Call this at its begin, in the host's own task."""
    task = asyncio.current_task()
    # The first test in the brackets saves a call for nearly all invocations.
    if task is not None and (_invocation.get() is None or not in_running_invocation()):
        _invocation.set(weakref.ref(task))


def in_running_invocation() -> bool:
    """Return True if the host takes a line that is logged now: in a task of an invocation that has not ended."""
    try:
        current = asyncio.current_task()
    except RuntimeError:
        # A thread without a loop: the worker does not know the invocation.
        return False
    known = _invocation.get()
    task = known() if known is not None else None
    # In a callback there is no current task, and the worker names the invocation that began last.
    return current is not None and task is not None and not task.done() and task.get_loop() is current.get_loop()


def pass_on(record: logging.LogRecord) -> None:
    """Hand a record to the handlers of the process's log, as a logger that propagates does."""
    logging.getLogger().callHandlers(record)


def _fields(record: logging.LogRecord) -> str:
    return " ".join(f"{name}={value}" for name, value in extra_fields(record).items())


def _with_fields(record: logging.LogRecord) -> logging.LogRecord:
    """Return a copy whose text has the fields, because the worker sends the text alone."""
    if not (fields := _fields(record)):
        return record
    copy = logging.makeLogRecord(vars(record))
    copy.msg, copy.args = f"{record.getMessage()} ({fields})", ()
    return copy


class HostLog(logging.Handler):
    """Sends warnings and errors of a running invocation to the host, and prints all other records."""

    def __init__(self, *, library: bool) -> None:
        """library: the records are those of a library; users and queries of URLs are hidden."""
        super().__init__()
        self._library = library

    def emit(self, record: logging.LogRecord) -> None:
        """Send or print a record. A fault never reaches the code that logs."""
        try:
            if record.levelno >= logging.WARNING and in_running_invocation():
                pass_on(_with_fields(record))
                return
            self._print(record)
            # Exporters that somebody else has set up in this process.
            for handler in logging.getLogger().handlers:
                if type(handler).__module__.startswith("opentelemetry.") and record.levelno >= handler.level:
                    handler.handle(record)
        except Exception:
            self.handleError(record)

    def _print(self, record: logging.LogRecord) -> None:
        stream = sys.stderr if record.levelno >= logging.WARNING else sys.stdout
        coding = stream.encoding or "utf-8"
        # One write: lines of several threads must not mix.
        stream.write(self._line(record).encode(coding, "backslashreplace").decode(coding) + "\n")
        stream.flush()

    def _line(self, record: logging.LogRecord) -> str:
        """Return one line. Its level stands first, because the host finds the level in the text; a trace's JSON must stand last."""
        fields = _fields(record)
        # The host finds no level in "CRITICAL".
        level = "CRITICAL ERROR" if record.levelno >= logging.CRITICAL else record.levelname
        text = f"{level} {record.name}{f' ({fields})' if fields else ''}: {_FORM.format(record)}"
        # Each line of several would have a level of its own.
        text = text.replace("\r", "\\r").replace("\n", "\\n")
        return without_users_and_queries(text) if self._library else text
