"""Log records for an exporter: the sentence, its level, and its extra fields (`action` first of all) as attributes."""

from __future__ import annotations

import logging
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


class Handler(logging.Handler):
    """Hands records to an OpenTelemetry provider, with the trace they were logged in."""

    def __init__(self, provider: LoggerProvider, level: int = logging.INFO) -> None:
        super().__init__(level)
        self._provider = provider
        self._loggers: dict[str, Logger] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """One record."""
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
                body=record.getMessage(),
                attributes={name: _plain(value) for name, value in vars(record).items() if name not in _OWN},
                exception=record.exc_info[1] if record.exc_info else None,
            )
        )


def _plain(value: Any) -> str | bool | int | float:
    return value if isinstance(value, str | bool | int | float) else str(value)
