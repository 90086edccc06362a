"""Log lines of a worker: what the worker sends, and what the host shows of them and of what the worker prints.

The host drops lines that were logged outside a running invocation, and those below the level of their category in host.json.
"""

import asyncio
import logging
import sys
import threading
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

from devhost.logs import FORM
from shared.ops.export.host_log import CONSOLE, lowest_level

invocation: ContextVar[int | None] = ContextVar("devhost invocation", default=None)
"""Number of the invocation for which a task works; tasks that it begins inherit it, as on the Functions host."""
_PLATFORMS: Final = ("devhost", "azure.functions")
"""Loggers of the host and of the worker library. Their lines are the host's own and are always shown."""
_TIMED: Final = logging.Formatter(FORM[0], FORM[1])
_TRACEBACK: Final = "\\nTraceback (most recent call last)"
_LONGEST: Final = 1 << 20
"""Bytes after which a line that was printed is cut in two."""


class WorkerLog(logging.Handler):
    """Sends the worker's records to the host, as `("log", invocation or None, level, logger, text)`."""

    def __init__(self, send: Callable[[tuple[Any, ...]], None]) -> None:
        """send: called in the loop that runs when the handler is made."""
        super().__init__()
        self._send, self._loop, self._thread = send, asyncio.get_running_loop(), threading.get_ident()
        self.latest: int | None = None
        """The invocation that began last: the worker names it for callbacks, which belong to no task."""

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record, unless the worker knows no invocation for it."""
        try:
            self._emit(record)
        except Exception:
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        number = None
        if f"{record.name}.".startswith(tuple(f"{name}." for name in _PLATFORMS)):
            pass
        elif (number := self._invocation()) is None:
            return
        # A copy in UTF-8: the channel takes no lone surrogates.
        text = self.format(record).encode(errors="backslashreplace").decode()
        line = "log", number, record.levelno, record.name, text
        if threading.get_ident() == self._thread:
            # At once: the host must get it before the answer of its invocation.
            self._send(line)
        else:
            self._loop.call_soon_threadsafe(self._send, line)

    def _invocation(self) -> int | None:
        try:
            inside = asyncio.current_task() is not None
        except RuntimeError:
            return None
        return (invocation.get() if inside else None) or self.latest


class ShownLines:
    """Shows on standard error what the Functions host would log."""

    def __init__(self, levels: Mapping[str, int], write: Callable[[str], object] | None = None) -> None:
        """levels: of the host's categories (`host_log.log_levels`). write: takes each line, by default standard error."""
        self._levels, self._write = levels, write or sys.stderr.write

    def logged(self, function: str | None, level: int, logger: str, text: str) -> None:
        """Show a line that the worker has sent. function: whose invocation it names; None for the host's own."""
        if function is None or level >= lowest_level(self._levels, f"Function.{function}.User"):
            self._show(level, logger, text)

    def printed(self, text: str, *, error: bool) -> None:
        """Show a line that the worker has printed. error: on standard error; its level is found in the text."""
        level, lower = logging.INFO, text.lower()
        if error and "warn" in lower:
            level = logging.WARNING
        elif error and any(word in lower for word in ("error", "fail", "severe")):
            level = logging.ERROR
        if level >= lowest_level(self._levels, CONSOLE):
            # People at a terminal get a traceback back that was put into one line.
            self._show(level, "console", text.replace("\\n", "\n") if _TRACEBACK in text else text)

    def _show(self, level: int, logger: str, text: str) -> None:
        record = logging.makeLogRecord({"name": logger, "levelno": level, "levelname": logging.getLevelName(level), "msg": text})
        self._write(f"{_TIMED.format(record)}\n")


async def read_lines(stream: asyncio.StreamReader, take: Callable[[str], None]) -> None:
    """Call `take` for each line until the stream ends."""
    rest = b""
    while data := await stream.read(1 << 16):
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > _LONGEST:
            lines, rest = [*lines, rest], b""
        for line in lines:
            take(line.rstrip(b"\r").decode(errors="replace"))
    if rest:
        take(rest.decode(errors="replace"))
