"""Log records for an exporter: the sentence, its level, and its extra fields (`action` first of all) as attributes."""

from __future__ import annotations

import logging
import traceback
from time import time_ns
from typing import Any, Final

from opentelemetry import context
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber

LEVELS: Final = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}
_OWN: Final = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"))
"""What each record has. Whatever else it has came by `extra`."""


class OtelLogHandler(logging.Handler):
    """Hands records to an OpenTelemetry provider, with the trace they were logged in."""

    def __init__(self, provider: LoggerProvider, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._provider = provider
        self._loggers: dict[str, Logger] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One record. Whatever is wrong with it or with its export, the line that is logged does no harm to the code that logs it."""
        try:
            self._emit(record)
        except Exception:
            self.handleError(record)

    def _emit(self, record: logging.LogRecord) -> None:
        logger = self._loggers.get(record.name)
        if logger is None:
            logger = self._loggers[record.name] = self._provider.get_logger(record.name)
        level = max((each for each in LEVELS if each <= record.levelno), default=logging.DEBUG)
        logger.emit(
            LogRecord(
                timestamp=round(record.created * 1e9),
                observed_timestamp=time_ns(),
                context=context.get_current(),
                severity_text=record.levelname,
                severity_number=LEVELS[level],
                body=_text(record.getMessage()),
                attributes={
                    **{name: _plain(value) for name, value in vars(record).items() if name not in _OWN},
                    **(_exception(record.exc_info[1]) if record.exc_info and record.exc_info[1] is not None else {}),
                },
            )
        )


def _exception(error: BaseException) -> dict[str, str]:
    """An exception under the names of OpenTelemetry's conventions."""
    return {
        "exception.type": type(error).__qualname__,
        "exception.message": _text(str(error)),
        "exception.stacktrace": _text("".join(traceback.format_exception(error))),
    }


def _plain(value: Any) -> str | bool | int | float:
    # A batch goes out whole or not at all: one value that has no place in the protocol would take 500 lines with it.
    if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
        return value
    return _text(str(value))


def _text(text: str) -> str:
    """The same, as far as it can be written as UTF-8."""
    return text.encode(errors="replace").decode()
