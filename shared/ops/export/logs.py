"""Exports log records: the message, its level, and its extra fields (such as `action`) as attributes."""

from __future__ import annotations

import logging
import traceback
from time import time_ns
from typing import Any, Final

from opentelemetry import context
from opentelemetry._logs import Logger, LoggerProvider, LogRecord, SeverityNumber
from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY

from .host_log import extra_fields
from .log_filter import without_users_and_queries

LEVELS: Final = {
    logging.DEBUG: SeverityNumber.DEBUG,
    logging.INFO: SeverityNumber.INFO,
    logging.WARNING: SeverityNumber.WARN,
    logging.ERROR: SeverityNumber.ERROR,
    logging.CRITICAL: SeverityNumber.FATAL,
}


class OtelLogHandler(logging.Handler):
    """Passes records to an OpenTelemetry provider, with the current trace."""

    def __init__(self, provider: LoggerProvider, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._provider = provider
        self._loggers: dict[str, Logger] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Export one record. A fault of the record or of the export never reaches the code that logs."""
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
                body=self._text(record.getMessage()),
                attributes={
                    **{name: self._plain(value) for name, value in extra_fields(record).items()},
                    **(self._exception(record.exc_info[1]) if record.exc_info and record.exc_info[1] is not None else {}),
                },
            )
        )

    def _exception(self, error: BaseException) -> dict[str, str]:
        """Return an exception under the attribute names of OpenTelemetry's conventions."""
        return {
            "exception.type": type(error).__qualname__,
            "exception.message": self._text(str(error)),
            "exception.stacktrace": self._text("".join(traceback.format_exception(error))),
        }

    def _plain(self, value: Any) -> str | bool | int | float:
        # A batch is sent as a whole: one value that the protocol cannot express would lose 500 lines.
        if isinstance(value, bool | float) or (isinstance(value, int) and -(2**63) <= value < 2**63):
            return value
        return self._text(str(value))

    def _text(self, text: str) -> str:
        """Return the text with characters replaced that UTF-8 cannot express."""
        return text.encode(errors="replace").decode()


class LibraryLogHandler(OtelLogHandler):
    """Exports lines of libraries without users and queries of URLs. Lines about the exporters' own requests are not exported."""

    def _emit(self, record: logging.LogRecord) -> None:
        # Otherwise each export that fails would cause another.
        if not context.get_value(_SUPPRESS_INSTRUMENTATION_KEY):
            super()._emit(record)

    def _text(self, text: str) -> str:
        return without_users_and_queries(super()._text(text))
